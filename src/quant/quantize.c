/* Quantizing matrices for the products they enter: see quantize.h.
 *
 * A matrix is a list of parts (groups of rows; one, if it has no groups). Each part is cut into
 * blocks of TASK_ROWS source rows (a multiple of the MX block), so that no block of 32 is ever
 * split, in either direction, nor straddles parts, and results don't depend on the number of
 * threads. */
#include "quant/quantize.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/select.h"
#include "quant/equal_parts.h"
#include "quant/matrix_view.h"

#define TASK_ROWS 64
#define STRIP_COLS 32  /* per-channel along dimension 0: columns that one task transposes */
#define ROUND_COLS 256 /* columns that are rounded at a time: blocks of them stay in L1 or L2 */

typedef struct part {
    oct_matrix_view x;
    oct_qmatrix *along[2]; /* NULL: not wanted */
    float scale;           /* per tensor */
    int64_t first_task;    /* of blocks of rows */
} part;

typedef struct job {
    const oct_quantize_kernels *kernels;
    oct_dtype format;
    oct_scale_mode mode[2]; /* for contraction over 0 and 1 */
    float target;
    bool rounds;    /* fp32 elements are rounded to bf16 first */
    bool one_scale; /* of all parts together */
    part *parts;
    int64_t n_parts, n_tasks;
    int64_t cols, most_rows;
    float *amax;          /* one a task */
    const float *columns; /* amaxes of columns given from outside; NULL: none */
    float *strip;         /* a strip of STRIP_COLS columns a thread, transposed to fp32 */
} job;

static bool rounds_source(const oct_recipe *recipe, oct_role role, oct_dtype source) {
    return role == OCT_ROLE_WEIGHT && recipe->weight_source == OCT_BF16 && source == OCT_F32;
}

/* A block of rows: whose, which, and the rows themselves. */
typedef struct block {
    const part *part;
    int64_t first; /* row of the part */
    int64_t col;   /* where `rows` begins; above 0 in a piece alone */
    oct_matrix_view rows;
} block;

static block block_of(const job *j, int64_t task) {
    int64_t low = 0, high = j->n_parts - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (j->parts[middle].first_task <= task)
            low = middle;
        else
            high = middle - 1;
    }
    const part *p = &j->parts[low];
    int64_t first = (task - p->first_task) * TASK_ROWS;
    return (block){p, first, 0, oct_matrix_rows(&p->x, first, TASK_ROWS)};
}

static oct_mx_output output_by_rows(const oct_qmatrix *q, int64_t first_row) {
    return (oct_mx_output){q->codes + first_row * q->cols, q->cols,
                           (uint8_t *)q->scales + first_row / q->block_rows * q->ld_scales,
                           q->ld_scales};
}

/* The transposed copy: source rows are its columns. */
static oct_mx_output output_by_cols(const oct_qmatrix *q, int64_t first_row) {
    return (oct_mx_output){q->codes + first_row, q->cols,
                           (uint8_t *)q->scales + first_row / OCT_MX_BLOCK, q->ld_scales};
}

static oct_mx_output output_at(oct_mx_output out, int64_t codes, int64_t scales) {
    out.codes += codes;
    out.scales += scales;
    return out;
}

/* The rows of a block as the kernels shall see them. `buffer` holds a piece of them in bf16. */
static oct_matrix_view rounded(const oct_quantize_kernels *kernels, const oct_matrix_view *rows,
                               int64_t first, int64_t n, uint16_t *buffer) {
    for (int64_t r = 0; r < rows->rows; r++)
        kernels->f32_to_bf16((const float *)rows->data + r * rows->ld + first, n,
                             buffer + r * ROUND_COLS);
    return (oct_matrix_view){buffer, OCT_BF16, rows->rows, n, ROUND_COLS};
}

typedef void (*block_task)(const job *j, const block *b);

/* Runs `task` on the block; where elements are rounded first, on one piece of its columns after the
 * other, as if it were a block of a narrower matrix. */
static void run_block(const job *j, block b, block_task task) {
    uint16_t buffer[TASK_ROWS * ROUND_COLS];
    const oct_matrix_view whole = b.rows;
    if (!j->rounds) {
        task(j, &b);
        return;
    }
    for (b.col = 0; b.col < whole.cols; b.col += ROUND_COLS) {
        int64_t n = oct_min_i64(ROUND_COLS, whole.cols - b.col);
        b.rows = rounded(j->kernels, &whole, b.col, n, buffer);
        task(j, &b);
    }
}

static void mx_block(const job *j, const block *b) {
    oct_qmatrix *const *along = b->part->along;
    oct_mx_output by_rows, by_cols;
    if (along[1])
        by_rows = output_at(output_by_rows(along[1], b->first), b->col, b->col / OCT_MX_BLOCK);
    if (along[0])
        by_cols = output_at(output_by_cols(along[0], b->first), b->col * along[0]->cols,
                            b->col * along[0]->ld_scales);
    if (along[0] && along[1] && j->mode[0] == j->mode[1]) {
        j->kernels->mx_both(&b->rows, j->format, j->mode[0], &by_rows, &by_cols);
        return;
    }
    if (along[1])
        j->kernels->mx_rows(&b->rows, j->format, j->mode[1], &by_rows);
    if (along[0])
        j->kernels->mx_cols(&b->rows, j->format, j->mode[0], &by_cols);
}

static void mx_task(void *context, int64_t task, int thread) {
    (void)thread;
    run_block(context, block_of(context, task), mx_block);
}

static void mx_tiles_block(const job *j, const block *b) {
    oct_mx_output out =
        output_at(output_by_rows(b->part->along[1], b->first), b->col, b->col / OCT_MX_BLOCK);
    j->kernels->mx_tiles(&b->rows, j->format, j->mode[1], &out);
}

static void mx_tiles_task(void *context, int64_t task, int thread) {
    (void)thread;
    run_block(context, block_of(context, task), mx_tiles_block);
}

static float seen(const job *j, float x) {
    return j->rounds ? oct_bf16_decode(oct_bf16_encode(x)) : x;
}

/* Rounding keeps order, so the largest of rounded magnitudes is the largest one, rounded. */
static float amax_of(const job *j, const oct_matrix_view *rows) {
    return seen(j, j->kernels->amax(rows));
}

static void amax_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    block b = block_of(j, task);
    j->amax[task] = amax_of(j, &b.rows);
}

static void scaled_block(const job *j, const block *b) {
    oct_qmatrix *q = b->part->along[1];
    j->kernels->scaled(&b->rows, j->format, b->part->scale, q->codes + b->first * q->cols + b->col,
                       q->cols);
}

static void scaled_task(void *context, int64_t task, int thread) {
    (void)thread;
    run_block(context, block_of(context, task), scaled_block);
}

/* Quantizes each row of `rows`, columns col.. of q, by the scale that q has for it, into rows
 * first.. */
static void encode_rows(const job *j, const oct_matrix_view *rows, oct_qmatrix *q, int64_t first,
                        int64_t col) {
    for (int64_t r = 0; r < rows->rows; r++) {
        oct_matrix_view row = oct_matrix_rows(rows, r, 1);
        j->kernels->scaled(&row, j->format, ((const float *)q->scales)[first + r],
                           q->codes + (first + r) * q->cols + col, q->cols);
    }
}

/* Gives each row of `rows` a scale of its own in rows first.. of q. `amaxes`: of all rows of q, or
 * NULL. */
static void scale_rows(const job *j, const oct_matrix_view *rows, const float *amaxes,
                       oct_qmatrix *q, int64_t first) {
    for (int64_t r = 0; r < rows->rows; r++) {
        oct_matrix_view row = oct_matrix_rows(rows, r, 1);
        float amax = amaxes ? amaxes[first + r] : amax_of(j, &row);
        ((float *)q->scales)[first + r] = oct_scale_from_amax(amax, j->target);
    }
}

static void channel_block(const job *j, const block *b) {
    encode_rows(j, &b->rows, b->part->along[1], b->first, b->col);
}

static void channel_rows_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    block b = block_of(j, task);
    scale_rows(j, &b.rows, NULL, b.part->along[1], b.first);
    run_block(j, b, channel_block);
}

static int64_t n_strips(const job *j) {
    return oct_ceil_div(j->cols, STRIP_COLS);
}

/* A strip of columns of one part. */
static void channel_cols_task(void *context, int64_t task, int thread) {
    const job *j = context;
    const part *p = &j->parts[task / n_strips(j)];
    int64_t first = task % n_strips(j) * STRIP_COLS, n_rows = p->x.rows;
    int64_t n = oct_min_i64(STRIP_COLS, j->cols - first);
    float *strip = j->strip + (int64_t)thread * STRIP_COLS * j->most_rows;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n; c++)
            strip[c * n_rows + r] = seen(j, oct_matrix_element(&p->x, r, first + c));
    oct_matrix_view rows = {strip, OCT_F32, n, n_rows, n_rows};
    scale_rows(j, &rows, j->columns, p->along[0], first);
    encode_rows(j, &rows, p->along[0], first, 0);
}

/* The amax of one part from those of its blocks. */
static float part_amax(const job *j, const part *p) {
    int64_t n_tasks = oct_ceil_div(p->x.rows, TASK_ROWS);
    float amax = 0.0f;
    for (int64_t i = 0; i < n_tasks; i++)
        amax = fmaxf(amax, j->amax[p->first_task + i]); /* never NaN: the kernel gives Inf */
    return amax;
}

static float largest_amax(const job *j) {
    float largest = 0.0f;
    for (int64_t i = 0; i < j->n_parts; i++)
        largest = fmaxf(largest, part_amax(j, &j->parts[i]));
    return largest;
}

/* An empty part keeps scale 1, whatever is given. */
static void settle_scale(const job *j, part *p, float amax) {
    p->scale = oct_scale_from_amax(p->x.rows > 0 ? amax : 0.0f, j->target);
    *(float *)p->along[1]->scales = p->scale;
}

static oct_status quantize_per_tensor(job *j, oct_arena *arena, oct_amax *amax) {
    j->amax = oct_arena_alloc_array(arena, (size_t)j->n_tasks, sizeof(float));
    if (!j->amax)
        return OCT_NO_MEMORY;
    oct_parallel(j->n_tasks, amax_task, j);
    float largest = largest_amax(j);
    bool given = amax && amax->use >= 0;
    for (int64_t i = 0; i < j->n_parts; i++)
        settle_scale(j, &j->parts[i],
                     given          ? amax->use
                     : j->one_scale ? largest
                                    : part_amax(j, &j->parts[i]));
    if (amax)
        amax->seen = largest;
    oct_parallel(j->n_tasks, scaled_task, j);
    return OCT_OK;
}

static oct_status quantize_per_channel(job *j, oct_arena *arena, oct_along which) {
    if (which & OCT_ALONG_1)
        oct_parallel(j->n_tasks, channel_rows_task, j);
    if (!(which & OCT_ALONG_0))
        return OCT_OK;
    j->strip = oct_arena_alloc_array(
        arena, (size_t)(STRIP_COLS * j->most_rows) * (size_t)oct_threads(), sizeof(float));
    if (!j->strip)
        return OCT_NO_MEMORY;
    oct_parallel(j->n_parts * n_strips(j), channel_cols_task, j);
    return OCT_OK;
}

static void add_part(job *j, const oct_matrix_view *x, oct_quantized *out) {
    part p = {.x = *x, .first_task = j->n_tasks};
    for (int dim = 0; dim < 2; dim++)
        p.along[dim] = out->along[dim].codes ? &out->along[dim] : NULL;
    j->n_tasks += oct_ceil_div(x->rows, TASK_ROWS);
    j->most_rows = oct_max_i64(j->most_rows, x->rows);
    j->parts[j->n_parts++] = p;
}

oct_status oct_quantize_groups(const oct_matrix_view *x, const int64_t *offsets, int64_t n_groups,
                               const oct_recipe *recipe, oct_role role, oct_along which,
                               oct_arena *const arenas[2], oct_amax *amax, oct_quantized *out) {
    job j = {
        .kernels = oct_kernels_current()->quantize,
        .format = recipe->format[role],
        .mode = {oct_recipe_scale_mode(recipe, role, 0), oct_recipe_scale_mode(recipe, role, 1)},
        .target = recipe->target[role],
        .rounds = rounds_source(recipe, role, x->dtype),
        .one_scale = recipe->groups == OCT_GROUPS_ONE,
        .columns = amax ? amax->columns : NULL,
        .cols = x->cols};
    oct_status status = OCT_OK;
    part single;
    if (recipe->groups == OCT_GROUPS_EQUAL && recipe->granularity == OCT_PER_TENSOR && n_groups > 1)
        return oct_quantize_equal_parts(x, offsets, n_groups, recipe, role, arenas, amax, out);
    for (int64_t g = 0; g < n_groups && !status; g++)
        status = oct_quantized_allocate(recipe, role, which, offsets[g + 1] - offsets[g], x->cols,
                                        arenas, &out[g]);
    if (status)
        return status;
    oct_arena_mark mark = oct_arena_get_mark(arenas[1]);
    j.parts = &single;
    if (n_groups != 1)
        j.parts = oct_arena_alloc_array(arenas[1], (size_t)n_groups, sizeof *j.parts);
    if (!j.parts)
        return OCT_NO_MEMORY;
    for (int64_t g = 0; g < n_groups; g++) {
        oct_matrix_view group = oct_matrix_rows(x, offsets[g], offsets[g + 1] - offsets[g]);
        add_part(&j, &group, &out[g]);
    }
    if (recipe->granularity == OCT_PER_TENSOR)
        status = quantize_per_tensor(&j, arenas[1], amax);
    else if (recipe->granularity == OCT_PER_CHANNEL)
        status = quantize_per_channel(&j, arenas[1], which);
    else
        oct_parallel(j.n_tasks, oct_recipe_shares_copies(recipe, role) ? mx_tiles_task : mx_task,
                     &j);
    oct_arena_release(arenas[1], mark);
    return status;
}

oct_status oct_quantize(const oct_matrix_view *x, const oct_recipe *recipe, oct_role role,
                        oct_along which, oct_arena *const arenas[2], oct_amax *amax,
                        oct_quantized *out) {
    const int64_t offsets[2] = {0, x->rows};
    return oct_quantize_groups(x, offsets, 1, recipe, role, which, arenas, amax, out);
}
