/* Kernels that sum over a row: norm, softmax, loss; see kernel/elementwise.h for the order of sums.
 */
#include "kernel/elementwise/vectors.h"

/* sum = the sum over 0 .. n-1 of the terms that body adds to lanes.part. */
#define SUM_IN_CHUNKS(sum, n, body)                                                                \
    do {                                                                                           \
        (sum) = 0;                                                                                 \
        for (int64_t first = 0; first < (n); first += OCT_SUM_CHUNK) {                             \
            int64_t end = (n)-first < OCT_SUM_CHUNK ? (n) : first + OCT_SUM_CHUNK;                 \
            lanes acc = {0};                                                                       \
            FOR_EACH_PART(first, end, body);                                                       \
            (sum) += lanes_sum(acc);                                                               \
        }                                                                                          \
    } while (0)

static double sum_of_products(oct_source a, oct_source b, int64_t n) {
    double sum;
#define STEP(i, count, p) acc.part[p] += load(a, i, count) * load(b, i, count)
    SUM_IN_CHUNKS(sum, n, STEP);
#undef STEP
    return sum;
}

float IN_SET(oct_ew_dot)(oct_source a, oct_source b, int64_t n) {
    return (float)sum_of_products(a, b, n);
}

/* Halves of registers widen to registers of doubles. */
typedef float narrow __attribute__((vector_size(V * 2)));
typedef double dvec __attribute__((vector_size(V * 4)));
#define DPARTS (2 * PARTS)

double IN_SET(oct_ew_sum_of_squares)(const float *x, int64_t n) {
    dvec acc[DPARTS] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int p = 0; p < DPARTS; p++) {
            narrow f;
            memcpy(&f, x + i + p * (V / 2), sizeof f);
            dvec d = __builtin_convertvector(f, dvec);
            acc[p] += d * d;
        }
    double t[LANES];
    memcpy(t, acc, sizeof t);
    for (int l = 0; i + l < n; l++)
        t[l] += (double)x[i + l] * (double)x[i + l];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            t[l] += t[l + width];
    return t[0];
}

float IN_SET(oct_ew_rmsnorm)(oct_source x, const float *weight, float eps, int64_t D,
                             oct_target y) {
    double mean = D > 0 ? sum_of_products(x, x, D) / (double)D : 0;
    float rstd = (float)(1.0 / sqrt(mean + (double)eps));
#define STEP(i, count)                                                                             \
    store(y, i, count, load(x, i, count) * rstd * load_f32(weight + (i), count, 0))
    FOR_EACH_VEC(D, STEP);
#undef STEP
    return rstd;
}

/* The mean of g n, with n = x * rstd. */
static float rmsnorm_mean(oct_source dy, oct_source x, const float *weight, float rstd, int64_t D) {
    double sum;
#define STEP(i, count, p)                                                                          \
    acc.part[p] +=                                                                                 \
        load(dy, i, count) * load_f32(weight + (i), count, 0) * (load(x, i, count) * rstd)
    SUM_IN_CHUNKS(sum, D, STEP);
#undef STEP
    return (float)(sum / (double)D);
}

void IN_SET(oct_ew_rmsnorm_backward)(oct_source dy, oct_source x, const float *weight, float rstd,
                                     int64_t D, oct_target dx, oct_accumulate accumulate,
                                     float *dweight) {
    float mean = dx.data && D > 0 ? rmsnorm_mean(dy, x, weight, rstd, D) : 0;
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        vec d = load(dy, i, count), normed = load(x, i, count) * rstd;                             \
        if (dweight)                                                                               \
            store_f32(dweight + (i), count, load_f32(dweight + (i), count, 0) + d * normed);       \
        if (dx.data) {                                                                             \
            vec g = (d * load_f32(weight + (i), count, 0) - normed * mean) * rstd;                 \
            if (accumulate == OCT_ADD_TO_OUTPUT)                                                   \
                g += load(oct_source_of(dx), i, count);                                            \
            store(dx, i, count, g);                                                                \
        }                                                                                          \
    } while (0)
    FOR_EACH_VEC(D, STEP);
#undef STEP
}

float IN_SET(oct_ew_max)(oct_source x, int64_t n) {
    lanes acc;
    for (int p = 0; p < PARTS; p++)
        acc.part[p] = splat(-INFINITY);
#define STEP(i, count, p) acc.part[p] = vec_max(acc.part[p], load_or(x, i, count, -INFINITY))
    FOR_EACH_PART(0, n, STEP);
#undef STEP
    return lanes_max(acc);
}

double IN_SET(oct_ew_sum_exp)(oct_source x, int64_t n, float shift) {
    double sum;
#define STEP(i, count, p) acc.part[p] += vec_exp(load_or(x, i, count, -INFINITY) - shift)
    SUM_IN_CHUNKS(sum, n, STEP);
#undef STEP
    return sum;
}

/* Largest scale * x. */
static float scaled_max(const float *x, int64_t n, float scale) {
    lanes acc;
    for (int p = 0; p < PARTS; p++)
        acc.part[p] = splat(-INFINITY);
    int64_t whole = n - n % LANES;
#define STEP(i, count, p) acc.part[p] = vec_max(acc.part[p], load_f32(x + (i), count, 0) * scale)
    FOR_EACH_PART(0, whole, STEP);
#undef STEP
    float max = lanes_max(acc);
    for (int64_t i = whole; i < n; i++)
        max = x[i] * scale > max ? x[i] * scale : max;
    return max;
}

float IN_SET(oct_ew_softmax_block)(float *x, int64_t n, int64_t n_total, float scale, float *max,
                                   float *sum) {
    memset(x + n, 0, (size_t)(n_total - n) * sizeof *x);
    if (n == 0)
        return 1;
    float block_max = scaled_max(x, n, scale);
    float new_max = block_max > *max ? block_max : *max;
    float factor = vec_exp(splat(*max - new_max))[0];
    double block_sum;
#define STEP(i, count, p)                                                                          \
    do {                                                                                           \
        vec e = vec_exp(load_f32(x + (i), count, 0) * scale - new_max);                            \
        store_f32(x + (i), count, e);                                                              \
        acc.part[p] += keep_first(e, count);                                                       \
    } while (0)
    SUM_IN_CHUNKS(block_sum, n, STEP);
#undef STEP
    *sum = *sum * factor + (float)block_sum;
    *max = new_max;
    return factor;
}

void IN_SET(oct_ew_softmax_backward)(float *scores, float *dp, int64_t n, int64_t n_total,
                                     float scale, float lse, float delta) {
    memset(scores + n, 0, (size_t)(n_total - n) * sizeof *scores);
    memset(dp + n, 0, (size_t)(n_total - n) * sizeof *dp);
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        vec p = vec_exp(load_f32(scores + (i), count, 0) * scale - lse);                           \
        vec ds = p * (load_f32(dp + (i), count, 0) - delta) * scale;                               \
        store_f32(scores + (i), count, p);                                                         \
        store_f32(dp + (i), count, ds);                                                            \
    } while (0)
    FOR_EACH_VEC(n, STEP);
#undef STEP
}

void IN_SET(oct_ew_cross_entropy_gradient)(oct_target x, int64_t n, float max, float inv_sum,
                                           int64_t label, float grad_scale) {
    oct_source in = oct_source_of(x);
    vec hit = vec_exp(load(in, label, 1) - max) * inv_sum;
#define STEP(i, count) store(x, i, count, vec_exp(load(in, i, count) - max) * inv_sum * grad_scale)
    FOR_EACH_VEC(n, STEP);
#undef STEP
    store(x, label, 1, (hit - 1.0f) * grad_scale);
}
