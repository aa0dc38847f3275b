/* How a pair of panels' sums, 32 columns in a tile of their own, come to a block's accumulators or
 * C (oct_gemm_block). */
#ifndef OCT_KERNEL_GEMM_AVX512_WRITE_SUMS_H
#define OCT_KERNEL_GEMM_AVX512_WRITE_SUMS_H

#include "kernel/gemm/kernels.h"
#include "kernel/vectors_avx512.h"

enum { OCT_SUMS_COLUMNS = 32 };

/* A pair's sums, where they go, and what is added to them (NULL: nothing). */
typedef struct oct_output {
    const float *sums; /* 64-byte aligned rows of OCT_SUMS_COLUMNS */
    const float *first, *second;
    int64_t ld_first, ld_second;
    float *to;
    int64_t ld_to, n_rows, n_cols;
    int64_t row; /* the next one to be written */
    bool streams;
} oct_output;

/* Of the pair at row i and column j of a block, whose panels of A have panel_rows rows. */
static inline oct_output oct_output_of(const oct_gemm_block *block, int64_t i, int64_t j,
                                       int64_t panel_rows, const float *sums) {
    const int64_t NR = OCT_SUMS_COLUMNS;
    float *acc = block->acc + i * block->ld_acc + j;
    oct_output o = {.sums = sums,
                    .first = block->accumulate == OCT_ADD_TO_OUTPUT ? acc : NULL,
                    .ld_first = block->ld_acc,
                    .to = acc,
                    .ld_to = block->ld_acc,
                    .n_rows = block->n_rows - i < panel_rows ? block->n_rows - i : panel_rows,
                    .n_cols = block->n_cols - j < NR ? block->n_cols - j : NR};
    if (block->c) {
        o.to = block->c + i * block->ld_c + j;
        o.ld_to = o.ld_second = block->ld_c;
        o.second = block->c_accumulate == OCT_ADD_TO_OUTPUT ? o.to : NULL;
        o.streams = block->output == OCT_OUTPUT_STREAMED && !o.first && !o.second &&
                    o.n_cols == NR &&
                    ((uintptr_t)o.to | (uintptr_t)o.ld_to * sizeof(float)) % 64 == 0;
    }
    return o;
}

/* Fetched while the pair is multiplied. */
static inline void oct_output_prefetch(const oct_output *o) {
    for (int64_t i = 0; i < o->n_rows && !o->streams; i++) {
        __builtin_prefetch(o->to + i * o->ld_to, 1, 2);
        __builtin_prefetch(o->to + i * o->ld_to + 16, 1, 2);
    }
}

/* The next `n` rows, or as many as are left. */
static inline void oct_output_write(oct_output *o, int64_t n) {
    const int64_t end = n < o->n_rows - o->row ? o->row + n : o->n_rows;
    const __mmask16 mask[2] = {oct_lanes_below(o->n_cols), oct_lanes_below(o->n_cols - 16)};
    for (; o->row < end; o->row++) {
        float *to = o->to + o->row * o->ld_to;
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512 x = _mm512_load_ps(o->sums + o->row * OCT_SUMS_COLUMNS + 16 * j);
            if (o->streams) {
                _mm512_stream_ps(to + 16 * j, x);
                continue;
            }
            if (o->first)
                x = _mm512_add_ps(
                    _mm512_maskz_loadu_ps(mask[j], o->first + o->row * o->ld_first + 16 * j), x);
            if (o->second)
                x = _mm512_add_ps(
                    _mm512_maskz_loadu_ps(mask[j], o->second + o->row * o->ld_second + 16 * j), x);
            _mm512_mask_storeu_ps(to + 16 * j, mask[j], x);
        }
    }
}

#endif
