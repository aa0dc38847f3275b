/* `fast` products: int16 panels (panel_vnni.h) multiplied by vpdpwssd, 32 multiply-adds an
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
#include "kernel/gemm/kernels.h"

#include <stddef.h>

#include "kernel/gemm/vnni/panel_vnni.h"
#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/gemm/avx512/write_sums.h"

enum { MR = OCT_VNNI_MR, NR = OCT_VNNI_NR, A_ROWS = OCT_VNNI_A_ROWS, BLOCK = OCT_MX_BLOCK };

typedef oct_vnni_sums sums;

static void pack_a(const oct_gemm_source *from, void *panel) {
    oct_vnni_pack(from, panel, A_ROWS);
}

static void pack_b(const oct_gemm_source *from, void *panel) {
    oct_vnni_pack(from, panel, NR);
}

/* --- fetching --- */

/* Stretches of memory that are brought to L2 while panels are multiplied, some lines at a time: the
 * processor's own prefetching ends with each page. */
enum { PANEL_PARTS = 5, MAX_PARTS = PANEL_PARTS + 2 * NR, PAIRS_PER_LINE = 4 };
typedef struct fetch {
    struct {
        const char *at, *end;
    } parts[MAX_PARTS];
    int n_parts, part;
} fetch;

static void add_part(fetch *f, const void *at, int64_t n_bytes) {
    f->parts[f->n_parts].at = at;
    f->parts[f->n_parts++].end = (const char *)at + n_bytes;
}

/* A panel, in PANEL_PARTS, and as many residuals as they usually have. */
static void add_panel(fetch *f, const oct_vnni_panel *a, int64_t kc) {
    add_part(f, a->units, kc / BLOCK * A_ROWS * (int64_t)sizeof *a->units);
    add_part(f, a->lost_at, kc * (int64_t)sizeof *a->lost_at);
    add_part(f, a->residuals[0], kc / BLOCK * (int64_t)sizeof *a->residuals[0] * 5 / 4);
    add_part(f, a->lost, kc / BLOCK * (int64_t)sizeof *a->lost);
    add_part(f, a->integers, kc * A_ROWS * (int64_t)sizeof *a->integers);
}

/* What a panel is packed from: two parts a row. */
static void add_source(fetch *f, const oct_gemm_source *s) {
    const oct_operand *x = s->operand;
    if (x->layout != OCT_K_CONTIGUOUS)
        return;
    for (int64_t r = s->row; r < s->row + s->n_rows; r++) {
        add_part(f, (const char *)x->data + r * x->ld + s->k, s->kc);
        if (x->scaling == OCT_SCALING_MX)
            add_part(f, (const char *)x->scales + r / x->block_rows * x->ld_scales + s->k / BLOCK,
                     s->kc / BLOCK);
    }
}

/* The next n of them; NULL if there are no more. */
static const char *next_lines(fetch *f, int64_t n) {
    while (f->part < f->n_parts && f->parts[f->part].at >= f->parts[f->part].end)
        f->part++;
    if (f->part == f->n_parts)
        return NULL;
    const char *at = f->parts[f->part].at;
    f->parts[f->part].at += 64 * n;
    return at;
}

/* --- integers --- */

/* Where the residuals of a pair of panels are up to: A's list, and B's for each sixteen columns. */
typedef struct pending {
    const oct_vnni_residual *a, *b[2];
} pending;

/* In assembly because compilers spill the 28 accumulators of the intrinsics, and since residuals
 * are worked on between the multiplications of integers, which leave room for them: with the vector
 * registers that the next rows of A are going to be broadcast to. What it computes, for i < MR and
 * n_pairs of pairs of k (a multiple of 16), is
 *   s = sum_p a[p][i][0] * b[p][j][0] + a[p][i][1] * b[p][j][1] modulo 2^32
 *   t[i][j] = fma((float)s * a_units[i], b_units[j], t[i][j])
 * and, in each turn of 16 pairs, add_a_residual or add_b_residual for some of each list. */
/* clang-format off */
#define IS_AT(offset, field) _Static_assert(offsetof(oct_vnni_residual, field) == (offset), "as below")
IS_AT(0, value); IS_AT(4, pick); IS_AT(8, pair); IS_AT(12, units); IS_AT(16, lost); IS_AT(20, to);
IS_AT(24, next); IS_AT(28, block_units);
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ROW(offset, spare, first, second)                                                          \
    "vpbroadcastd " offset "(%[a]), %%zmm" #spare "\n\t"                                           \
    "vpdpwssd %%zmm" #spare ", %%zmm28, %%zmm" #first "\n\t"                                       \
    "vpdpwssd %%zmm" #spare ", %%zmm29, %%zmm" #second "\n\t"
#define PAIR(p)                                                                                    \
    "vmovdqa32 128*" #p "(%[b]), %%zmm28\n\t"                                                      \
    "vmovdqa32 128*" #p "+64(%[b]), %%zmm29\n\t"                                                   \
    ROW("64*" #p "+0", 30, 0, 1) ROW("64*" #p "+4", 31, 2, 3) ROW("64*" #p "+8", 30, 4, 5)         \
    ROW("64*" #p "+12", 31, 6, 7) ROW("64*" #p "+16", 30, 8, 9) ROW("64*" #p "+20", 31, 10, 11)    \
    ROW("64*" #p "+24", 30, 12, 13) ROW("64*" #p "+28", 31, 14, 15)                                \
    ROW("64*" #p "+32", 30, 16, 17) ROW("64*" #p "+36", 31, 18, 19)                                \
    ROW("64*" #p "+40", 30, 20, 21) ROW("64*" #p "+44", 31, 22, 23)                                \
    ROW("64*" #p "+48", 30, 24, 25) ROW("64*" #p "+52", 31, 26, 27)
#define FETCH "prefetcht1 (%[ahead])\n\t" "add $64, %[ahead]\n\t"
/* zmm30 = the 16 integers at `pairs` of the residual's k */
#define INTEGERS(list, pairs)                                                                      \
    "vmovdqa32 " pairs ", %%zmm31\n\t"                                                             \
    ZERO(30)                                                                                       \
    "vpdpwssd 4(%[" list "])%{1to16%}, %%zmm31, %%zmm30\n\t"                                       \
    "vcvtdq2ps %%zmm30, %%zmm30\n\t"
#define NEXT(list) "mov 24(%[" list "]), %k[u]\n\t" "add %[u], %[" list "]\n\t"
#define ADD_VALUE(list, to)                                                                        \
    "vbroadcastss (%[" list "]), %%zmm31\n\t"                                                      \
    "vfmadd213ps " to ", %%zmm31, %%zmm30\n\t"                                                     \
    "vmovaps %%zmm30, " to "\n\t"
#define A_HALF(j)                                                                                  \
    INTEGERS("ra", j "(%[b0], %[p])")                                                              \
    "vmulps %c[units]+" j "(%[b0], %[u]), %%zmm30, %%zmm30\n\t"                                    \
    ADD_VALUE("ra", j "(%[t], %[to])")
#define A_RESIDUAL(at)                                                                             \
    "mov 8(%[ra]), %k[p]\n\t"                                                                      \
    "mov " #at "(%[ra]), %k[u]\n\t"                                                                \
    "mov 20(%[ra]), %k[to]\n\t"                                                                    \
    A_HALF("0") A_HALF("64") NEXT("ra")
#define B_RESIDUAL(list, at)                                                                       \
    "mov 8(%[" list "]), %k[p]\n\t"                                                                \
    "mov 16(%[" list "]), %k[u]\n\t"                                                               \
    INTEGERS(list, "(%[a0], %[p])")                                                                \
    "movzwl %c[lost](%[a0], %[u]), %k[u]\n\t"                                                      \
    "shl $6, %[u]\n\t"                                                                             \
    "vmovaps (%[a0], %[u]), %%zmm31\n\t"                                                           \
    "mov " #at "(%[" list "]), %k[u]\n\t"                                                          \
    "mov 20(%[" list "]), %k[to]\n\t"                                                              \
    "vfmadd132ps %c[units](%[a0], %[u]), %%zmm31, %%zmm30\n\t"                                     \
    ADD_VALUE(list, "(%[t], %[to])") NEXT(list)
#define ADD(unit, to, n, b)                                                                        \
    "vcvtdq2ps %%zmm" #n ", %%zmm" #n "\n\t"                                                       \
    "vmulps " #unit "(%[p])%{1to16%}, %%zmm" #n ", %%zmm" #n "\n\t"                                \
    "vfmadd213ps " to "(%[t]), %%zmm" #b ", %%zmm" #n "\n\t"                                       \
    "vmovaps %%zmm" #n ", " to "(%[t])\n\t"
#define END(unit, to, first, second) ADD(unit, #to, first, 28) ADD(unit, #to "+64", second, 29)
#define CHUNK(first, second, third)                                                                \
    __asm__ volatile(                                                                              \
        ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(10)   \
        ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15) ZERO(16) ZERO(17) ZERO(18) ZERO(19) ZERO(20)  \
        ZERO(21) ZERO(22) ZERO(23) ZERO(24) ZERO(25) ZERO(26) ZERO(27)                             \
        ".p2align 6\n"                                                                             \
        "1:\n\t"                                                                                   \
        FETCH PAIR(0) PAIR(1) PAIR(2) PAIR(3) first FETCH PAIR(4) PAIR(5) PAIR(6) PAIR(7)          \
        FETCH PAIR(8) second PAIR(9) PAIR(10) PAIR(11) FETCH PAIR(12) PAIR(13) third PAIR(14)      \
        PAIR(15)                                                                                   \
        "add $1024, %[a]\n\t"                                                                      \
        "add $2048, %[b]\n\t"                                                                      \
        "sub $16, %[n]\n\t"                                                                        \
        "jnz 1b\n\t"                                                                               \
        "mov %[b_units], %[p]\n\t"                                                                 \
        "vmovaps (%[p]), %%zmm28\n\t"                                                              \
        "vmovaps 64(%[p]), %%zmm29\n\t"                                                            \
        "mov %[a_units], %[p]\n\t"                                                                 \
        END(0, 0, 0, 1) END(4, 128, 2, 3) END(8, 256, 4, 5) END(12, 384, 6, 7) END(16, 512, 8, 9)  \
        END(20, 640, 10, 11) END(24, 768, 12, 13) END(28, 896, 14, 15) END(32, 1024, 16, 17)       \
        END(36, 1152, 18, 19) END(40, 1280, 20, 21) END(44, 1408, 22, 23)                          \
        END(48, 1536, 24, 25) END(52, 1664, 26, 27)                                                \
        : [a] "+r"(a), [b] "+r"(b), [n] "+r"(n_pairs), [ra] "+r"(left->a), [r0] "+r"(left->b[0]),  \
          [r1] "+r"(left->b[1]), [ahead] "+r"(ahead), [p] "=&r"(p), [u] "=&r"(u), [to] "=&r"(to)   \
        : [a0] "r"(a0), [b0] "r"(b0), [t] "r"(t), [a_units] "m"(a_units), [b_units] "m"(b_units),  \
          [units] "i"(OCT_VNNI_PANEL_UNITS), [lost] "i"(OCT_VNNI_PANEL_LOST_AT)                              \
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",  \
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", \
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",         \
          "xmm28", "xmm29", "xmm30", "xmm31")

/* The residuals that are worked on meanwhile: the units that they need are those of their chunk. */
typedef enum residual_kind { NO_RESIDUALS, OF_LONG_CHUNKS, OF_SHORT_CHUNKS } residual_kind;

OCT_INLINE void multiply_chunk(const oct_vnni_panel *x, const oct_vnni_panel *y, int64_t k, int64_t n_pairs,
                               residual_kind kind, const char *ahead, pending *left, sums *t) {
    const int16_t *a0 = x->integers, *b0 = y->integers, *a = a0 + k * A_ROWS, *b = b0 + k * NR;
    const float *a_units = x->units + k / BLOCK * A_ROWS, *b_units = y->units + k / BLOCK * NR;
    int64_t p, u, to;
    if (kind == NO_RESIDUALS)
        CHUNK("", "", "");
    else if (kind == OF_LONG_CHUNKS)
        CHUNK(A_RESIDUAL(12), B_RESIDUAL("r0", 12), B_RESIDUAL("r1", 12));
    else
        CHUNK(A_RESIDUAL(28), B_RESIDUAL("r0", 28),
              B_RESIDUAL("r1", 28));
}
#undef IS_AT
#undef ZERO
#undef ROW
#undef PAIR
#undef FETCH
#undef INTEGERS
#undef NEXT
#undef ADD_VALUE
#undef A_HALF
#undef A_RESIDUAL
#undef B_RESIDUAL
#undef ADD
#undef END
#undef CHUNK
/* clang-format on */

static residual_kind kind_of_residuals(const oct_vnni_panel *a, const oct_vnni_panel *b,
                                       int64_t chunk) {
    const int32_t *n_b = b->head->n_residuals;
    if ((a->head->n_residuals[0] | n_b[0] | n_b[1]) == 0)
        return NO_RESIDUALS;
    return chunk == OCT_VNNI_LONG_CHUNK ? OF_LONG_CHUNKS : OF_SHORT_CHUNKS;
}

/* The pair before is written meanwhile, some rows after each chunk: all at once they would wait for
 * each other. */
static void multiply_chunks(sums *t, const oct_vnni_panel *a, const oct_vnni_panel *b, int64_t n_k,
                            fetch *next, pending *left, oct_output *before) {
    const int64_t chunk = a->head->chunk < b->head->chunk ? a->head->chunk : b->head->chunk;
    const int64_t n_chunks = (n_k + chunk - 1) / chunk;
    const int64_t n_rows = (before->n_rows - before->row + n_chunks - 1) / n_chunks;
    const residual_kind kind = kind_of_residuals(a, b, chunk);
    for (int64_t k = 0; k < n_k; k += chunk) {
        const int64_t n_pairs = (n_k - k < chunk ? n_k - k : chunk) / 2;
        const char *ahead = next_lines(next, n_pairs / PAIRS_PER_LINE);
        if (!ahead) /* lines that are there */
            ahead = (const char *)(a->integers + k * A_ROWS);
        multiply_chunk(a, b, k, n_pairs, kind, ahead, left, t);
        oct_output_write(before, n_rows);
    }
}

/* --- residuals --- */

/* Sixteen integers of the residual's k in a panel of the other operand. */
OCT_INLINE __m512 integers_at(const int16_t *integers, const oct_vnni_residual *r, int first_row) {
    const char *pairs = (const char *)integers + r->pair + 4 * first_row;
    return _mm512_cvtepi32_ps(
        _mm512_madd_epi16(_mm512_load_si512(pairs), _mm512_set1_epi32(r->pick)));
}

OCT_INLINE float *sums_at(sums *t, const oct_vnni_residual *r) {
    return (float *)(void *)((char *)t + r->to);
}

/* t[row of A] += residual * (ub ib). */
OCT_INLINE void add_a_residual(sums *t, const oct_vnni_panel *b, const oct_vnni_residual *r) {
    const float *units = b->units + r->block_units / sizeof *b->units;
    const __m512 value = _mm512_set1_ps(r->value);
    float *to = sums_at(t, r);
#pragma GCC unroll 2
    for (int j = 0; j < NR; j += 16) {
        __m512 y = _mm512_mul_ps(integers_at(b->integers, r, j), _mm512_load_ps(units + j));
        _mm512_store_ps(to + j, _mm512_fmadd_ps(value, y, _mm512_load_ps(to + j)));
    }
}

/* columns[j] += what a residual of row j of B adds to the tile's column j: residual * a, where a is
 * ua ia and A's residuals of this k, if it has some. */
OCT_INLINE void add_b_residual(sums *t, const oct_vnni_panel *a, const oct_vnni_residual *r) {
    const float *units = a->units + r->block_units / sizeof *a->units;
    const size_t lost = (size_t)64 * a->lost_at[r->lost / sizeof *a->lost_at];
    __m512 x = _mm512_fmadd_ps(integers_at(a->integers, r, 0), _mm512_load_ps(units),
                               _mm512_load_ps((const char *)a->integers + lost));
    float *to = sums_at(t, r);
    _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(r->value), x, _mm512_load_ps(to)));
}

static void add_left(sums *t, const oct_vnni_panel *a, const oct_vnni_panel *b,
                     const pending *left) {
    for (const oct_vnni_residual *r = left->a; r->next > 0; r++)
        add_a_residual(t, b, r);
    for (int i = 0; i < 2; i++)
        for (const oct_vnni_residual *r = left->b[i]; r->next > 0; r++)
            add_b_residual(t, a, r);
}

/* t += the transposed columns. */
static void add_columns(sums *t) {
    for (int j = 0; j < NR; j += 16) {
        __m512i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_load_si512(t->columns[j + i]);
        oct_transpose_16x16(v);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            float *to = t->x[i] + j;
            _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_castsi512_ps(v[i])));
        }
    }
}

/* Not memset, which takes longer to start than this to run. */
OCT_INLINE void set_to_zeros(float *x, int64_t n) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i += 16)
        _mm512_store_ps(x + i, _mm512_setzero_ps());
}

static void multiply_integers(sums *t, const oct_vnni_panel *a, const oct_vnni_panel *b, int64_t kc,
                              fetch *next, oct_output *before) {
    pending left = {a->residuals[0], {b->residuals[0], b->residuals[1]}};
    set_to_zeros(t->x[0], MR * NR);
    set_to_zeros(t->columns[0], NR * A_ROWS);
    multiply_chunks(t, a, b, (kc + BLOCK - 1) / BLOCK * BLOCK, next, &left, before);
    add_left(t, a, b, &left);
    if (b->head->n_residuals[0] + b->head->n_residuals[1] > 0)
        add_columns(t);
}

/* Special rows of A and columns of B. */
static __attribute__((noinline)) void replace_special(sums *t, const oct_vnni_panel *a,
                                                      const oct_vnni_panel *b, int64_t kc) {
    uint32_t a_rows = a->head->special_rows, b_rows = b->head->special_rows;
    sums s;
    oct_vnni_multiply_codes(a, b, kc, &s);
    for (int i = 0; i < MR; i++) {
        uint32_t columns = a_rows >> i & 1 ? 0xffffffffu : b_rows;
        for (int j = 0; j < NR; j += 16)
            _mm512_mask_store_ps(t->x[i] + j, (__mmask16)(columns >> j),
                                 _mm512_load_ps(s.x[i] + j));
    }
}

/* --- blocks --- */

/* The sums of a pair, and the output of the one before. */
static void multiply_pair(const oct_vnni_panel *a, const oct_vnni_panel *b, int64_t kc, fetch *next,
                          sums *t, oct_output *before) {
    if (a->head->by_codes || b->head->by_codes) {
        oct_vnni_multiply_codes(a, b, kc, t);
        oct_output_write(before, MR);
        return;
    }
    multiply_integers(t, a, b, kc, next, before);
    if (a->head->special_rows | b->head->special_rows)
        replace_special(t, a, b, kc);
}

/* Panels are only read here. */
static oct_vnni_panel panel_at(const unsigned char *first, int64_t i, size_t stride, int64_t kc,
                               int64_t rows) {
    return oct_vnni_panel_at((void *)(uintptr_t)(first + (size_t)i * stride), kc, rows);
}

static void multiply_block(const oct_gemm_block *block) {
    const oct_gemm_source *next = &block->next;
    sums t[2];
    int turn = 0;
    oct_output before = {.n_rows = 0};
    fetch ahead;
    ahead.n_parts = ahead.part = 0;
    if (block->a_next) {
        const oct_vnni_panel a_next = panel_at(block->a_next, 0, 0, block->kc, A_ROWS);
        add_panel(&ahead, &a_next, block->kc);
    }
    if (block->fetch.n_rows > 0)
        add_source(&ahead, &block->fetch);
    for (int64_t i = 0; i < block->n_rows; i += MR) {
        const oct_vnni_panel a = panel_at(block->a, i / MR, block->a_stride, block->kc, A_ROWS);
        for (int64_t j = 0; j < block->n_cols; j += NR) {
            const oct_vnni_panel b = panel_at(block->b, j / NR, block->b_stride, block->kc, NR);
            oct_output o = oct_output_of(block, i, j, MR, t[turn].x[0]);
            oct_output_prefetch(&o);
            multiply_pair(&a, &b, block->kc, &ahead, &t[turn], &before);
            before = o;
            turn ^= 1;
        }
    }
    oct_output_write(&before, MR);
    if (next->n_rows > 0)
        pack_b(next, block->next_panel);
    if (block->output == OCT_OUTPUT_STREAMED)
        _mm_sfence();
}

const oct_gemm_kernels oct_gemm_kernels_vnni = {
    .MR = MR,
    .NR = NR,
    .k_step = OCT_VNNI_STEP,
    .a_bytes_per_k = OCT_VNNI_PANEL_A_BYTES_PER_K,
    .a_bytes_fixed = OCT_VNNI_PANEL_BYTES_FIXED(OCT_VNNI_PANEL_A_BYTES_PER_K),
    .b_bytes_per_k = OCT_VNNI_PANEL_B_BYTES_PER_K,
    .b_bytes_fixed = OCT_VNNI_PANEL_BYTES_FIXED(OCT_VNNI_PANEL_B_BYTES_PER_K),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply_block = multiply_block,
    .store = oct_gemm_store_avx512,
};
