/* Rotary position embedding: see rope.h. */
#include "op/rope.h"

#include <math.h>

#include "base/alloc.h"
#include "op/common.h"

static const double PI = 3.14159265358979323846;

/* Rows of cosines and of signed sines, one of `dims` elements a position, as the kernel wants them:
 * y[i] = x[i] * cosine[i] + x[partner(i)] * sine[i]. */
struct oct_rope_table {
    int64_t dims, n_positions;
    oct_rope_pairs pairs;
    float *cosine, *sine;
};

static bool config_is_valid(const oct_rope_config *c) {
    if (c->dims <= 0 || c->dims % 2 != 0 || !(c->theta > 0) || !isfinite(c->theta))
        return false;
    if (c->scaling == OCT_ROPE_UNSCALED)
        return true;
    if (!(c->factor > 0))
        return false;
    if (c->scaling == OCT_ROPE_LINEAR)
        return true;
    if (!(c->original_context > 0))
        return false;
    if (c->scaling == OCT_ROPE_DYNAMIC)
        return c->dims > 2;
    if (c->scaling == OCT_ROPE_LLAMA3)
        return c->low_freq_factor > 0 && c->high_freq_factor > c->low_freq_factor;
    return c->beta_fast > 0 && c->beta_slow > 0 && c->theta > 1;
}

/* Llama 3.1: long wavelengths are stretched by `factor`, short ones are kept, a ramp between. */
static float llama3_frequency(const oct_rope_config *c, float frequency) {
    double wavelength = 2 * PI / (double)frequency;
    if (wavelength < c->original_context / c->high_freq_factor)
        return frequency;
    if (wavelength > c->original_context / c->low_freq_factor)
        return (float)((double)frequency / c->factor);
    double smooth = (c->original_context / wavelength - c->low_freq_factor) /
                    (c->high_freq_factor - c->low_freq_factor);
    return (float)((1 - smooth) * (double)frequency / c->factor + smooth * (double)frequency);
}

/* YaRN: the pair whose frequency makes `rotations` turns in the original context. */
static double yarn_pair(const oct_rope_config *c, double rotations) {
    return (double)c->dims * log(c->original_context / (rotations * 2 * PI)) / (2 * log(c->theta));
}

static float yarn_frequency(const oct_rope_config *c, int64_t i, float frequency) {
    double low = yarn_pair(c, c->beta_fast), high = yarn_pair(c, c->beta_slow);
    low = fmax(c->untruncated ? low : floor(low), 0);
    high = fmin(c->untruncated ? high : ceil(high), (double)c->dims - 1);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return (float)((double)frequency / c->factor * ramp + (double)frequency * (1 - ramp));
}

/* DYNAMIC: a longer sequence turns slower. */
static double base_of(const oct_rope_config *c, int64_t n_positions) {
    if (c->scaling != OCT_ROPE_DYNAMIC)
        return c->theta;
    double length = fmax((double)n_positions, c->original_context);
    double stretch = c->factor * length / c->original_context - (c->factor - 1);
    return c->theta * pow(stretch, (double)c->dims / (double)(c->dims - 2));
}

static float scaled_frequency(const oct_rope_config *c, int64_t n_positions, int64_t i) {
    float exponent = (float)(2 * i) / (float)c->dims;
    float frequency = 1.0f / (float)pow(base_of(c, n_positions), (double)exponent);
    switch (c->scaling) {
    case OCT_ROPE_LLAMA3:
        return llama3_frequency(c, frequency);
    case OCT_ROPE_YARN:
        return yarn_frequency(c, i, frequency);
    case OCT_ROPE_LINEAR:
        return frequency / (float)c->factor;
    case OCT_ROPE_DYNAMIC: /* in the base */
    case OCT_ROPE_UNSCALED:
        break;
    }
    return frequency;
}

static void fill_pair(oct_rope_table *table, int64_t pair, float frequency, float factor) {
    bool interleaved = table->pairs == OCT_ROPE_INTERLEAVED;
    int64_t first = interleaved ? 2 * pair : pair;
    int64_t second = interleaved ? first + 1 : pair + table->dims / 2;
    for (int64_t p = 0; p < table->n_positions; p++) {
        double angle = (double)((float)p * frequency);
        float *cosine = table->cosine + p * table->dims, *sine = table->sine + p * table->dims;
        cosine[first] = cosine[second] = (float)cos(angle) * factor;
        sine[second] = (float)sin(angle) * factor;
        sine[first] = -sine[second];
    }
}

oct_status oct_rope_table_create(const oct_rope_config *config, int64_t n_positions,
                                 oct_rope_table **out) {
    int64_t n;
    if (!config_is_valid(config) || n_positions < 0 || !oct_mul_i64(n_positions, config->dims, &n))
        return OCT_INVALID;
    oct_rope_table *table = oct_calloc_array(1, sizeof *table);
    if (!table)
        return OCT_NO_MEMORY;
    table->dims = config->dims;
    table->n_positions = n_positions;
    table->pairs = config->pairs;
    table->cosine = oct_malloc_array((size_t)n, sizeof(float));
    table->sine = oct_malloc_array((size_t)n, sizeof(float));
    if (!table->cosine || !table->sine) {
        oct_rope_table_destroy(table);
        return OCT_NO_MEMORY;
    }
    float factor = config->attention_factor > 0 ? (float)config->attention_factor : 1.0f;
    for (int64_t i = 0; i < config->dims / 2; i++)
        fill_pair(table, i, scaled_frequency(config, n_positions, i), factor);
    *out = table;
    return OCT_OK;
}

void oct_rope_table_destroy(oct_rope_table *table) {
    if (!table)
        return;
    oct_free(table->cosine);
    oct_free(table->sine);
    oct_free(table);
}

typedef struct rope_run {
    const oct_elementwise_kernels *kernels;
    const oct_rope_table *table;
    oct_target x;
    int64_t T, S, position, n_heads, head_dim, first, task_rows;
    float sign;
} rope_run;

static void rope_task(void *context, int64_t task, int thread) {
    (void)thread;
    const rope_run *run = context;
    const oct_rope_table *table = run->table;
    int64_t begin = task * run->task_rows;
    int64_t end = begin + oct_op_task_length(task, run->task_rows, run->T);
    for (int64_t t = begin; t < end; t++) {
        int64_t row = (run->position + t % run->S) * table->dims;
        for (int64_t h = 0; h < run->n_heads; h++) {
            int64_t at = (t * run->n_heads + h) * run->head_dim + run->first;
            run->kernels->rope(oct_target_at(run->x, at), table->cosine + row, table->sine + row,
                               run->sign, table->pairs, table->dims);
        }
    }
}

oct_status oct_rope_apply(const oct_rope_table *table, oct_tensor *x, int64_t S, int64_t position,
                          int64_t head_dim, int64_t first, oct_rope_turn turn) {
    int64_t T = oct_tensor_rows(x), width = oct_tensor_cols(x);
    bool rows_fit = S > 0 && T % S == 0 && position >= 0 && position <= table->n_positions - S;
    bool head_fits =
        head_dim > 0 && width % head_dim == 0 && first >= 0 && first <= head_dim - table->dims;
    if (!oct_op_is_dense(x) || !rows_fit || !head_fits)
        return OCT_INVALID;
    rope_run run = {.kernels = oct_op_kernels(),
                    .table = table,
                    .x = oct_op_target(x),
                    .T = T,
                    .S = S,
                    .position = position,
                    .n_heads = width / head_dim,
                    .head_dim = head_dim,
                    .first = first,
                    .task_rows = oct_op_task_rows(width),
                    .sign = turn == OCT_ROPE_FORWARD ? 1.0f : -1.0f};
    oct_parallel(oct_ceil_div(T, run.task_rows), rope_task, &run);
    return OCT_OK;
}
