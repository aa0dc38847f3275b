/* `aligned` products: int16 panels (aligned_panel.h) multiplied by vpdpwssd, 32 multiply-adds an
 * instruction, and their residuals added in fp32.
 *
 *   sum_k a b = sum_k (ua ia + ra)(ub ib + rb)
 *             = ua ub sum_k ia ib  +  sum ra (ub ib)  +  sum (ua ia + ra) rb
 *
 * where the last two run over the listed residuals. Rows that integers don't serve (NaN, Inf,
 * extreme scales) and panels with too many residuals are computed from their codes in fp32, fused
 * multiply-adds in order of k.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm_kernels.h"

#include "kernel/avx512/aligned_panel.h"
#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"

enum {
    MR = OCT_ALIGNED_MR,
    NR = OCT_ALIGNED_NR,
    A_ROWS = OCT_ALIGNED_A_ROWS,
    BLOCK = OCT_MX_BLOCK
};

typedef oct_tile_sums sums;

static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(a, row, n_rows, k, kc, panel, A_ROWS);
}

static void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(b, row, n_rows, k, kc, panel, NR);
}

/* --- output --- */

/* A pair's sums, where they go, and what is added to them (NULL: nothing). */
typedef struct output {
    const sums *t;
    const float *first, *second;
    int64_t ld_first, ld_second;
    float *to;
    int64_t ld_to, n_rows, n_cols;
    int64_t row; /* the next one to be written */
    bool streams;
} output;

static output output_of(const oct_gemm_block *block, int64_t i, int64_t j, const sums *t) {
    float *acc = block->acc + i * block->ld_acc + j;
    output o = {.t = t,
                .first = block->accumulate == OCT_ADD_TO_OUTPUT ? acc : NULL,
                .ld_first = block->ld_acc,
                .to = acc,
                .ld_to = block->ld_acc,
                .n_rows = block->n_rows - i < MR ? block->n_rows - i : MR,
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

/* Fetched while the integers are multiplied. */
static void prefetch_output(const output *o) {
    for (int64_t i = 0; i < o->n_rows && !o->streams; i++) {
        __builtin_prefetch(o->to + i * o->ld_to, 1, 2);
        __builtin_prefetch(o->to + i * o->ld_to + 16, 1, 2);
    }
}

/* The next `n` rows, or as many as are left. */
static void write_rows(output *o, int64_t n) {
    const int64_t end = n < o->n_rows - o->row ? o->row + n : o->n_rows;
    const __mmask16 mask[2] = {oct_lanes_below(o->n_cols), oct_lanes_below(o->n_cols - 16)};
    for (; o->row < end; o->row++) {
        float *to = o->to + o->row * o->ld_to;
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512 x = _mm512_load_ps(o->t->x[o->row] + 16 * j);
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

/* --- integers --- */

/* In assembly because compilers spill the 28 accumulators of the intrinsics. What both functions
 * compute, for i < MR and n_pairs of pairs of k (even, at least 2), is
 *   s = sum_p a[p][i][0] * b[p][j][0] + a[p][i][1] * b[p][j][1] modulo 2^32
 *   t[i][j] = (float)s * a_units[i] * b_units[j]                     set_chunk
 *   t[i][j] = fma((float)s * a_units[i], b_units[j], t[i][j])        add_chunk */
/* clang-format off */
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ROW(offset, spare, first, second)                                                          \
    "vpbroadcastd " offset "(%[a]), %%zmm" #spare "\n\t"                                           \
    "vpdpwssd %%zmm" #spare ", %%zmm28, %%zmm" #first "\n\t"                                       \
    "vpdpwssd %%zmm" #spare ", %%zmm29, %%zmm" #second "\n\t"
#define PAIR(a, b)                                                                                 \
    "vmovdqa32 " b "(%[b]), %%zmm28\n\t"                                                           \
    "vmovdqa32 " b "+64(%[b]), %%zmm29\n\t"                                                        \
    ROW(a "+0", 30, 0, 1) ROW(a "+4", 31, 2, 3) ROW(a "+8", 30, 4, 5) ROW(a "+12", 31, 6, 7)       \
    ROW(a "+16", 30, 8, 9) ROW(a "+20", 31, 10, 11) ROW(a "+24", 30, 12, 13)                       \
    ROW(a "+28", 31, 14, 15) ROW(a "+32", 30, 16, 17) ROW(a "+36", 31, 18, 19)                     \
    ROW(a "+40", 30, 20, 21) ROW(a "+44", 31, 22, 23) ROW(a "+48", 30, 24, 25)                     \
    ROW(a "+52", 31, 26, 27)
#define SET(to, n, b) "vmulps %%zmm" #b ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ADD(to, n, b) "vfmadd213ps " to "(%[t]), %%zmm" #b ", %%zmm" #n "\n\t"
#define END_HALF(end, unit, to, n, b)                                                              \
    "vcvtdq2ps %%zmm" #n ", %%zmm" #n "\n\t"                                                       \
    "vmulps " #unit "(%[a_units])%{1to16%}, %%zmm" #n ", %%zmm" #n "\n\t"                          \
    end(to, n, b)                                                                                  \
    "vmovaps %%zmm" #n ", " to "(%[t])\n\t"
#define END(end, unit, to, first, second)                                                          \
    END_HALF(end, unit, #to, first, 28) END_HALF(end, unit, #to "+64", second, 29)
#define CHUNK(end)                                                                                 \
    __asm__ volatile(                                                                              \
        ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10)   \
        ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15) ZERO(16) ZERO(17) ZERO(18) ZERO(19) ZERO(20)  \
        ZERO(21) ZERO(22) ZERO(23) ZERO(24) ZERO(25) ZERO(26) ZERO(27)                             \
        ".p2align 6\n"                                                                             \
        "1:\n\t"                                                                                   \
        PAIR("0", "0") PAIR("64", "128")                                                           \
        "add $128, %[a]\n\t"                                                                       \
        "sub $-256, %[b]\n\t"                                                                      \
        "sub $2, %[n]\n\t"                                                                         \
        "jnz 1b\n\t"                                                                               \
        "vmovaps (%[b_units]), %%zmm28\n\t"                                                        \
        "vmovaps 64(%[b_units]), %%zmm29\n\t"                                                      \
        END(end, 0, 0, 0, 1) END(end, 4, 128, 2, 3) END(end, 8, 256, 4, 5)                         \
        END(end, 12, 384, 6, 7) END(end, 16, 512, 8, 9) END(end, 20, 640, 10, 11)                  \
        END(end, 24, 768, 12, 13) END(end, 28, 896, 14, 15) END(end, 32, 1024, 16, 17)             \
        END(end, 36, 1152, 18, 19) END(end, 40, 1280, 20, 21) END(end, 44, 1408, 22, 23)           \
        END(end, 48, 1536, 24, 25) END(end, 52, 1664, 26, 27)                                      \
        : [a] "+r"(a), [b] "+r"(b), [n] "+r"(n_pairs)                                              \
        : [a_units] "r"(a_units), [b_units] "r"(b_units), [t] "r"(t->x)                            \
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",  \
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", \
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",         \
          "xmm28", "xmm29", "xmm30", "xmm31")

OCT_INLINE void set_chunk(const int16_t *a, const int16_t *b, int64_t n_pairs, const float *a_units,
                          const float *b_units, sums *t) {
    CHUNK(SET);
}

OCT_INLINE void add_chunk(const int16_t *a, const int16_t *b, int64_t n_pairs, const float *a_units,
                          const float *b_units, sums *t) {
    CHUNK(ADD);
}
#undef ZERO
#undef ROW
#undef PAIR
#undef SET
#undef ADD
#undef END_HALF
#undef END
#undef CHUNK
/* clang-format on */

/* The first chunk sets the sums, so nothing else does. The pair before is written meanwhile, some
 * rows after each chunk: all at once they would wait for each other. */
static void multiply_chunks(sums *t, const oct_panel *a, const oct_panel *b, int64_t n_k,
                            int64_t chunk, output *before) {
    const int64_t n_chunks = (n_k + chunk - 1) / chunk;
    const int64_t n_rows = (before->n_rows - before->row + n_chunks - 1) / n_chunks;
    for (int64_t k = 0; k < n_k; k += chunk) {
        const int16_t *x = a->integers + k * A_ROWS, *y = b->integers + k * NR;
        const float *a_units = a->units + k / BLOCK * A_ROWS, *b_units = b->units + k / BLOCK * NR;
        const int64_t n_pairs = (n_k - k < chunk ? n_k - k : chunk) / 2;
        if (k == 0)
            set_chunk(x, y, n_pairs, a_units, b_units, t);
        else
            add_chunk(x, y, n_pairs, a_units, b_units, t);
        write_rows(before, n_rows);
    }
}

/* --- residuals --- */

/* Bits of a residual's pair (its offset in a panel of `rows` rows) over 16 that say where the units
 * of its chunk are: those of the chunk's first block, which are in L1. */
OCT_INLINE size_t units_mask(const oct_panel *p, int rows) {
    return ~((size_t)p->head->chunk / BLOCK * (size_t)rows * sizeof(float) - 1);
}

OCT_INLINE const char *units_at(const oct_panel *p, const oct_residual *r, size_t mask) {
    return (const char *)p->units + (r->pair / (BLOCK / 2) & mask);
}

/* Sixteen integers of the residual's k in a panel of the other operand. */
OCT_INLINE __m512 integers_at(const int16_t *integers, const oct_residual *r, int first_row) {
    const char *pairs = (const char *)integers + r->pair + 4 * first_row;
    return _mm512_cvtepi32_ps(
        _mm512_madd_epi16(_mm512_load_si512(pairs), _mm512_set1_epi32(r->pick)));
}

/* t[row of A] += residual * (ub ib). */
static void add_a_residuals(sums *t, const oct_panel *a, const oct_panel *b) {
    const size_t mask = units_mask(b, NR);
    for (const oct_residual *r = a->residuals, *end = r + a->head->n_residuals; r < end; r++) {
        const char *units = units_at(b, r, mask);
        const __m512 value = _mm512_set1_ps(r->value);
        float *to = t->x[r->row];
#pragma GCC unroll 2
        for (int j = 0; j < NR; j += 16) {
            __m512 y = _mm512_mul_ps(integers_at(b->integers, r, j), _mm512_load_ps(units + 4 * j));
            _mm512_store_ps(to + j, _mm512_fmadd_ps(value, y, _mm512_load_ps(to + j)));
        }
    }
}

/* columns[j] += what the residuals of row j of B add to the tile's column j: residual * a, where a
 * is ua ia and A's residuals of this k, if it has some. */
static void add_b_residuals(float columns[NR][A_ROWS], const oct_panel *a, const oct_panel *b) {
    const size_t mask = units_mask(a, A_ROWS);
    for (const oct_residual *r = b->residuals, *end = r + b->head->n_residuals; r < end; r++) {
        const char *units = units_at(a, r, mask);
        __m512 x = _mm512_fmadd_ps(integers_at(a->integers, r, 0), _mm512_load_ps(units),
                                   _mm512_load_ps(a->lost[a->lost_at[r->place]]));
        float *to = columns[r->row];
        _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(r->value), x, _mm512_load_ps(to)));
    }
}

/* t += the transposed columns. */
static void add_columns(sums *t, float columns[NR][A_ROWS]) {
    for (int j = 0; j < NR; j += 16) {
        __m512i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_load_si512(columns[j + i]);
        oct_transpose_16x16(v);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            float *to = t->x[i] + j;
            _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_castsi512_ps(v[i])));
        }
    }
}

/* Not memset, which takes longer to start than this to run. */
OCT_INLINE void set_to_zeros(float x[][16], int64_t n) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i++)
        _mm512_store_ps(x[i], _mm512_setzero_ps());
}

static void multiply_integers(sums *t, const oct_panel *a, const oct_panel *b, int64_t kc,
                              output *before) {
    const int64_t chunk = a->head->chunk < b->head->chunk ? a->head->chunk : b->head->chunk;
    multiply_chunks(t, a, b, (kc + 3) / 4 * 4, chunk, before);
    add_a_residuals(t, a, b);
    if (b->head->n_residuals > 0) {
        alignas(64) float columns[NR][A_ROWS];
        set_to_zeros(columns, NR);
        add_b_residuals(columns, a, b);
        add_columns(t, columns);
    }
}

/* Special rows of A and columns of B. */
static __attribute__((noinline)) void replace_special(sums *t, const oct_panel *a,
                                                      const oct_panel *b, int64_t kc) {
    uint32_t a_rows = a->head->special_rows, b_rows = b->head->special_rows;
    sums s;
    oct_aligned_multiply_codes(a, b, kc, &s);
    for (int i = 0; i < MR; i++) {
        uint32_t columns = a_rows >> i & 1 ? 0xffffffffu : b_rows;
        for (int j = 0; j < NR; j += 16)
            _mm512_mask_store_ps(t->x[i] + j, (__mmask16)(columns >> j),
                                 _mm512_load_ps(s.x[i] + j));
    }
}

/* --- blocks --- */

/* The sums of a pair, and the output of the one before. */
static void multiply_pair(const oct_panel *a, const oct_panel *b, int64_t kc, sums *t,
                          output *before) {
    if (a->head->by_codes || b->head->by_codes) {
        oct_aligned_multiply_codes(a, b, kc, t);
        write_rows(before, MR);
        return;
    }
    multiply_integers(t, a, b, kc, before);
    if (a->head->special_rows | b->head->special_rows)
        replace_special(t, a, b, kc);
}

/* Panels are only read here. */
static oct_panel panel_at(const unsigned char *first, int64_t i, size_t stride, int64_t kc,
                          int64_t rows) {
    return oct_panel_at((void *)(uintptr_t)(first + (size_t)i * stride), kc, rows);
}

static void multiply_block(const oct_gemm_block *block) {
    const oct_gemm_source *next = &block->next;
    sums t[2];
    int turn = 0;
    output before = {.n_rows = 0};
    for (int64_t i = 0; i < block->n_rows; i += MR) {
        const oct_panel a = panel_at(block->a, i / MR, block->a_stride, block->kc, A_ROWS);
        for (int64_t j = 0; j < block->n_cols; j += NR) {
            const oct_panel b = panel_at(block->b, j / NR, block->b_stride, block->kc, NR);
            output o = output_of(block, i, j, &t[turn]);
            prefetch_output(&o);
            multiply_pair(&a, &b, block->kc, &t[turn], &before);
            before = o;
            turn ^= 1;
        }
    }
    write_rows(&before, MR);
    if (next->n_rows > 0)
        pack_b(next->operand, next->row, next->n_rows, next->k, next->kc, block->next_panel);
    if (block->output == OCT_OUTPUT_STREAMED)
        _mm_sfence();
}

const oct_gemm_kernels oct_gemm_aligned_kernels_avx512 = {
    .MR = MR,
    .NR = NR,
    .MC = MR * 24,
    .NC = NR * 9,
    .k_step = OCT_ALIGNED_STEP,
    .streamed_steps = 1,
    .a_bytes_per_k = OCT_PANEL_A_BYTES_PER_K,
    .a_bytes_fixed = OCT_PANEL_BYTES_FIXED(OCT_PANEL_A_BYTES_PER_K),
    .b_bytes_per_k = OCT_PANEL_B_BYTES_PER_K,
    .b_bytes_fixed = OCT_PANEL_BYTES_FIXED(OCT_PANEL_B_BYTES_PER_K),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply_block = multiply_block,
    .store = oct_gemm_store_avx512,
};
