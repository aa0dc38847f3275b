/* Statistics of a quantization: see stats.h. */
#include "quant/stats.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/thread.h"
#include "format/fp8.h"

/* One task takes 32 rows of the source: rows of blocks, or of a transposed copy a column of blocks,
 * so that the source is read along its rows. */
enum { TASK_ROWS = 32 };
static int64_t lines_of_task(const oct_qmatrix *q) {
    return q->transposed ? TASK_ROWS / OCT_MX_BLOCK : TASK_ROWS;
}

typedef struct job {
    const oct_matrix_view *x;
    const oct_qmatrix *q;
    int64_t block_rows,
        block_cols;           /* of the codes as stored; of all but MX merely how it is read */
    int64_t n_down, n_across; /* blocks */
    float values[256];        /* of codes */
    oct_quant_stats *parts;   /* of tasks */
} job;

static float scale_at(const oct_qmatrix *q, int64_t row, int64_t block_col) {
    if (q->scaling == OCT_SCALING_TENSOR)
        return *(const float *)q->scales;
    if (q->scaling == OCT_SCALING_ROW)
        return ((const float *)q->scales)[row];
    const uint8_t *scales = q->scales;
    return oct_e8m0_decode(scales[row / q->block_rows * q->ld_scales + block_col]);
}

/* Up to 32 elements that share a scale, and what elements of one block have in common: least and
 * largest magnitudes, as bits, which are in the same order. */
enum { RUN = OCT_MX_BLOCK, LANES = 8, MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000 };
typedef struct look {
    int32_t x_least, x_most, q_least, q_most;
} look;

static float of_bf16(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* n elements of a row of the copy: of a row of the source, or of a column. */
static void load_run(const oct_matrix_view *x, bool transposed, int64_t row, int64_t first, int n,
                     float *out) {
    const int64_t at = transposed ? first * x->ld + row : row * x->ld + first;
    const int64_t stride = transposed ? x->ld : 1;
    const float *wide = x->data;
    const uint16_t *half = x->data;
    if (x->dtype == OCT_F32)
        for (int i = 0; i < n; i++)
            out[i] = wide[at + i * stride];
    else
        for (int i = 0; i < n; i++)
            out[i] = of_bf16(half[at + i * stride]);
}

/* Sums in lanes, which compilers make vectors of; their order is fixed. */
static void sum_run(const float *x, const float *q, double scale, oct_quant_stats *s) {
    double signal[LANES] = {0}, noise[LANES] = {0}, product[LANES] = {0};
    double relative[LANES] = {0};
    for (int i = 0; i < RUN; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const double value = (double)x[i + lane], decoded = (double)q[i + lane] * scale;
            signal[lane] += value * value;
            noise[lane] += (decoded - value) * (decoded - value);
            product[lane] += decoded * value;
            /* far below any fp32 number: it keeps zeros from being divided by zero */
            relative[lane] += fabs(decoded - value) / (fabs(value) + 1e-300);
        }
    for (int lane = 0; lane < LANES; lane++) {
        s->signal += signal[lane];
        s->noise += noise[lane];
        s->product += product[lane];
        s->relative += relative[lane];
    }
}

static int32_t magnitude_bits(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & MAGNITUDE;
}

static float of_bits(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The first n; without branches, for vectors. */
static void compare_run(const float *x, const float *q, int n, look *seen, int *zeros, int *lost) {
    int32_t x_least = seen->x_least, x_most = seen->x_most;
    int32_t q_least = seen->q_least, q_most = seen->q_most;
    int n_zeros = 0, n_lost = 0;
    for (int i = 0; i < n; i++) {
        const int32_t a = magnitude_bits(x[i]), b = magnitude_bits(q[i]);
        n_zeros += a == 0;
        n_lost += (a != 0) & (b == 0);
        x_least = a < x_least ? a : x_least;
        x_most = a > x_most ? a : x_most;
        q_least = b < q_least ? b : q_least;
        q_most = b > q_most ? b : q_most;
    }
    *seen = (look){x_least, x_most, q_least, q_most};
    *zeros = n_zeros;
    *lost = n_lost;
}

/* Takes out what isn't finite; returns how many stay in front. */
static int drop_special(float *x, float *q, int n, float scale) {
    int n_kept = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(q[i] * scale))
            continue;
        x[n_kept] = x[i];
        q[n_kept++] = q[i];
    }
    for (int i = n_kept; i < n; i++)
        x[i] = q[i] = 0;
    return n_kept;
}

static void count_saturated(const job *j, const float *x, int n, float scale, int32_t most,
                            oct_quant_stats *s) {
    if (!oct_fp8_saturates(j->q->format, (double)of_bits(most) / (double)scale))
        return;
    for (int i = 0; i < n; i++)
        s->n_saturated += oct_fp8_saturates(j->q->format, (double)fabsf(x[i]) / (double)scale);
}

/* x and q hold zeros from n on. */
static void count_run(const job *j, float *x, float *q, int n, float scale, oct_quant_stats *s,
                      look *block) {
    look seen = *block;
    int zeros, lost;
    compare_run(x, q, n, &seen, &zeros, &lost);
    if (seen.x_most >= INFINITE || seen.q_most >= INFINITE || !isfinite(scale)) {
        const int n_kept = drop_special(x, q, n, scale);
        s->n_special += n - n_kept;
        n = n_kept;
        seen = *block;
        compare_run(x, q, n, &seen, &zeros, &lost);
    }
    *block = seen;
    s->n_zero += zeros;
    s->n_underflow += lost;
    if (n == 0)
        return;
    s->amax = fmax(s->amax, (double)of_bits(seen.x_most));
    count_saturated(j, x, n, scale, seen.x_most, s);
    sum_run(x, q, (double)scale, s);
}

static void count_block(const job *j, int64_t down, int64_t across, oct_quant_stats *s) {
    const oct_qmatrix *q = j->q;
    const int64_t first_col = across * j->block_cols, first_row = down * j->block_rows;
    const int64_t end_row = oct_min_i64(q->rows, first_row + j->block_rows);
    const int n = (int)oct_min_i64(j->block_cols, q->cols - first_col);
    look seen = {.x_least = INT32_MAX, .q_least = INT32_MAX};
    for (int64_t r = first_row; r < end_row; r++) {
        float x[RUN] = {0}, decoded[RUN] = {0};
        const uint8_t *codes = q->codes + r * q->cols + first_col;
        load_run(j->x, q->transposed, r, first_col, n, x);
        for (int i = 0; i < n; i++)
            decoded[i] = j->values[codes[i]];
        count_run(j, x, decoded, n, scale_at(q, r, across), s, &seen);
    }
    s->n_flat +=
        q->scaling == OCT_SCALING_MX && seen.x_most > seen.x_least && seen.q_most == seen.q_least;
}

static void count_task(void *context, int64_t task, int thread) {
    const job *j = context;
    oct_quant_stats *s = &j->parts[task];
    const bool transposed = j->q->transposed;
    const int64_t n_lines = transposed ? j->n_across : j->n_down;
    const int64_t n_along = transposed ? j->n_down : j->n_across;
    const int64_t lines = lines_of_task(j->q);
    const int64_t end = oct_min_i64(n_lines, (task + 1) * lines);
    (void)thread;
    for (int64_t line = task * lines; line < end; line++)
        for (int64_t i = 0; i < n_along; i++)
            count_block(j, transposed ? i : line, transposed ? line : i, s);
}

static void count_scale(float scale, oct_quant_stats *s) {
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    s->n_blocks++;
    if (isnan(scale))
        s->n_poisoned++;
    else
        s->scales[bits >> 23 & 255]++;
}

static void count_scales(const oct_qmatrix *q, oct_quant_stats *s) {
    const int64_t down =
        q->scaling == OCT_SCALING_TENSOR
            ? (q->rows > 0 && q->cols > 0)
            : oct_ceil_div(q->rows, q->scaling == OCT_SCALING_MX ? q->block_rows : 1);
    const int64_t across = q->scaling == OCT_SCALING_MX ? q->ld_scales : q->cols > 0;
    for (int64_t r = 0; r < down; r++)
        for (int64_t c = 0; c < across; c++)
            count_scale(scale_at(q, r * (q->scaling == OCT_SCALING_MX ? q->block_rows : 1), c), s);
}

void oct_quant_stats_merge(oct_quant_stats *sum, const oct_quant_stats *part) {
    sum->n += part->n;
    sum->n_special += part->n_special;
    sum->n_zero += part->n_zero;
    sum->n_underflow += part->n_underflow;
    sum->n_saturated += part->n_saturated;
    sum->amax = fmax(sum->amax, part->amax);
    sum->signal += part->signal;
    sum->noise += part->noise;
    sum->product += part->product;
    sum->relative += part->relative;
    sum->n_blocks += part->n_blocks;
    sum->n_poisoned += part->n_poisoned;
    sum->n_flat += part->n_flat;
    for (int i = 0; i < OCT_N_SCALE_BINS; i++)
        sum->scales[i] += part->scales[i];
}

oct_status oct_quant_stats_add(const oct_matrix_view *x, const oct_qmatrix *q,
                               oct_quant_stats *stats) {
    job j = {.x = x, .q = q, .block_rows = 1, .block_cols = OCT_MX_BLOCK};
    if (q->scaling == OCT_SCALING_MX)
        j.block_rows = q->block_rows;
    j.n_down = oct_ceil_div(q->rows, j.block_rows);
    j.n_across = oct_ceil_div(q->cols, j.block_cols);
    for (int code = 0; code < 256; code++)
        j.values[code] = oct_fp8_value(q->format, (uint8_t)code);
    const int64_t n_tasks = oct_ceil_div(q->transposed ? j.n_across : j.n_down, lines_of_task(q));
    j.parts = oct_calloc_array((size_t)n_tasks + 1, sizeof *j.parts);
    if (!j.parts)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, count_task, &j);
    for (int64_t i = 0; i < n_tasks; i++)
        oct_quant_stats_merge(stats, &j.parts[i]);
    oct_free(j.parts);
    stats->n += q->rows * q->cols;
    count_scales(q, stats);
    return OCT_OK;
}

double oct_quant_stats_sqnr(const oct_quant_stats *stats) {
    return stats->signal > 0 ? 10 * log10(stats->signal / stats->noise) : NAN;
}

double oct_quant_stats_bias(const oct_quant_stats *stats) {
    return stats->signal > 0 ? stats->product / stats->signal - 1 : NAN;
}

double oct_quant_stats_relative(const oct_quant_stats *stats) {
    const int64_t n = stats->n - stats->n_special - stats->n_zero;
    return n > 0 ? stats->relative / (double)n : 0;
}

/* ---- the other formats and rules ---- */

static const struct trial {
    const char *name, *recipe;
} trials[OCT_N_QUANT_TRIALS] = {
    {"E4M3 floor", "mxfp8_cublas"},
    {"E4M3 rceil", "mxfp8_cublas_rceil"},
    {"E5M2 rceil", "dynamic_mx_e5m2_e5m2_e5m2"},
    {"E4M3 per tensor", "dynamic_per_tensor_e4m3_e4m3_e4m3"},
    {"HiF8 15/224", "hif8_15_224"},
    {"HiF8 32768", "hif8_full_range"},
};

const char *oct_quant_trial_name(int trial) {
    return trials[trial].name;
}

static oct_status try_one(const oct_matrix_view *x, oct_role role, int dim, int trial,
                          oct_arena *arena, oct_quant_stats *stats) {
    oct_recipe recipe;
    oct_quantized q;
    oct_arena *const arenas[2] = {arena, arena};
    oct_status status = oct_recipe_parse(trials[trial].recipe, &recipe, NULL);
    if (!status)
        status =
            oct_quantize(x, &recipe, role, dim == 1 ? OCT_ALONG_1 : OCT_ALONG_0, arenas, NULL, &q);
    return status ? status : oct_quant_stats_add(x, &q.along[dim], stats);
}

oct_status oct_quant_stats_try(const oct_matrix_view *x, oct_role role, int dim,
                               int64_t max_elements, oct_arena *arena,
                               oct_quant_stats results[OCT_N_QUANT_TRIALS]) {
    oct_matrix_view rows = *x;
    oct_status status = OCT_OK;
    const int64_t most = max_elements > 0 ? oct_max_i64(1, max_elements / oct_max_i64(1, x->cols))
                                          : oct_max_i64(1, x->rows);
    const int64_t stride = oct_ceil_div(oct_max_i64(1, x->rows), most);
    rows.rows = oct_ceil_div(x->rows, stride);
    rows.ld = x->ld * stride;
    for (int i = 0; i < OCT_N_QUANT_TRIALS && !status; i++) {
        oct_arena_mark mark = oct_arena_get_mark(arena);
        status = try_one(&rows, role, dim, i, arena, &results[i]);
        oct_arena_release(arena, mark);
    }
    return status;
}
