/* `exact` products in AVX-512: fp32 panels of 14 rows of A and 32 rows of B.
 *
 * Invariant: every sum is one chain of fused multiply-adds in order of k, a lane a column of C, so
 * the bits are those of the scalar reference. */
#include "kernel/gemm/kernels.h"

#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/read_rows.h"
#include "kernel/bf16_of_codes.h"

enum { MR = 14, NR = 32 };

/* --- packing --- */

/* `n` fp32 lanes of one k to a panel; whole registers where the panel's row is as wide. */
OCT_INLINE void store_lanes(float *to, __m512 x, int64_t width) {
    if (width == NR)
        _mm512_store_ps(to, x);
    else
        _mm512_mask_storeu_ps(to, oct_lanes_below(width), x);
}

/* Sixteen rows (those of `lanes`; the others are zeros) of a high-precision operand. */
OCT_INLINE void pack_wide(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k, int64_t kc,
                          float *panel, int64_t width) {
    const float *f32 = x->data;
    const uint16_t *bf16 = x->data;
    if (x->layout == OCT_K_STRIDED) {
        for (int64_t i = 0; i < kc; i++) {
            int64_t at = (k + i) * x->ld + row;
            __m512 v = x->dtype == OCT_F32
                           ? _mm512_maskz_loadu_ps(lanes, f32 + at)
                           : oct_bf16_lanes(_mm256_maskz_loadu_epi16(lanes, bf16 + at));
            store_lanes(panel + i * width, v, width);
        }
        return;
    }
    for (int64_t i = 0; i < kc; i += 16) {
        __m512i v[16];
        __mmask16 valid = oct_lanes_below(kc - i);
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) {
            bool used = lanes >> r & 1;
            int64_t at = (used ? row + r : row) * x->ld + k + i;
            __mmask16 mask = used ? valid : 0;
            if (x->dtype == OCT_F32)
                v[r] = _mm512_maskz_loadu_epi32(mask, f32 + at);
            else
                v[r] =
                    _mm512_castps_si512(oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, bf16 + at)));
        }
        oct_transpose_16x16(v);
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++)
            if (i + j < kc)
                store_lanes(panel + (i + j) * width, _mm512_castsi512_ps(v[j]), width);
    }
}

/* The same of an 8-bit operand. */
OCT_INLINE void pack_codes(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                           int64_t kc, float *panel, int64_t width) {
    const uint8_t *codes = x->data;
    oct_code_table table = oct_code_table_load(oct_bf16_of_codes(x->dtype), x->dtype);
    if (x->layout == OCT_K_STRIDED) {
        for (int64_t i = 0; i < kc; i += OCT_MX_BLOCK) {
            __m512 scale = oct_lane_scales(x, row, lanes, k + i);
            for (int64_t j = i; j < kc && j < i + OCT_MX_BLOCK; j++) {
                __m128i c = _mm_maskz_loadu_epi8(lanes, codes + (k + j) * x->ld + row);
                __m512 v = oct_decode_lanes(&table, _mm512_cvtepu8_epi32(c));
                store_lanes(panel + j * width, _mm512_mul_ps(v, scale), width);
            }
        }
        return;
    }
    for (int64_t i = 0; i < kc; i += 64) {
        __m512i v[16];
        oct_load_16_rows(x, row, lanes, k + i, kc - i, v);
        oct_transpose_16x16(v); /* v[j] lane r: the codes of k = 4 j .. 4 j + 3 */
        __m512 scale[2] = {oct_lane_scales(x, row, lanes, k + i), _mm512_setzero_ps()};
        if (i + OCT_MX_BLOCK < kc)
            scale[1] = oct_lane_scales(x, row, lanes, k + i + OCT_MX_BLOCK);
        const __m512i low = _mm512_set1_epi32(0xff);
        for (int j = 0; j < 16 && i + 4 * j < kc; j++) {
            float *to = panel + (i + 4 * j) * width;
            __m512i c = v[j];
            for (int b = 0; b < 4 && i + 4 * j + b < kc; b++) {
                __m512 y = oct_decode_lanes(&table, _mm512_and_si512(c, low));
                store_lanes(to + b * width, _mm512_mul_ps(y, scale[j / 8]), width);
                c = _mm512_srli_epi32(c, 8);
            }
        }
    }
}

OCT_INLINE void pack(const oct_gemm_source *from, float *panel, int64_t width) {
    const oct_operand *x = from->operand;
    for (int64_t r = 0; r < width; r += 16) {
        const __mmask16 lanes = oct_lanes_below(from->n_rows - r);
        /* an address inside the operand in any case */
        const int64_t row = lanes ? from->row + r : from->row;
        if (x->dtype == OCT_F32 || x->dtype == OCT_BF16)
            pack_wide(x, row, lanes, from->k, from->kc, panel + r, width);
        else
            pack_codes(x, row, lanes, from->k, from->kc, panel + r, width);
    }
}

static void pack_a(const oct_gemm_source *from, void *panel) {
    pack(from, panel, MR);
}

void oct_gemm_pack_32_avx512(const oct_gemm_source *from, void *panel) {
    pack(from, panel, NR);
}

/* --- multiplying --- */

typedef void tile_fn(const float *a, const float *b, int64_t kc, float *acc, int64_t ld_acc,
                     __mmask16 first, __mmask16 second, oct_accumulate accumulate);

/* rows x (16 * vectors) of C, both constants after inlining; `first` and `second` mask the columns
 * of the two registers. */
OCT_INLINE void tile(const float *a, const float *b, int64_t kc, float *acc, int64_t ld_acc,
                     __mmask16 first, __mmask16 second, oct_accumulate accumulate, int rows,
                     int vectors) {
    __m512 s[MR][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        s[i][0] = _mm512_setzero_ps();
        s[i][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(acc + i * ld_acc), _MM_HINT_T0);
        _mm_prefetch((const char *)(acc + i * ld_acc + 16), _MM_HINT_T0);
    }
    for (int64_t k = 0; k < kc; k++) {
        __m512 b0 = _mm512_load_ps(b), b1 = b0;
        if (vectors == 2)
            b1 = _mm512_load_ps(b + 16);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[i]);
            s[i][0] = _mm512_fmadd_ps(x, b0, s[i][0]);
            if (vectors == 2)
                s[i][1] = _mm512_fmadd_ps(x, b1, s[i][1]);
        }
        a += MR;
        b += NR;
        _mm_prefetch((const char *)(b + 16 * NR), _MM_HINT_T0);
        if (vectors == 2)
            _mm_prefetch((const char *)(b + 16 * NR + 16), _MM_HINT_T0);
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *to = acc + i * ld_acc;
        if (accumulate == OCT_ADD_TO_OUTPUT) {
            s[i][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(first, to), s[i][0]);
            if (vectors == 2)
                s[i][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(second, to + 16), s[i][1]);
        }
        _mm512_mask_storeu_ps(to, first, s[i][0]);
        if (vectors == 2)
            _mm512_mask_storeu_ps(to + 16, second, s[i][1]);
    }
}

#define TILE(rows)                                                                                 \
    static void tile_##rows##_1(const float *a, const float *b, int64_t kc, float *acc,            \
                                int64_t ld_acc, __mmask16 first, __mmask16 second,                 \
                                oct_accumulate accumulate) {                                       \
        tile(a, b, kc, acc, ld_acc, first, second, accumulate, rows, 1);                           \
    }                                                                                              \
    static void tile_##rows##_2(const float *a, const float *b, int64_t kc, float *acc,            \
                                int64_t ld_acc, __mmask16 first, __mmask16 second,                 \
                                oct_accumulate accumulate) {                                       \
        tile(a, b, kc, acc, ld_acc, first, second, accumulate, rows, 2);                           \
    }

/* clang-format takes a row of macros for a declaration and moves it at each run. */
/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7)
TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#undef TILE

#define TILES(rows) { tile_##rows##_1, tile_##rows##_2 }
static tile_fn *const tiles[MR][2] = {
    TILES(1), TILES(2), TILES(3),  TILES(4),  TILES(5),  TILES(6),  TILES(7),
    TILES(8), TILES(9), TILES(10), TILES(11), TILES(12), TILES(13), TILES(14),
};
/* clang-format on */
#undef TILES

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    tiles[n_rows - 1][n_cols > 16](a_panel, b_panel, kc, acc, ld_acc, oct_lanes_below(n_cols),
                                   oct_lanes_below(n_cols - 16), accumulate);
}

/* --- storing --- */

void oct_gemm_store_avx512(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                           void *c, oct_dtype c_dtype, int64_t ld_c, oct_accumulate accumulate,
                           const float *bias, oct_dtype sum_dtype) {
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < n_cols; j += 16) {
            __mmask16 mask = oct_lanes_below(n_cols - j);
            float *f32 = (float *)c + i * ld_c + j;
            uint16_t *bf16 = (uint16_t *)c + i * ld_c + j;
            __m512 t = _mm512_maskz_loadu_ps(mask, acc + i * ld_acc + j);
            if (sum_dtype == OCT_BF16)
                t = oct_bf16_lanes(oct_lanes_bf16(t));
            if (accumulate == OCT_ADD_TO_OUTPUT) {
                __m512 old = c_dtype == OCT_F32
                                 ? _mm512_maskz_loadu_ps(mask, f32)
                                 : oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, bf16));
                t = _mm512_add_ps(old, t);
            }
            if (bias)
                t = _mm512_add_ps(t, _mm512_maskz_loadu_ps(mask, bias + j));
            if (c_dtype == OCT_F32)
                _mm512_mask_storeu_ps(f32, mask, t);
            else
                _mm256_mask_storeu_epi16(bf16, mask, oct_lanes_bf16(t));
        }
    }
}

const oct_gemm_kernels oct_gemm_kernels_avx512 = {
    .MR = MR,
    .NR = NR,
    .k_step = OCT_GEMM_K_CHUNK,
    .a_bytes_per_k = MR * sizeof(float),
    .b_bytes_per_k = NR * sizeof(float),
    .pack_a = pack_a,
    .pack_b = oct_gemm_pack_32_avx512,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
