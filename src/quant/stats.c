/* Statistics of a quantization: see stats.h. */
#include "quant/stats.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/thread.h"
#include "format/fp8.h"

/* Blocks that one task takes: columns of blocks of a transposed copy, so that the source is read
 * along its rows, else rows of blocks. */
enum { TASK_LINES = 32 };

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

/* Up to 32 elements that share a scale, and what elements of one block have in common. */
enum { RUN = OCT_MX_BLOCK, LANES = 8 };
typedef struct look {
    float x_least, x_most; /* magnitudes of the source */
    int code_least, code_most;
} look;

static float load(const oct_matrix_view *x, int64_t i) {
    uint32_t bits;
    float value;
    if (x->dtype == OCT_F32)
        return ((const float *)x->data)[i];
    bits = (uint32_t)((const uint16_t *)x->data)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Sums in lanes, which compilers make vectors of; their order is fixed. */
static void sum_run(const float *x, const float *q, double scale, oct_quant_stats *s) {
    double signal[LANES] = {0}, noise[LANES] = {0}, product[LANES] = {0};
    for (int i = 0; i < RUN; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const double value = (double)x[i + lane], decoded = (double)q[i + lane] * scale;
            signal[lane] += value * value;
            noise[lane] += (decoded - value) * (decoded - value);
            product[lane] += decoded * value;
        }
    for (int lane = 0; lane < LANES; lane++) {
        s->signal += signal[lane];
        s->noise += noise[lane];
        s->product += product[lane];
    }
}

/* All of them finite; those from n on are zeros with code 0. */
static void count_finite(const job *j, const float *x, const float *q, const uint8_t *codes, int n,
                         float scale, oct_quant_stats *s, look *seen) {
    float least = seen->x_least, most = seen->x_most;
    int zeros = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        const int code = codes[i] & 127;
        zeros += x[i] == 0;
        lost += (x[i] != 0) & (q[i] == 0);
        least = magnitude < least ? magnitude : least;
        most = magnitude > most ? magnitude : most;
        seen->code_least = code < seen->code_least ? code : seen->code_least;
        seen->code_most = code > seen->code_most ? code : seen->code_most;
    }
    for (int i = 0; i < n && oct_fp8_saturates(j->q->format, (double)most / (double)scale); i++)
        s->n_saturated += oct_fp8_saturates(j->q->format, (double)fabsf(x[i]) / (double)scale);
    s->n_zero += zeros;
    s->n_underflow += lost;
    s->amax = fmax(s->amax, (double)most);
    seen->x_least = least;
    seen->x_most = most;
    sum_run(x, q, (double)scale, s);
}

static void count_run(const job *j, float *x, const uint8_t *codes, int n, float scale,
                      oct_quant_stats *s, look *seen) {
    float q[RUN] = {0};
    uint8_t kept[RUN];
    int n_kept = 0;
    for (int i = 0; i < n; i++) {
        const float value = j->values[codes[i]];
        if (!isfinite(x[i]) || !isfinite(value * scale))
            continue;
        x[n_kept] = x[i];
        kept[n_kept] = codes[i];
        q[n_kept++] = value;
    }
    s->n_special += n - n_kept;
    memset(x + n_kept, 0, (size_t)(RUN - n_kept) * sizeof *x);
    if (n_kept > 0)
        count_finite(j, x, q, kept, n_kept, scale, s, seen);
}

static void count_block(const job *j, int64_t down, int64_t across, oct_quant_stats *s) {
    const oct_qmatrix *q = j->q;
    const int64_t first_col = across * j->block_cols, first_row = down * j->block_rows;
    const int64_t end_row = oct_min_i64(q->rows, first_row + j->block_rows);
    const int n = (int)oct_min_i64(j->block_cols, q->cols - first_col);
    look seen = {.x_least = INFINITY, .x_most = 0, .code_least = 255, .code_most = -1};
    for (int64_t r = first_row; r < end_row; r++) {
        float x[RUN];
        for (int i = 0; i < n; i++)
            x[i] = q->transposed ? load(j->x, (first_col + i) * j->x->ld + r)
                                 : load(j->x, r * j->x->ld + first_col + i);
        count_run(j, x, q->codes + r * q->cols + first_col, n, scale_at(q, r, across), s, &seen);
    }
    s->n_flat += q->scaling == OCT_SCALING_MX && seen.code_most >= 0 &&
                 seen.x_most > seen.x_least && seen.code_most == seen.code_least;
}

static void count_task(void *context, int64_t task, int thread) {
    const job *j = context;
    oct_quant_stats *s = &j->parts[task];
    const bool transposed = j->q->transposed;
    const int64_t n_lines = transposed ? j->n_across : j->n_down;
    const int64_t n_along = transposed ? j->n_down : j->n_across;
    const int64_t end = oct_min_i64(n_lines, (task + 1) * TASK_LINES);
    (void)thread;
    for (int64_t line = task * TASK_LINES; line < end; line++)
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
    const int64_t n_tasks = oct_ceil_div(q->transposed ? j.n_across : j.n_down, TASK_LINES);
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

static oct_status try_one(const oct_matrix_view *x, oct_role role, int trial, oct_arena *arena,
                          oct_quant_stats *stats) {
    oct_recipe recipe;
    oct_quantized q;
    oct_arena *const arenas[2] = {arena, arena};
    oct_status status = oct_recipe_parse(trials[trial].recipe, &recipe, NULL);
    if (!status)
        status = oct_quantize(x, &recipe, role, OCT_ALONG_1, arenas, NULL, &q);
    return status ? status : oct_quant_stats_add(x, &q.along[1], stats);
}

oct_status oct_quant_stats_try(const oct_matrix_view *x, oct_role role, int64_t max_elements,
                               oct_arena *arena, oct_quant_stats results[OCT_N_QUANT_TRIALS]) {
    oct_matrix_view rows = *x;
    oct_status status = OCT_OK;
    const int64_t most = max_elements > 0 ? oct_max_i64(1, max_elements / oct_max_i64(1, x->cols))
                                          : oct_max_i64(1, x->rows);
    const int64_t stride = oct_ceil_div(oct_max_i64(1, x->rows), most);
    rows.rows = oct_ceil_div(x->rows, stride);
    rows.ld = x->ld * stride;
    for (int i = 0; i < OCT_N_QUANT_TRIALS && !status; i++) {
        oct_arena_mark mark = oct_arena_get_mark(arena);
        status = try_one(&rows, role, i, arena, &results[i]);
        oct_arena_release(arena, mark);
    }
    return status;
}
