/* The vector type that the elementwise kernels are written in, and how they are named in each set.
 *
 * Invariant: what a kernel computes doesn't depend on V, the floats that one register of the
 * instruction set holds. Elementwise code works on one `vec` of V at a time; sums work on `lanes`,
 * 16 floats in 16 / V registers. GCC's vector extensions, no intrinsics: every C compiler that the
 * project supports lowers them for every CPU. */
#ifndef OCT_KERNEL_ELEMENTWISE_VECTORS_H
#define OCT_KERNEL_ELEMENTWISE_VECTORS_H

#include <math.h>
#include <string.h>

#include "kernel/elementwise.h"
#include "kernel/inline.h"

#if defined __AVX512F__
#define V 16
#elif defined __AVX__
#define V 8
#else
#define V 4
#endif
#define LANES 16
#define PARTS (LANES / V)

/* OCT_SET is ref, avx2 or avx512; IN_SET(x) is x_ref, ... */
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define IN_SET(name) JOIN(name, OCT_SET)

typedef float vec __attribute__((vector_size(V * 4)));
typedef int32_t ivec __attribute__((vector_size(V * 4)));
typedef uint32_t uvec __attribute__((vector_size(V * 4)));
typedef uint16_t hvec __attribute__((vector_size(V * 2)));

OCT_INLINE vec splat(float x) {
    return x - (vec){0}; /* x - 0 is x, -0 and NaN included */
}

/* mask is all ones or all zeros an element, as comparisons give it. */
OCT_INLINE vec pick(ivec mask, vec yes, vec no) {
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

OCT_INLINE vec vec_max(vec a, vec b) { /* a where b is NaN */
    return pick(b > a, b, a);
}

/* Elements i .. i+n-1, n <= V, the other places `fill` (0 or -inf). The constant n = V is the fast
 * way. */
OCT_INLINE vec load_f32(const float *x, int64_t n, float fill) {
    vec v;
    if (n == V) {
        memcpy(&v, x, sizeof v);
        return v;
    }
    float t[V];
    for (int64_t l = 0; l < V; l++)
        t[l] = l < n ? x[l] : fill;
    memcpy(&v, t, sizeof v);
    return v;
}

OCT_INLINE vec load_bf16(const uint16_t *x, int64_t n, float fill) {
    hvec h;
    if (n == V) {
        memcpy(&h, x, sizeof h);
    } else {
        uint32_t fill_bits;
        memcpy(&fill_bits, &fill, sizeof fill_bits);
        uint16_t t[V];
        for (int64_t l = 0; l < V; l++)
            t[l] = l < n ? x[l] : (uint16_t)(fill_bits >> 16);
        memcpy(&h, t, sizeof h);
    }
    return (vec)(__builtin_convertvector(h, uvec) << 16);
}

OCT_INLINE vec load_or(oct_source x, int64_t i, int64_t n, float fill) {
    if (x.dtype == OCT_F32)
        return load_f32((const float *)x.data + i, n, fill);
    return load_bf16((const uint16_t *)x.data + i, n, fill);
}

OCT_INLINE vec load(oct_source x, int64_t i, int64_t n) {
    return load_or(x, i, n, 0);
}

OCT_INLINE void store_f32(float *y, int64_t n, vec v) {
    if (n == V)
        memcpy(y, &v, sizeof v);
    else
        for (int64_t l = 0; l < n; l++)
            y[l] = v[l];
}

OCT_INLINE void store_bf16(uint16_t *y, int64_t n, vec v) {
    uvec bits = (uvec)v;
    uvec rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    ivec is_nan = v != v; /* rounding could carry a NaN into Inf */
    uvec nan = (bits >> 16) | 0x40;
    hvec h = __builtin_convertvector((rounded & (uvec)~is_nan) | (nan & (uvec)is_nan), hvec);
    if (n == V)
        memcpy(y, &h, sizeof h);
    else
        for (int64_t l = 0; l < n; l++)
            y[l] = h[l];
}

OCT_INLINE void store(oct_target y, int64_t i, int64_t n, vec v) {
    if (y.dtype == OCT_F32)
        store_f32((float *)y.data + i, n, v);
    else
        store_bf16((uint16_t *)y.data + i, n, v);
}

/* body(i, count): whole registers with the constant V, then the tail. */
#define FOR_EACH_VEC(n, body)                                                                      \
    do {                                                                                           \
        int64_t at = 0;                                                                            \
        for (; at + V <= (n); at += V)                                                             \
            body(at, V);                                                                           \
        if (at < (n))                                                                              \
            body(at, (n)-at);                                                                      \
    } while (0)

typedef struct lanes {
    vec part[PARTS];
} lanes;

OCT_INLINE float lanes_sum(lanes a) {
    float t[LANES];
    memcpy(t, &a, sizeof t);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            t[l] += t[l + width];
    return t[0];
}

OCT_INLINE float lanes_max(lanes a) {
    float t[LANES];
    memcpy(t, &a, sizeof t);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            t[l] = t[l + width] > t[l] ? t[l + width] : t[l];
    return t[0];
}

/* How many of a register's elements exist when `left` elements are left from its first one on. */
OCT_INLINE int64_t clip(int64_t left) {
    return left < 0 ? 0 : left < V ? left : V;
}

/* body(i, count, part) over n elements in blocks of 16: part is the register within the block. */
#define FOR_EACH_PART(first, end, body)                                                            \
    do {                                                                                           \
        int64_t at = (first);                                                                      \
        for (; at + LANES <= (end); at += LANES)                                                   \
            for (int part = 0; part < PARTS; part++)                                               \
                body(at + part * V, V, part);                                                      \
        if (at < (end))                                                                            \
            for (int part = 0; part < PARTS; part++)                                               \
                body(at + part * V, clip((end)-at - part * V), part);                              \
    } while (0)

/* Elements from n on become 0. */
OCT_INLINE vec keep_first(vec x, int64_t n) {
    if (n == V)
        return x;
    for (int64_t l = n; l < V; l++)
        x[l] = 0;
    return x;
}

/* exp(x) within 2 ulp. x = n ln 2 + r with ln 2 in two pieces (n times the first is exact), a
 * polynomial for exp(r) (Cephes, expf), and 2^n in two factors so that subnormal results and
 * overflow come out of the multiplication. */
OCT_INLINE vec vec_exp(vec x) {
    x = pick(x < -104.0f, splat(-104.0f), x); /* NaN passes */
    x = pick(x > 89.0f, splat(89.0f), x);
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vec shifted = x * 1.44269504088896341f + to_integer;
    vec n = shifted - to_integer;
    vec r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vec p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ivec exponent = (ivec)shifted - (ivec)splat(to_integer);
    ivec half = exponent >> 1;
    vec low = (vec)((half + 127) << 23);
    vec high = (vec)((exponent - half + 127) << 23);
    return p * low * high;
}

/* Defined by the files of this folder, gathered in table.c. */
void IN_SET(oct_ew_cast)(oct_source x, int64_t n, oct_target y);
void IN_SET(oct_ew_add)(oct_source a, oct_source b, int64_t n, oct_target y);
void IN_SET(oct_ew_scale)(oct_source x, float factor, int64_t n, oct_target y);
void IN_SET(oct_ew_exp)(const float *x, int64_t n, float *y);
void IN_SET(oct_ew_swiglu)(oct_source gate, oct_source up, int64_t n, oct_target y);
void IN_SET(oct_ew_swiglu_backward)(oct_source dy, oct_source gate, oct_source up, int64_t n,
                                    oct_target dgate, oct_target dup);
void IN_SET(oct_ew_rope)(oct_target x, const float *cosine, const float *sine, float sign,
                         oct_rope_pairs pairs, int64_t dims);
unsigned IN_SET(oct_ew_adam)(const oct_adam_factors *factors, int64_t n, const float *grad,
                             float *value, float *m, float *v);
float IN_SET(oct_ew_rmsnorm)(oct_source x, const float *weight, float eps, int64_t D, oct_target y);
void IN_SET(oct_ew_rmsnorm_backward)(oct_source dy, oct_source x, const float *weight, float rstd,
                                     int64_t D, oct_target dx, oct_accumulate accumulate,
                                     float *dweight);
double IN_SET(oct_ew_sum_of_squares)(const float *x, int64_t n);
float IN_SET(oct_ew_dot)(oct_source a, oct_source b, int64_t n);
float IN_SET(oct_ew_max)(oct_source x, int64_t n);
double IN_SET(oct_ew_sum_exp)(oct_source x, int64_t n, float shift);
float IN_SET(oct_ew_softmax_block)(float *x, int64_t n, int64_t n_total, float scale, float *max,
                                   float *sum);
void IN_SET(oct_ew_softmax_backward)(float *scores, float *dp, int64_t n, int64_t n_total,
                                     float scale, float lse, float delta);
void IN_SET(oct_ew_cross_entropy_gradient)(oct_target x, int64_t n, float max, float inv_sum,
                                           int64_t label, float grad_scale);

#endif
