/* MX by the kernels: see mx_pieces.h. */
#include "api/mx_pieces.h"

#include "api/describe.h"
#include "base/checked.h"
#include "base/thread.h"
#include "format/fp8.h"
#include "kernel/select.h"

enum { ROWS = 64, COLS = 256, SCALES = ROWS * COLS / OCT_MX_BLOCK };

typedef struct job {
    const oct_quantize_kernels *kernels;
    const oct_quantizer *q;
    const oct_matrix *x;
    const oct_coded *out;
    bool direct_source; /* the kernels can read x as it is */
    bool direct_codes;  /* and write codes and scales as they are */
} job;

typedef struct buffers {
    float f32[ROWS * COLS];
    uint16_t bf16[ROWS * COLS];
    uint8_t codes[ROWS * COLS], scales[SCALES];
} buffers;

/* Rows and columns of x that are quantized at once. */
typedef struct piece {
    int64_t row, col, rows, cols;
} piece;

static bool is_block(const oct_quantizer *q, int64_t rows, int64_t cols) {
    return q->block_rows == rows && q->block_cols == cols;
}

static bool is_by_rows(const oct_quantizer *q) {
    return is_block(q, 1, OCT_MX_BLOCK);
}

static bool is_by_columns(const oct_quantizer *q) {
    return is_block(q, OCT_MX_BLOCK, 1);
}

bool oct_mx_pieces_serve(const oct_quantizer *q) {
    const bool own = q->rounding == OCT_ROUND_OWN || q->rounding == OCT_ROUND_EVEN;
    return q->scale_dtype == OCT_E8M0 && q->quirks == 0 && own &&
           (is_by_rows(q) || is_by_columns(q) || is_block(q, OCT_MX_BLOCK, OCT_MX_BLOCK));
}

static void copy_f32(const oct_matrix *x, const piece *p, float *to) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->cols; c++)
            to[r * COLS + c] = oct_matrix_load(x, p->row + r, p->col + c);
}

static void copy_bits(const oct_matrix *x, const piece *p, uint16_t *to) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->cols; c++)
            to[r * COLS + c] =
                ((const uint16_t *)
                     x->data)[(p->row + r) * x->row_stride + (p->col + c) * x->col_stride];
}

/* Rows of fp32 (in x, or copied) rounded to bf16. */
static void round_rows(const job *j, const piece *p, buffers *b) {
    const bool in_place = j->x->dtype == OCT_F32 && j->x->col_stride == 1;
    if (!in_place)
        copy_f32(j->x, p, b->f32);
    for (int64_t r = 0; r < p->rows; r++) {
        const float *row =
            in_place ? (const float *)j->x->data + (p->row + r) * j->x->row_stride + p->col
                     : b->f32 + r * COLS;
        j->kernels->f32_to_bf16(row, p->cols, b->bf16 + r * COLS);
    }
}

/* The piece as the kernels can read it. */
static oct_matrix_view source_of(const job *j, const piece *p, buffers *b) {
    const oct_matrix *x = j->x;
    if (j->direct_source) {
        const size_t at = (size_t)(p->row * x->row_stride + p->col) * oct_dtype_bytes(x->dtype);
        return (oct_matrix_view){(const char *)x->data + at, x->dtype, p->rows, p->cols,
                                 x->row_stride};
    }
    if (x->dtype == OCT_BF16) {
        copy_bits(x, p, b->bf16);
    } else if (j->q->source == OCT_BF16) {
        round_rows(j, p, b);
    } else {
        copy_f32(x, p, b->f32);
        return (oct_matrix_view){b->f32, OCT_F32, p->rows, p->cols, COLS};
    }
    return (oct_matrix_view){b->bf16, OCT_BF16, p->rows, p->cols, COLS};
}

static void run_kernel(const job *j, const oct_matrix_view *x, const oct_mx_output *out) {
    if (is_by_rows(j->q))
        j->kernels->mx_rows(x, j->q->format, j->q->scale_mode, out);
    else if (is_by_columns(j->q))
        j->kernels->mx_cols(x, j->q->format, j->q->scale_mode, out);
    else
        j->kernels->mx_tiles(x, j->q->format, j->q->scale_mode, out);
}

static void copy_codes(const oct_coded *out, const piece *p, const uint8_t *codes, int64_t down,
                       int64_t across) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->cols; c++)
            ((uint8_t *)out->codes)[oct_code_index(out, p->row + r, p->col + c)] =
                codes[r * down + c * across];
}

static void copy_scales(const oct_coded *out, const piece *p, const uint8_t *scales, int64_t down,
                        int64_t across) {
    for (int64_t r = 0; r < oct_ceil_div(p->rows, out->block_rows); r++)
        for (int64_t c = 0; c < oct_ceil_div(p->cols, out->block_cols); c++)
            ((uint8_t *)out->scales)[(p->row / out->block_rows + r) * out->scale_row_stride +
                                     (p->col / out->block_cols + c) * out->scale_col_stride] =
                scales[r * down + c * across];
}

/* By columns the kernels write what belongs to a column as a row. */
static void through_buffers(const job *j, const piece *p, buffers *b) {
    const oct_matrix_view x = source_of(j, p, b);
    if (is_by_columns(j->q)) {
        const oct_mx_output out = {b->codes, ROWS, b->scales, ROWS / OCT_MX_BLOCK};
        run_kernel(j, &x, &out);
        copy_codes(j->out, p, b->codes, 1, ROWS);
        copy_scales(j->out, p, b->scales, 1, ROWS / OCT_MX_BLOCK);
        return;
    }
    const oct_mx_output out = {b->codes, COLS, b->scales, COLS / OCT_MX_BLOCK};
    run_kernel(j, &x, &out);
    copy_codes(j->out, p, b->codes, COLS, 1);
    copy_scales(j->out, p, b->scales, COLS / OCT_MX_BLOCK, 1);
}

static void in_place(const job *j, const piece *p, buffers *b) {
    const oct_matrix_view x = source_of(j, p, b);
    const oct_coded *q = j->out;
    const int64_t scale =
        p->row / q->block_rows * q->scale_row_stride + p->col / q->block_cols * q->scale_col_stride;
    const bool columns = is_by_columns(j->q);
    const oct_mx_output out = {(uint8_t *)q->codes + oct_code_index(q, p->row, p->col),
                               columns ? q->col_stride : q->row_stride,
                               (uint8_t *)q->scales + scale,
                               columns ? q->scale_col_stride : q->scale_row_stride};
    run_kernel(j, &x, &out);
}

static void task(void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t row = task * ROWS,
                  width = j->direct_source && j->direct_codes ? j->x->cols : COLS;
    buffers b;
    (void)thread;
    for (int64_t col = 0; col < j->x->cols; col += width) {
        const piece p = {row, col, oct_min_i64(ROWS, j->x->rows - row),
                         oct_min_i64(width, j->x->cols - col)};
        if (j->direct_codes)
            in_place(j, &p, &b);
        else
            through_buffers(j, &p, &b);
    }
}

static bool writes_codes_directly(const oct_quantizer *q, const oct_coded *out) {
    if (is_by_columns(q))
        return out->row_stride == 1 && out->scale_row_stride == 1 && out->col_stride > 0 &&
               out->scale_col_stride > 0;
    return out->col_stride == 1 && out->scale_col_stride == 1 && out->row_stride > 0 &&
           out->scale_row_stride > 0;
}

void oct_mx_pieces_quantize(const oct_quantizer *q, const oct_matrix *x, const oct_coded *out) {
    job j = {oct_kernels_current()->quantize, q, x, out, false, writes_codes_directly(q, out)};
    const bool rounds = q->source == OCT_BF16 && x->dtype != OCT_BF16;
    j.direct_source = x->col_stride == 1 && x->row_stride >= 0 && x->dtype != OCT_F16 && !rounds;
    oct_parallel(oct_ceil_div(x->rows, ROWS), task, &j);
}
