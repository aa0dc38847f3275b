/* Special rows of bf16 panels, in fp32 straight from their operands. */
#include <string.h>

#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/gemm/bf16/panel_bf16.h"
#include "kernel/vectors_avx512.h"

void oct_bf16_multiply_operands(const oct_operand *a, int64_t a_row, int64_t a_rows,
                                const oct_operand *b, int64_t b_row, int64_t b_rows, int64_t k,
                                int64_t kc, oct_bf16_sums *s) {
    enum { R = OCT_BF16_ROWS, AT_ONCE = 64 };
    alignas(64) float x[AT_ONCE * R], y[AT_ONCE * R];
    memset(s, 0, sizeof *s);
    for (int64_t first = 0; first < kc; first += AT_ONCE) {
        int64_t n = kc - first < AT_ONCE ? kc - first : AT_ONCE;
        oct_gemm_pack_32_avx512(&(oct_gemm_source){a, a_row, a_rows, k + first, n}, x);
        oct_gemm_pack_32_avx512(&(oct_gemm_source){b, b_row, b_rows, k + first, n}, y);
        for (int i = 0; i < R; i++) {
            __m512 s0 = _mm512_load_ps(s->x[i]), s1 = _mm512_load_ps(s->x[i] + 16);
            for (int64_t j = 0; j < n; j++) {
                __m512 v = _mm512_set1_ps(x[j * R + i]);
                s0 = _mm512_fmadd_ps(v, _mm512_load_ps(y + j * R), s0);
                s1 = _mm512_fmadd_ps(v, _mm512_load_ps(y + j * R + 16), s1);
            }
            _mm512_store_ps(s->x[i], s0);
            _mm512_store_ps(s->x[i] + 16, s1);
        }
    }
}
