/* `fast` products of at most eight rows of A: the weights are read once, so they aren't packed.
 * Codes become fp32 registers of 16 of k, a few rows of B at a time, and are multiplied at once.
 *
 * Reading is bound by the lines that may be on their way at once. What is fetched here trains the
 * CPU's own prefetcher, which follows more pages than one; so several rows are read side by side,
 * and the begins of rows further on are fetched too.
 *
 * k inside a group of 64 is in the order that
 * decoding leaves it in; A is packed alike.
 *
 * Invariant: an element's sum depends on A's panel and its row of B only. */
#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/gemm/avx512/e4m3_by_bits.h"
#include "kernel/gemm/avx512/bf16_table.h"
#include "kernel/gemm/few_rows/unpacked_rows.h"

enum {
    MR = 8,
    NR = 32,
    STEP = 4096,
    GROUP = 64, /* k decoded together: two blocks */
    BLOCK = OCT_MX_BLOCK,
    SECTION = 16 * BLOCK, /* k whose scales are loaded together */
    CHUNK = 1024,         /* k whose sum is begun anew */
    MAX_COLS = 4,         /* rows of B at a time */
    MAX_SCALED_SUMS = 3,  /* rows of A by SCALED_SUMS: where it takes fewer instructions */
    AHEAD = 4             /* rows of B from a code to what is fetched meanwhile */
};

/* For SCALED_SUMS: sizes of A's elements with which products with codes stay in range, and of B's
 * scales with which nothing overflows or is rounded once more. */
static const float MIN_SCALED_ELEMENT = 0x1p-80f, MAX_SCALED_ELEMENT = 0x1p80f;
static const float MIN_SUM_SCALE = 0x1p-100f, MAX_SUM_SCALE = 0x1p112f;

/* --- decoding --- */

/* 64 of k, in an order of their own: the first block in the lower halves. */
typedef struct decoded {
    __m512 q[4];
} decoded;

/* From the bytes of their bf16 words. */
OCT_INLINE decoded decode_words(__m512i low, __m512i high) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
    decoded d;
    d.q[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    d.q[1] = _mm512_castsi512_ps(_mm512_and_si512(first, upper));
    d.q[2] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
    d.q[3] = _mm512_castsi512_ps(_mm512_and_si512(second, upper));
    return d;
}

/* OCT_BY_BITS: for normal codes. */
OCT_INLINE decoded decode(const oct_bf16_table *t, __m512i codes, oct_decoding how) {
    if (how == OCT_BY_BITS)
        return decode_words(oct_e4m3_low_bytes(codes), oct_e4m3_high_bytes(codes));
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i low = _mm512_permutex2var_epi8(t->low[0], codes, t->low[1]);
    __m512i high = _mm512_permutex2var_epi8(t->high[0], codes, t->high[1]);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8);
    if (how == OCT_LOOKED_UP_HIF8) { /* 0x80 looked up zero */
        __mmask64 nan = _mm512_cmpeq_epi8_mask(codes, sign);
        low = _mm512_mask_set1_epi8(low, nan, (char)0xff);
        high = _mm512_mask_set1_epi8(high, nan, (char)0xff);
    }
    return decode_words(low, high);
}

/* Of a group: the first block's in the lower half. From memory, where it takes no shuffle. */
OCT_INLINE __m512 group_scale(const float *scales) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(scales[0]), 0xff00, _mm512_set1_ps(scales[1]));
}

/* The factors of the (at most 16) blocks that hold k .. k+n_k-1 of one row; k is a multiple of 32.
 */
OCT_INLINE __m512 block_scales(const oct_operand *x, int64_t row, int64_t k, int64_t n_k) {
    if (x->scaling == OCT_SCALING_TENSOR)
        return _mm512_set1_ps(((const float *)x->scales)[0]);
    if (x->scaling == OCT_SCALING_ROW)
        return _mm512_set1_ps(((const float *)x->scales)[row]);
    __mmask16 blocks = oct_lanes_below((n_k + OCT_MX_BLOCK - 1) / OCT_MX_BLOCK);
    const uint8_t *scales = x->scales;
    __m128i codes;
    if (x->layout == OCT_K_CONTIGUOUS) {
        int64_t p = x->block_rows == 1 ? row : row / OCT_MX_BLOCK;
        codes = _mm_mask_loadu_epi8(_mm_set1_epi8(127), blocks,
                                    scales + p * x->ld_scales + k / OCT_MX_BLOCK);
    } else {
        alignas(16) uint8_t bytes[16];
        for (int64_t b = 0; b < 16; b++)
            bytes[b] = blocks >> b & 1
                           ? scales[(k / OCT_MX_BLOCK + b) * x->ld_scales + row / OCT_MX_BLOCK]
                           : 127;
        codes = _mm_load_si128((const __m128i *)bytes);
    }
    return oct_e8m0_lanes(_mm512_cvtepu8_epi32(codes));
}

/* --- packing --- */

OCT_INLINE __m512i codes_of_row(const oct_operand *x, int64_t row, int64_t k, int64_t n_k) {
    const uint8_t *codes = x->data;
    alignas(64) uint8_t bytes[GROUP] = {0};
    if (x->layout == OCT_K_CONTIGUOUS)
        return _mm512_maskz_loadu_epi8(oct_bytes_below(n_k), codes + row * x->ld + k);
    for (int64_t i = 0; i < GROUP && i < n_k; i++)
        bytes[i] = codes[(k + i) * x->ld + row];
    return _mm512_load_si512(bytes);
}

/* Begins a panel of A. */
typedef struct panel_head {
    alignas(64) bool allows_scaled_sums; /* products with codes neither overflow nor underflow */
} panel_head;

/* Lanes whose size is neither 0 nor in the range of SCALED_SUMS. */
OCT_INLINE __mmask16 extreme_lanes(__m512 x) {
    const __m512 size = _mm512_abs_ps(x);
    const __mmask16 nonzero = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_cmp_ps_mask(size, _mm512_set1_ps(MAX_SCALED_ELEMENT), _CMP_NLE_UQ) |
           _mm512_mask_cmp_ps_mask(nonzero, size, _mm512_set1_ps(MIN_SCALED_ELEMENT), _CMP_LT_OQ);
}

/* The head, then [k / 64][row][4][16] floats, of n_rows rows. */
static void pack_a(const oct_gemm_source *from, void *panel) {
    const oct_operand *a = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    panel_head *head = panel;
    float *to = (float *)(void *)(head + 1);
    const oct_bf16_table t = oct_bf16_table_make(a->dtype);
    const oct_decoding how = a->dtype == OCT_HIF8 ? OCT_LOOKED_UP_HIF8 : OCT_LOOKED_UP;
    __mmask16 extreme = 0;
    for (int64_t i = 0; i < kc; i += GROUP)
        for (int64_t r = 0; r < n_rows; r++, to += GROUP) {
            alignas(64) float scales[16];
            _mm512_store_ps(scales, block_scales(a, row + r, k + i, kc - i));
            decoded d = decode(&t, codes_of_row(a, row + r, k + i, kc - i), how);
            for (int q = 0; q < 4; q++) {
                __m512 x = _mm512_mul_ps(d.q[q], group_scale(scales));
                extreme |= extreme_lanes(x);
                _mm512_store_ps(to + 16 * q, x);
            }
        }
    head->allows_scaled_sums = !extreme;
}

/* --- multiplying --- */

/* What the scales of B's blocks are multiplied with. */
typedef enum scaling {
    SCALED_ELEMENTS, /* the decoded codes */
    SCALED_SUMS /* sums over four codes of a block: for a few rows of A, whose products with codes
                   stay in range */
} scaling;

/* Some rows of A by some rows of B, from `first` on, for kc of k. */
typedef struct block {
    const float *a; /* without a panel's head */
    const oct_unpacked_rows *b;
    const oct_bf16_table *table;
    oct_decoding decoding;
    int64_t first, k, kc;
    float *acc;
    int64_t ld_acc;
    oct_accumulate accumulate;
} block;

/* Of SECTION of k or less, by rows of B. */
typedef struct section_scales {
    alignas(64) float x[MAX_COLS][SECTION / BLOCK];
} section_scales;

/* The usual case of store_scales, else false: MX scales of rows, all of them between 2^-126 and
 * 2^112. */
OCT_INLINE bool store_plain_scales(const oct_operand *x, int64_t row, int cols, int64_t k,
                                   section_scales *s) {
    const uint8_t *scales = (const uint8_t *)x->scales + row * x->ld_scales + k / BLOCK;
    __m512i codes[MAX_COLS];
    __mmask16 others = 0;
    if (x->scaling != OCT_SCALING_MX || x->layout != OCT_K_CONTIGUOUS || x->block_rows != 1)
        return false;
#pragma GCC unroll 4
    for (int j = 0; j < cols; j++) {
        const __m128i *at = (const __m128i *)(const void *)(scales + j * x->ld_scales);
        _mm_prefetch((const char *)at + 2 * AHEAD * x->ld_scales, _MM_HINT_T0);
        codes[j] = _mm512_cvtepu8_epi32(_mm_loadu_si128(at));
        others |= _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(codes[j], _mm512_set1_epi32(1)),
                                          _mm512_set1_epi32(127 + 112 - 1));
    }
    if (others)
        return false;
#pragma GCC unroll 4
    for (int j = 0; j < cols; j++)
        _mm512_store_si512(s->x[j], _mm512_slli_epi32(codes[j], 23));
    return true;
}

/* Scales with which an element may overflow, or be rounded (MX scales round nothing: they are
 * powers of two, and 2^-127 times the smallest code is one as well). */
OCT_INLINE bool is_extreme(const oct_operand *x, __m512 scales) {
    const __m512 size = _mm512_abs_ps(scales);
    __mmask16 m = _mm512_cmp_ps_mask(size, _mm512_set1_ps(MAX_SUM_SCALE), _CMP_NLE_UQ);
    if (x->scaling != OCT_SCALING_MX)
        m |= _mm512_cmp_ps_mask(size, _mm512_set1_ps(MIN_SUM_SCALE), _CMP_LT_OQ) &
             _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    return m != 0;
}

/* Returns the rows, bit by bit, whose scales are too extreme for SCALED_SUMS. */
OCT_INLINE uint32_t store_scales(const oct_operand *x, int64_t row, int cols, int64_t k, int64_t n,
                                 section_scales *s) {
    uint32_t extreme = 0;
    if (n == SECTION && store_plain_scales(x, row, cols, k, s))
        return 0;
    for (int j = 0; j < cols; j++) {
        __m512 y = block_scales(x, row + j, k, n);
        extreme |= (uint32_t)is_extreme(x, y) << j;
        _mm512_store_ps(s->x[j], y);
    }
    return extreme;
}

/* Sums of some rows of A by some of B on their way. */
typedef struct sums {
    __m512 s[MR][MAX_COLS];
} sums;

/* A group of some rows of B. */
typedef struct group {
    const float *a;
    __m512i codes[MAX_COLS];
    const float *scales; /* those of the next row of B are SECTION / BLOCK further */
} group;

/* By SCALED_ELEMENTS a row of A is loaded once for all rows of B; by SCALED_SUMS each row of B is
 * through with before the next, or registers wouldn't be enough. */
OCT_INLINE void multiply_decoded(sums *s, const group *g, const oct_bf16_table *table, int rows,
                                 int cols, oct_decoding kind, scaling how) {
    decoded d[MAX_COLS];
#pragma GCC unroll 4
    for (int j = 0; j < cols; j++) {
        const __m512 scale = group_scale(g->scales + j * (SECTION / BLOCK));
        d[j] = decode(table, g->codes[j], kind);
        if (how == SCALED_ELEMENTS) {
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                d[j].q[q] = _mm512_mul_ps(d[j].q[q], scale);
            continue;
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            __m512 t = _mm512_mul_ps(d[j].q[0], _mm512_load_ps(g->a + i * GROUP));
#pragma GCC unroll 3
            for (int q = 1; q < 4; q++)
                t = _mm512_fmadd_ps(d[j].q[q], _mm512_load_ps(g->a + i * GROUP + 16 * q), t);
            s->s[i][j] = _mm512_fmadd_ps(t, scale, s->s[i][j]);
        }
    }
    if (how == SCALED_SUMS)
        return;
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            __m512 y = _mm512_load_ps(g->a + i * GROUP + 16 * q);
            __asm__("" : "+v"(y)); /* or each row of B would load it, which takes longer */
#pragma GCC unroll 4
            for (int j = 0; j < cols; j++)
                s->s[i][j] = _mm512_fmadd_ps(d[j].q[q], y, s->s[i][j]);
        }
}

OCT_INLINE void multiply_group(sums *s, const group *g, const oct_bf16_table *table, int rows,
                               int cols, oct_decoding kind, scaling how) {
    if (kind == OCT_BY_BITS) {
        __m512i least = _mm512_set1_epi8(-1);
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            least = oct_e4m3_least_rank(least, g->codes[j]);
        if (__builtin_expect(oct_e4m3_all_normal(least), 1)) {
            multiply_decoded(s, g, table, rows, cols, OCT_BY_BITS, how);
            return;
        }
        kind = OCT_LOOKED_UP;
    }
    multiply_decoded(s, g, table, rows, cols, kind, how);
}

/* What is fetched while a group is multiplied: the rows' codes AHEAD, and a line of the first
 * quarter of rows twice as far. */
OCT_INLINE void fetch_ahead(const uint8_t *codes, const uint8_t *first, int64_t ld, int cols,
                            int64_t n_groups) {
#pragma GCC unroll 4
    for (int j = 0; j < cols; j++)
        _mm_prefetch((const char *)codes + (AHEAD + j) * ld, _MM_HINT_T0);
    _mm_prefetch((const char *)first + (2 * AHEAD + n_groups % AHEAD) * ld +
                     n_groups / AHEAD * GROUP,
                 _MM_HINT_T1);
}

/* `rows` rows of A by `cols` rows of B, both constants. Rows of B in the result, bit by bit, were
 * not done. */
OCT_INLINE uint32_t multiply_rows(const block *m, int rows, int cols, oct_decoding kind,
                                  scaling how) {
    const oct_operand *x = &m->b->operand;
    const int64_t row = m->b->row + m->first, begin = m->b->k + m->k, ld = x->ld;
    const uint8_t *const first = (const uint8_t *)x->data + row * ld + begin, *codes = first;
    const oct_bf16_table table = *m->table;
    section_scales scales;
    group g = {.a = m->a};
    uint32_t extreme = 0;
    sums s;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            s.s[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < m->kc; k += SECTION) {
        const int64_t n = m->kc - k < SECTION ? m->kc - k : SECTION;
        int64_t i = 0;
        extreme |= store_scales(x, row, cols, begin + k, n, &scales);
        for (; i + GROUP <= n; i += GROUP, g.a += rows * GROUP, codes += GROUP) {
            fetch_ahead(codes, first, ld, cols, (k + i) / GROUP);
#pragma GCC unroll 4
            for (int j = 0; j < cols; j++)
                g.codes[j] = _mm512_loadu_si512(codes + j * ld);
            g.scales = scales.x[0] + i / BLOCK;
            multiply_group(&s, &g, &table, rows, cols, kind, how);
        }
        if (i < n) {
#pragma GCC unroll 4
            for (int j = 0; j < cols; j++)
                g.codes[j] = _mm512_maskz_loadu_epi8(oct_bytes_below(n - i), codes + j * ld);
            g.scales = scales.x[0] + i / BLOCK;
            multiply_group(&s, &g, &table, rows, cols, kind == OCT_BY_BITS ? OCT_LOOKED_UP : kind,
                           how);
        }
    }
    if (how == SCALED_ELEMENTS)
        extreme = 0;
        /* Unrolled, or the sums would live in memory. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++) {
            float *to = m->acc + i * m->ld_acc + m->first + j,
                  sum = _mm512_reduce_add_ps(s.s[i][j]);
            if (!(extreme >> j & 1))
                *to = m->accumulate == OCT_ADD_TO_OUTPUT ? *to + sum : sum;
        }
    return extreme;
}

typedef uint32_t rows_fn(const block *m);

#define ROWS_FN(name, rows, cols, how)                                                             \
    static uint32_t name(const block *m) {                                                         \
        return m->decoding == OCT_BY_BITS ? multiply_rows(m, rows, cols, OCT_BY_BITS, how)         \
               : m->decoding == OCT_LOOKED_UP                                                      \
                   ? multiply_rows(m, rows, cols, OCT_LOOKED_UP, how)                              \
                   : multiply_rows(m, rows, cols, OCT_LOOKED_UP_HIF8, how);                        \
    }
#define ROWS_FNS(rows, cols)                                                                       \
    ROWS_FN(rows_##rows##_##cols, rows, cols, SCALED_ELEMENTS)                                     \
    ROWS_FN(rows_##rows, rows, 1, SCALED_ELEMENTS)

#define SCALED_SUMS_FNS(rows)                                                                      \
    ROWS_FN(scaled_sums_##rows##_4, rows, 4, SCALED_SUMS)                                          \
    ROWS_FN(scaled_sums_##rows, rows, 1, SCALED_SUMS)

SCALED_SUMS_FNS(1)
SCALED_SUMS_FNS(2)
SCALED_SUMS_FNS(3)
ROWS_FNS(1, 4)
ROWS_FNS(2, 4)
ROWS_FNS(3, 2)
ROWS_FNS(4, 2)
ROWS_FNS(5, 2)
ROWS_FNS(6, 2)
ROWS_FNS(7, 2)
ROWS_FNS(8, 2)

#undef SCALED_SUMS_FNS
#undef ROWS_FNS
#undef ROWS_FN

/* How a panel of B is gone through: several rows at a time, `run` rows for a chunk of k before the
 * next chunk. */
typedef struct course {
    rows_fn *several, *one;
    int64_t width, run, chunk;
} course;

/* A few rows of A by SCALED_SUMS are read from L2 fast enough, so B is read along its rows. Else
 * chunks of A stay in L1. */
static course choose_course(int64_t n_rows, bool allows_scaled_sums) {
    static rows_fn *const several[MR] = {rows_1_4, rows_2_4, rows_3_2, rows_4_2,
                                         rows_5_2, rows_6_2, rows_7_2, rows_8_2};
    static rows_fn *const one[MR] = {rows_1, rows_2, rows_3, rows_4,
                                     rows_5, rows_6, rows_7, rows_8};
    static rows_fn *const several_scaled_sums[MAX_SCALED_SUMS] = {scaled_sums_1_4, scaled_sums_2_4,
                                                                  scaled_sums_3_4};
    static rows_fn *const one_scaled_sums[MAX_SCALED_SUMS] = {scaled_sums_1, scaled_sums_2,
                                                              scaled_sums_3};
    if (allows_scaled_sums && n_rows <= MAX_SCALED_SUMS)
        return (course){several_scaled_sums[n_rows - 1], one_scaled_sums[n_rows - 1], 4, 4, STEP};
    return (course){several[n_rows - 1], one[n_rows - 1], n_rows <= 2 ? 4 : 2, NR, CHUNK};
}

/* n rows of B from m->first on. Those that SCALED_SUMS leaves out are done one by one. */
static void multiply_cols(block *m, const course *c, int64_t n_rows, int64_t n) {
    uint32_t left = n == 1 ? c->one(m) : c->several(m);
    const int64_t first = m->first;
    const course exact = choose_course(n_rows, false);
    for (; left; left &= left - 1) {
        m->first = first + __builtin_ctz(left);
        exact.one(m);
    }
    m->first = first + n;
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    const panel_head *head = a_panel;
    const oct_unpacked_rows *b = b_panel;
    const oct_bf16_table table = oct_bf16_table_make(b->operand.dtype);
    const course c = choose_course(n_rows, head->allows_scaled_sums);
    block m = {.b = b,
               .table = &table,
               .decoding = oct_decoding_for(b->operand.dtype),
               .acc = acc,
               .ld_acc = ld_acc};
    for (int64_t first = 0; first < n_cols; first += c.run)
        for (m.k = 0; m.k < kc; m.k += c.chunk) {
            const int64_t end = n_cols - first < c.run ? n_cols : first + c.run;
            m.a = (const float *)(const void *)(head + 1) + m.k * n_rows;
            m.kc = kc - m.k < c.chunk ? kc - m.k : c.chunk;
            m.accumulate = m.k > 0 ? OCT_ADD_TO_OUTPUT : accumulate;
            for (m.first = first; m.first < end;)
                multiply_cols(&m, &c, n_rows, m.first + c.width <= end ? c.width : 1);
        }
}

const oct_gemm_kernels oct_gemm_kernels_few_rows_avx512 = {
    .MR = MR,
    .NR = NR,
    .k_step = STEP,
    .a_bytes_per_k = MR * sizeof(float),
    .a_bytes_fixed = sizeof(panel_head) + (GROUP - 1) * MR * sizeof(float),
    .b_bytes_fixed = sizeof(oct_unpacked_rows),
    .pack_a = pack_a,
    .pack_b = oct_note_rows,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
