/* What the MX quantizers of rows, tiles and columns share: constants of a call, parts of matrices,
 * and stores that may go past the caches. */
#ifndef OCT_KERNEL_QUANTIZE_AVX512_MX_BLOCKS_H
#define OCT_KERNEL_QUANTIZE_AVX512_MX_BLOCKS_H

#include "kernel/quantize/avx512/odd_bf16.h"
#include "kernel/quantize.h"

/* Constants of a call. */
typedef struct oct_mx_rules {
    oct_mx_rule rule;
    oct_scale_mode mode;
} oct_mx_rules;

OCT_INLINE oct_mx_rules oct_mx_rules_make(oct_dtype format, oct_scale_mode mode) {
    return (oct_mx_rules){oct_mx_rule_make(format, mode), mode};
}

/* Whether whole cache lines of codes go past the caches: they'd be evicted before they are used,
 * and a store that misses reads the line first. */
OCT_INLINE bool oct_mx_streams(const oct_matrix_view *x, const oct_mx_output *out) {
    return x->rows * x->cols >= 2 << 20 &&
           ((uintptr_t)out->codes | (uintptr_t)out->ld_codes) % 64 == 0;
}

OCT_INLINE void oct_store_line(uint8_t *to, __m512i line, bool stream) {
    if (stream)
        _mm512_stream_si512((__m512i *)to, line);
    else
        _mm512_storeu_si512(to, line);
}

/* Asks L2 for the lines of some bytes. Few at a time, between arithmetic: a burst fills the buffers
 * that loads wait for. */
OCT_INLINE void oct_prefetch(const char *from, int64_t n_bytes) {
    for (int64_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T1);
}

/* The same for L1, of what is read OCT_AHEAD bytes later: best where rows are read from end to end.
 */
enum { OCT_AHEAD = 2048 };
OCT_INLINE void oct_prefetch_l1(const char *from, int64_t n_bytes) {
    for (int64_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T0);
}

OCT_INLINE const void *oct_element(const oct_matrix_view *x, oct_dtype dtype, int64_t row,
                                   int64_t col) {
    return (const char *)x->data + (row * x->ld + col) * (dtype == OCT_F32 ? 4 : 2);
}

OCT_INLINE oct_matrix_view oct_part(const oct_matrix_view *x, oct_dtype dtype, int64_t row,
                                    int64_t n_rows, int64_t col, int64_t n_cols) {
    return (oct_matrix_view){oct_element(x, dtype, row, col), dtype, n_rows, n_cols, x->ld};
}

#endif
