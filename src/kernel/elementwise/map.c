/* Kernels that compute each element from its own inputs: see kernel/elementwise.h. */
#include "kernel/elementwise/vectors.h"

void IN_SET(oct_ew_cast)(oct_source x, int64_t n, oct_target y) {
#define STEP(i, count) store(y, i, count, load(x, i, count))
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

void IN_SET(oct_ew_add)(oct_source a, oct_source b, int64_t n, oct_target y) {
#define STEP(i, count) store(y, i, count, load(a, i, count) + load(b, i, count))
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

void IN_SET(oct_ew_scale)(oct_source x, float factor, int64_t n, oct_target y) {
#define STEP(i, count) store(y, i, count, load(x, i, count) * factor)
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

void IN_SET(oct_ew_exp)(const float *x, int64_t n, float *y) {
#define STEP(i, count) store_f32(y + (i), count, vec_exp(load_f32(x + (i), count, 0)))
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

OCT_INLINE vec sigmoid(vec a) {
    return 1.0f / (1.0f + vec_exp(-a));
}

void IN_SET(oct_ew_swiglu)(oct_source gate, oct_source up, int64_t n, oct_target y) {
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        vec a = load(gate, i, count);                                                              \
        store(y, i, count, a / (1.0f + vec_exp(-a)) * load(up, i, count));                         \
    } while (0)
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

/* d silu(a) / da = s + a s (1 - s), s the sigmoid of a. */
OCT_INLINE void swiglu_backward_step(oct_source dy, oct_source gate, oct_source up, int64_t i,
                                     int64_t count, oct_target dgate, oct_target dup) {
    vec d = load(dy, i, count), a = load(gate, i, count), b = load(up, i, count);
    vec s = sigmoid(a);
    store(dgate, i, count, d * b * (s * (1.0f + a * (1.0f - s))));
    store(dup, i, count, d * (a * s));
}

void IN_SET(oct_ew_swiglu_backward)(oct_source dy, oct_source gate, oct_source up, int64_t n,
                                    oct_target dgate, oct_target dup) {
#define STEP(i, count) swiglu_backward_step(dy, gate, up, i, count, dgate, dup)
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

OCT_INLINE vec swap_neighbours(vec x) {
#if V == 16
    return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif V == 8
    return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return __builtin_shufflevector(x, x, 1, 0, 3, 2);
#endif
}

static void rope_interleaved(oct_target x, const float *cosine, const float *sine, float sign,
                             int64_t dims) {
    oct_source in = oct_source_of(x);
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        vec v = load(in, i, count);                                                                \
        vec turned = swap_neighbours(v) * (load_f32(sine + (i), count, 0) * sign);                 \
        store(x, i, count, v *load_f32(cosine + (i), count, 0) + turned);                          \
    } while (0)
    FOR_EACH_VEC(dims, STEP);
#undef STEP
}

static void rope_halves(oct_target x, const float *cosine, const float *sine, float sign,
                        int64_t dims) {
    int64_t half = dims / 2;
    oct_source in = oct_source_of(x);
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        vec low = load(in, i, count), high = load(in, (i) + half, count);                          \
        vec low_sine = load_f32(sine + (i), count, 0) * sign;                                      \
        vec high_sine = load_f32(sine + half + (i), count, 0) * sign;                              \
        store(x, i, count, low *load_f32(cosine + (i), count, 0) + high * low_sine);               \
        store(x, (i) + half, count,                                                                \
              high * load_f32(cosine + half + (i), count, 0) + low * high_sine);                   \
    } while (0)
    FOR_EACH_VEC(half, STEP);
#undef STEP
}

void IN_SET(oct_ew_rope)(oct_target x, const float *cosine, const float *sine, float sign,
                         oct_rope_pairs pairs, int64_t dims) {
    if (pairs == OCT_ROPE_INTERLEAVED)
        rope_interleaved(x, cosine, sine, sign, dims);
    else
        rope_halves(x, cosine, sine, sign, dims);
}

/* The highest bit tells: an exponent of ones, of infinity and NaN alone, carries into it. */
OCT_INLINE uint32_t not_finite(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffff) + 0x00800000;
}

/* A plain loop: division and square root are correctly rounded, so any vectorisation gives the same
 * bits. */
unsigned IN_SET(oct_ew_adam)(const oct_adam_factors *factors, int64_t n, const float *restrict grad,
                             float *restrict value, float *restrict m, float *restrict v) {
    const oct_adam_factors f = *factors;
    uint32_t bad_value = 0, bad_m = 0, bad_v = 0;
    for (int64_t i = 0; i < n; i++) {
        float kept = value[i] * f.keep;
        float g = grad[i] * f.grad_scale + f.l2 * value[i];
        m[i] = m[i] + (g - m[i]) * f.new1;
        v[i] = v[i] * f.beta2 + g * g * f.new2;
        value[i] = kept - f.step_size * (m[i] / (__builtin_sqrtf(v[i]) * f.inv_sqrt_bias2 + f.eps));
        bad_value |= not_finite(value[i]);
        bad_m |= not_finite(m[i]);
        bad_v |= not_finite(v[i]);
    }
    return (bad_value >> 31) * OCT_ADAM_VALUE | (bad_m >> 31) * OCT_ADAM_M |
           (bad_v >> 31) * OCT_ADAM_V;
}
