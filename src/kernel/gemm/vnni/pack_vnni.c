/* Packing for `fast` products: see panel_vnni.h. Lanes are rows, sixteen at a time; codes are
 * looked up 64 a register (VBMI). */
#include "kernel/gemm/vnni/panel_vnni.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/read_rows.h"
#include "kernel/bf16_of_codes.h"

enum {
    BLOCK = OCT_MX_BLOCK,
    A_ROWS = OCT_VNNI_A_ROWS,
    MAX_BLOCKS = OCT_VNNI_STEP / BLOCK,
    N_LEVELS = 3,
    MIN_EXPONENT = -60, /* of a scale; rows beyond are special */
    MAX_EXPONENT = 40,
    NOTHING = -128, /* the exponent of a zero */
    NOT_FINITE = 127,
    MANY_RESIDUALS = 16 /* in sixteen rows of a long chunk: then short chunks are cheaper */
};

/* MIN_EXPONENT and MAX_EXPONENT for a scale of a row or a tensor. */
static const float MIN_SCALE = 0x1p-60f, MAX_SCALE = 0x1p40f;

/* --- look-up tables over the 128 magnitudes of a format --- */

typedef struct byte_table {
    __m512i low, high;
} byte_table;

typedef struct tables {
    byte_table significand;     /* 64 .. 127, 0 for zero: the leading bits */
    byte_table exponent;        /* of the leading bit; NOTHING, NOT_FINITE */
    byte_table least_place;     /* smallest place (see align_quads) that loses no bit */
    byte_table level[N_LEVELS]; /* magnitude over level_unit, rounded up, at most 127 */
    float level_unit[N_LEVELS];
    int level_exponent[N_LEVELS]; /* the level serves numbers with exponents up to this */
    oct_dtype format;
} tables;

OCT_INLINE __m512i look_up(const byte_table *t, __m512i codes) {
    return _mm512_permutex2var_epi8(t->low, codes, t->high);
}

static byte_table byte_table_load(const int8_t bytes[128]) {
    return (byte_table){_mm512_loadu_si512(bytes), _mm512_loadu_si512(bytes + 64)};
}

/* From the formats' words, 16 magnitudes at a time. */
static void tables_make(tables *t, oct_dtype format) {
    /* E4M3, E5M2, HiF8: each the largest number of its binade. */
    static const float tops[3][N_LEVELS] = {
        {448, 30, 1.875f}, {57344, 3584, 224}, {32768, 240, 15}};
    const float *top = tops[format == OCT_E4M3 ? 0 : format == OCT_E5M2 ? 1 : 2];
    const uint16_t *words = oct_bf16_of_codes(format);
    alignas(64) int8_t significand[128], exponent[128], least[128], level[N_LEVELS][128];
    for (int l = 0; l < N_LEVELS; l++) {
        t->level_unit[l] = top[l] / 127;
        t->level_exponent[l] = ilogbf(top[l]);
    }
    for (int i = 0; i < 128; i += 16) {
        __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(words + i)));
        __mmask16 zero = _mm512_testn_epi32_mask(w, w);
        __mmask16 infinite = _mm512_cmpge_epi32_mask(w, _mm512_set1_epi32(0x7f80));
        __m512i s =
            _mm512_or_si512(_mm512_srli_epi32(_mm512_and_si512(w, _mm512_set1_epi32(0x7f)), 1),
                            _mm512_set1_epi32(64));
        s = _mm512_mask_mov_epi32(s, zero, _mm512_setzero_si512());
        __m512i e = _mm512_sub_epi32(_mm512_srli_epi32(w, 7), _mm512_set1_epi32(127));
        e = _mm512_mask_mov_epi32(e, zero, _mm512_set1_epi32(NOTHING));
        e = _mm512_mask_mov_epi32(e, infinite, _mm512_set1_epi32(NOT_FINITE));
        /* Trailing zeros of the significand: s & -s is 2^zeros. */
        __m512i last = _mm512_and_si512(s, _mm512_sub_epi32(_mm512_setzero_si512(), s));
        __m512i zeros =
            _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(last)), 23),
                             _mm512_set1_epi32(127));
        __m512i place = _mm512_sub_epi32(_mm512_set1_epi32(7), zeros);
        place = _mm512_mask_mov_epi32(place, zero | infinite, _mm512_set1_epi32(NOTHING));
        _mm_store_si128((__m128i *)(significand + i), _mm512_cvtepi32_epi8(s));
        _mm_store_si128((__m128i *)(exponent + i), _mm512_cvtepi32_epi8(e));
        _mm_store_si128((__m128i *)(least + i), _mm512_cvtepi32_epi8(place));
        __m512 v = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
        for (int l = 0; l < N_LEVELS; l++) {
            __m512 q = _mm512_min_ps(_mm512_div_ps(v, _mm512_set1_ps(t->level_unit[l])),
                                     _mm512_set1_ps(127));
            __m512i n = _mm512_cvt_roundps_epi32(q, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
            _mm_store_si128((__m128i *)(level[l] + i), _mm512_cvtepi32_epi8(n));
        }
    }
    t->significand = byte_table_load(significand);
    t->exponent = byte_table_load(exponent);
    t->least_place = byte_table_load(least);
    for (int l = 0; l < N_LEVELS; l++)
        t->level[l] = byte_table_load(level[l]);
    t->format = format;
}

enum { N_FORMATS = 3 };
static tables made_tables[N_FORMATS];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_all_tables(void) {
    static const oct_dtype formats[N_FORMATS] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
    for (int i = 0; i < N_FORMATS; i++)
        tables_make(&made_tables[i], formats[i]);
}

static const tables *tables_of(oct_dtype format) {
    pthread_once(&tables_once, make_all_tables);
    return &made_tables[format == OCT_E4M3 ? 0 : format == OCT_E5M2 ? 1 : 2];
}

/* --- what is known of sixteen rows --- */

typedef struct rows16 {
    __m512i codes_exponent[MAX_BLOCKS]; /* largest in the block, NOTHING, NOT_FINITE */
    __m512 sum_of_squares[MAX_BLOCKS];  /* at least that, of the codes' values */
    __m512i scale_exponent[MAX_BLOCKS]; /* of the block's E8M0 scale, 0 without one */
    __m512i place[MAX_BLOCKS];          /* see align_quads; the same in the four bytes of a lane */
    __m512 row_scale;                   /* the operand's fp32 scale, 1 without one */
    __mmask16 special;
    int64_t n_blocks;
} rows16;

/* The largest of the four signed bytes of each lane, as 32-bit integers. */
OCT_INLINE __m512i largest_byte(__m512i x) {
    x = _mm512_max_epi8(x, _mm512_srli_epi32(x, 16));
    x = _mm512_max_epi8(x, _mm512_srli_epi32(x, 8));
    return _mm512_srai_epi32(_mm512_slli_epi32(x, 24), 24);
}

/* The quads of one block of sixteen rows. */
typedef struct block_codes {
    __m512i quad[BLOCK / 4];
} block_codes;

/* The exponent of each row's largest magnitude. */
OCT_INLINE __m512i largest_exponent(const tables *t, const block_codes *c) {
    __m512i largest = t->format == OCT_HIF8 ? _mm512_set1_epi8(NOTHING) : _mm512_setzero_si512();
    if (t->format == OCT_HIF8) { /* whose codes aren't in order of magnitude */
#pragma GCC unroll 8
        for (int j = 0; j < BLOCK / 4; j++) {
            __m512i e = look_up(&t->exponent, c->quad[j]);
            __mmask64 nan = _mm512_cmpeq_epi8_mask(c->quad[j], _mm512_set1_epi8((char)0x80));
            e = _mm512_mask_mov_epi8(e, nan, _mm512_set1_epi8(NOT_FINITE));
            largest = _mm512_max_epi8(largest, e);
        }
        return largest_byte(largest);
    }
#pragma GCC unroll 8
    for (int j = 0; j < BLOCK / 4; j++)
        largest = _mm512_max_epi8(largest, _mm512_and_si512(c->quad[j], _mm512_set1_epi8(0x7f)));
    __m512i e = look_up(&t->exponent, largest_byte(largest));
    return _mm512_srai_epi32(_mm512_slli_epi32(e, 24), 24);
}

/* The sum of squares of each row's codes, or somewhat more, in units of level l. */
OCT_INLINE __m512 sum_of_squares(const tables *t, const block_codes *c, int l) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int j = 0; j < BLOCK / 4; j++) {
        __m512i q = look_up(&t->level[l], c->quad[j]);
        sum = _mm512_dpbusd_epi32(sum, q, q);
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                         _mm512_set1_ps(t->level_unit[l] * t->level_unit[l]));
}

/* Exponents and sums of squares, block by block. */
OCT_INLINE void measure(const tables *t, const uint8_t *codes, rows16 *rows) {
    for (int64_t b = 0; b < rows->n_blocks; b++) {
        block_codes c;
#pragma GCC unroll 8
        for (int j = 0; j < BLOCK / 4; j++)
            c.quad[j] = _mm512_load_si512(codes + (b * BLOCK / 4 + j) * 64);
        __m512i largest = largest_exponent(t, &c);
        __m512 ss = sum_of_squares(t, &c, 0);
        for (int l = 1; l < N_LEVELS; l++) { /* the finest level that holds the largest element */
            __mmask16 fits =
                _mm512_cmple_epi32_mask(largest, _mm512_set1_epi32(t->level_exponent[l]));
            if (!fits) /* as good as always: scales put the largest near the format's largest */
                break;
            ss = _mm512_mask_mov_ps(ss, fits, sum_of_squares(t, &c, l));
        }
        rows->codes_exponent[b] = largest;
        rows->sum_of_squares[b] = ss;
    }
}

/* E8M0 codes of sixteen rows, block by block; 127 in lanes without a row. */
static void gather_scales(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                          int64_t n_blocks, uint8_t codes[MAX_BLOCKS][16]) {
    if (x->layout == OCT_K_CONTIGUOUS) {
        for (int64_t b = 0; b < n_blocks; b += 16)
            oct_transpose_scales(x, row, lanes, k + b * BLOCK, n_blocks - b, codes + b);
        return;
    }
    /* Tiles of 32 rows: of two of them at most. */
    const uint8_t *scales = (const uint8_t *)x->scales + row / BLOCK;
    const __mmask16 second = lanes & (__mmask16)~oct_lanes_below(BLOCK - row % BLOCK);
    for (int64_t b = 0; b < n_blocks; b++) {
        const uint8_t *at = scales + (k / BLOCK + b) * x->ld_scales;
        __m128i code = _mm_mask_set1_epi8(_mm_set1_epi8(127), lanes, (char)at[0]);
        code = _mm_mask_set1_epi8(code, second, (char)at[second != 0]);
        _mm_store_si128((__m128i *)codes[b], code);
    }
}

/* Scales, decoding factors and the rows that aren't for integers. */
static void look_at_scales(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                           rows16 *rows, float *factors) {
    alignas(64) uint8_t codes[MAX_BLOCKS][16];
    __mmask16 special = 0;
    rows->row_scale = _mm512_set1_ps(1);
    if (x->scaling == OCT_SCALING_MX)
        gather_scales(x, row, lanes, k, rows->n_blocks, codes);
    if (x->scaling != OCT_SCALING_MX) {
        rows->row_scale = oct_lane_scales(x, row, lanes, k);
        rows->row_scale =
            _mm512_mask_mov_ps(_mm512_set1_ps(1), lanes, rows->row_scale); /* never 0 outside */
        __m512 size = _mm512_abs_ps(rows->row_scale);
        special |= _mm512_cmp_ps_mask(size, _mm512_set1_ps(MIN_SCALE), _CMP_NGE_UQ) |
                   _mm512_cmp_ps_mask(size, _mm512_set1_ps(MAX_SCALE), _CMP_NLE_UQ);
    }
    for (int64_t b = 0; b < rows->n_blocks; b++) {
        __m512 factor = rows->row_scale;
        rows->scale_exponent[b] = _mm512_setzero_si512();
        if (x->scaling == OCT_SCALING_MX) {
            __m512i code = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)codes[b]));
            factor = oct_e8m0_lanes(code);
            rows->scale_exponent[b] = _mm512_sub_epi32(code, _mm512_set1_epi32(127));
            special |= _mm512_cmpgt_epi32_mask(code, _mm512_set1_epi32(127 + MAX_EXPONENT)) |
                       _mm512_cmplt_epi32_mask(code, _mm512_set1_epi32(127 + MIN_EXPONENT));
        }
        special |= _mm512_cmpeq_epi32_mask(rows->codes_exponent[b], _mm512_set1_epi32(NOT_FINITE));
        _mm512_store_ps(factors + b * 16, factor);
    }
    rows->special = special & lanes;
}

/* Units for blocks first .. last-1 of each row, as one chunk. */
OCT_INLINE void choose_units(rows16 *rows, int64_t first, int64_t last, float *units,
                             int64_t panel_rows) {
    __m512i top = _mm512_set1_epi32(-1000); /* largest exponent of a scale */
    for (int64_t b = first; b < last; b++) {
        __mmask16 used =
            _mm512_cmpgt_epi32_mask(rows->codes_exponent[b], _mm512_set1_epi32(NOTHING));
        top = _mm512_mask_max_epi32(top, used, top, rows->scale_exponent[b]);
    }
    __mmask16 empty = _mm512_cmpeq_epi32_mask(top, _mm512_set1_epi32(-1000));
    top = _mm512_mask_mov_epi32(top, empty, _mm512_setzero_si512());
    __m512 norm = _mm512_setzero_ps(); /* its square, in units of 4^top */
    __m512i largest = _mm512_set1_epi32(NOTHING);
    for (int64_t b = first; b < last; b++) {
        __m512i below = _mm512_sub_epi32(rows->scale_exponent[b], top);
        __m512 twice = _mm512_cvtepi32_ps(_mm512_add_epi32(below, below));
        norm = _mm512_add_ps(norm, _mm512_scalef_ps(rows->sum_of_squares[b], twice));
        largest = _mm512_max_epi32(largest, _mm512_add_epi32(rows->codes_exponent[b], below));
    }
    /* Rounding to integers adds at most 0.5 * sqrt(256) to a norm of 2^14.5 or more. */
    norm = _mm512_max_ps(_mm512_mul_ps(norm, _mm512_set1_ps(1.002f)), _mm512_set1_ps(0x1p-100f));
    /* norm^2 < 2^(g+1) shall be at most 2^(31 + 2 u): u = ceil((g - 30) / 2). */
    __m512i g = _mm512_cvtps_epi32(_mm512_getexp_ps(norm));
    __m512i u = _mm512_srai_epi32(_mm512_sub_epi32(g, _mm512_set1_epi32(29)), 1);
    u = _mm512_max_epi32(u, _mm512_sub_epi32(largest, _mm512_set1_epi32(14)));
    u = _mm512_mask_mov_epi32(u, empty | rows->special, _mm512_setzero_si512());
    __m512 unit = _mm512_scalef_ps(rows->row_scale, _mm512_cvtepi32_ps(_mm512_add_epi32(u, top)));
    unit = _mm512_mask_mov_ps(unit, rows->special | empty, _mm512_setzero_ps());
    for (int64_t b = first; b < last; b++) {
        __m512i place = _mm512_sub_epi32(_mm512_sub_epi32(rows->scale_exponent[b], top), u);
        place = _mm512_max_epi32(_mm512_add_epi32(place, _mm512_set1_epi32(1)),
                                 _mm512_set1_epi32(-100));
        place = _mm512_mask_mov_epi32(place, rows->special | empty, _mm512_set1_epi32(-100));
        rows->place[b] =
            _mm512_shuffle_epi8(place, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                           0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
        _mm512_store_ps(units + b * panel_rows, unit);
    }
}

/* What the codes of sixteen rows are while they are packed. */
typedef struct staging {
    const uint16_t *words;
    alignas(64) uint8_t codes[OCT_VNNI_STEP * 16]; /* [k / 4][16][4], the k in order */
    alignas(64) float factors[MAX_BLOCKS * 16];    /* [k / 32][16]: of a decoded code */
} staging;

static float code_value(const uint16_t *words, uint8_t code) {
    uint32_t bits = (uint32_t)words[code & 0x7f] << 16 | (uint32_t)(code & 0x80) << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A quad of sixteen rows in which some elements, one a bit, lose bits. */
typedef struct lossy_quad {
    __mmask64 elements;
    int64_t quad;
} lossy_quad;

/* A residual for a panel of the other operand to be multiplied with. */
OCT_INLINE oct_vnni_residual residual_at(int64_t k, uint32_t row, bool is_a) {
    const uint32_t rows = is_a ? OCT_VNNI_NR : A_ROWS, row_bytes = rows * sizeof(float);
    const size_t to = is_a ? offsetof(oct_vnni_sums, x) : offsetof(oct_vnni_sums, columns);
    const uint32_t place = (uint32_t)oct_vnni_place(k), block = (uint32_t)k / BLOCK;
    const uint32_t per_chunk = OCT_VNNI_LONG_CHUNK / BLOCK;
    return (oct_vnni_residual){
        .pick = place % 2 ? 1 << 16 : 1,
        .pair = place / 2 * row_bytes,
        .units = block / per_chunk * per_chunk * row_bytes,
        .lost = place * (uint32_t)sizeof(uint16_t),
        .to = (uint32_t)to + row * row_bytes,
        .next = sizeof(oct_vnni_residual),
        .block_units = block * row_bytes,
    };
}

/* Lists their residuals, as many as there is room for. Returns how many there are, which may be
 * more. Apart from the loop that finds the quads, whose branch would be mispredicted at each of
 * them. */
static __attribute__((noinline)) int64_t list_residuals(const staging *st, const oct_vnni_panel *p,
                                                        int64_t group, int64_t panel_rows,
                                                        int64_t n_blocks, const lossy_quad *quads,
                                                        int64_t n_quads) {
    const bool is_a = panel_rows == A_ROWS;
    oct_vnni_residual *list = p->residuals[group];
    int64_t n = 0, n_listed = 0;
    for (int64_t i = 0; i < n_quads; i++) {
        const int64_t q = quads[i].quad, block = q / (BLOCK / 4);
        const uint8_t *codes = st->codes + q * 64;
        const int16_t *integers = p->integers + (2 * q * panel_rows + 16 * group) * 2;
        const float *units = p->units + block * panel_rows + 16 * group;
        const float *factors = st->factors + block * 16;
        for (; n_listed < block; n_listed++)
            list[n_listed] = residual_at(n_listed * BLOCK, 0, is_a);
        for (__mmask64 left = quads[i].elements; left; left &= left - 1, n++) {
            int e = __builtin_ctzll(left), row = e / 4, b = e % 4;
            if (n >= p->capacity)
                continue;
            int16_t integer = integers[(b & 1) * panel_rows * 2 + 2 * row + b / 2];
            float value = code_value(st->words, codes[e]) * factors[row];
            oct_vnni_residual r = residual_at(4 * q + b, (uint32_t)(16 * group + row), is_a);
            r.value = fmaf(-(float)integer, units[row], value);
            list[n_listed++] = r;
        }
    }
    for (; n_listed < n_blocks; n_listed++)
        list[n_listed] = residual_at(n_listed * BLOCK, 0, is_a);
    list[n_listed] = residual_at((n_blocks - 1) * BLOCK, 0, is_a);
    list[n_listed].next = 0;
    return n;
}

/* Integers of all quads. With place p = 15 - shift, an integer is significand * 2^8 * 2^p / 2^15,
 * rounded (vpmulhrsw); p is at most 15, and below 0 gives 0. Both factors are negated, since -2^15
 * is a 16-bit integer and 2^15 isn't. Returns the number of residuals, which
 * may exceed the list's capacity. */
OCT_INLINE int64_t align_quads(const tables *t, const rows16 *rows, const staging *st,
                               const oct_vnni_panel *p, int64_t group, int64_t panel_rows) {
    const int64_t stride = panel_rows * 4; /* bytes of a pair */
    char *integers = (char *)p->integers + group * 64;
    const __m512i low = _mm512_set1_epi16(0xff), minus_one = _mm512_set1_epi16(-1);
    __mmask64 listed = 0; /* bytes of rows that have residuals */
    for (int r = 0; r < 16; r++)
        listed |= rows->special >> r & 1 ? 0 : (__mmask64)15 << (4 * r);
    lossy_quad quads[OCT_VNNI_STEP / 4];
    quads[0] = (lossy_quad){0}; /* as gcc 14 can't see that there is a block */
    int64_t n_quads = 0;
    for (int64_t q = 0; q < rows->n_blocks * (BLOCK / 4); q++) {
        __m512i c = _mm512_load_si512(st->codes + q * 64);
        __m512i s = look_up(&t->significand, c);
        s = _mm512_mask_sub_epi8(s, ~_mm512_movepi8_mask(c), _mm512_setzero_si512(), s);
        __m512i place = _mm512_add_epi8(look_up(&t->exponent, c), rows->place[q / (BLOCK / 4)]);
        /* A zero's NOTHING may have wrapped around; its significand is 0. */
        __mmask64 lossy = _mm512_mask_cmplt_epi8_mask(listed, place, look_up(&t->least_place, c));
        __m512i even = _mm512_mulhrs_epi16(
            _mm512_slli_epi16(s, 8), _mm512_sllv_epi16(minus_one, _mm512_and_si512(place, low)));
        __m512i odd = _mm512_mulhrs_epi16(
            _mm512_andnot_si512(low, s), _mm512_sllv_epi16(minus_one, _mm512_srli_epi16(place, 8)));
        _mm512_store_si512(integers + (2 * q) * stride, even);
        _mm512_store_si512(integers + (2 * q + 1) * stride, odd);
        quads[n_quads] = (lossy_quad){lossy, q};
        n_quads += lossy != 0;
    }
    return list_residuals(st, p, group, panel_rows, rows->n_blocks, quads, n_quads);
}

static int64_t align_in_chunks(const tables *t, rows16 *rows, const staging *st,
                               const oct_vnni_panel *p, int64_t group, int64_t panel_rows,
                               int64_t chunk) {
    const int64_t blocks = chunk / BLOCK;
    for (int64_t b = 0; b < rows->n_blocks; b += blocks)
        choose_units(rows, b, b + blocks < rows->n_blocks ? b + blocks : rows->n_blocks,
                     p->units + 16 * group, panel_rows);
    return align_quads(t, rows, st, p, group, panel_rows);
}

/* A's residuals by k. */
static void spread_residuals(const oct_vnni_panel *p, int64_t n_blocks) {
    const __m512 zeros = _mm512_setzero_ps();
    const uint16_t first = (uint16_t)(((char *)p->lost - (char *)p->integers) / 64);
    int64_t n = 0;
    _mm512_store_ps(p->lost[0], zeros);
    for (int64_t k = 0; k < n_blocks * BLOCK; k += 32)
        _mm512_store_si512(p->lost_at + k, _mm512_set1_epi16((short)first));
    for (const oct_vnni_residual *r = p->residuals[0]; r->next > 0; r++) {
        if (r->value == 0)
            continue;
        uint16_t *at = p->lost_at + r->lost / sizeof *p->lost_at;
        if (*at == first) {
            *at = (uint16_t)(first + ++n);
            _mm512_store_ps(p->lost[n], zeros);
        }
        p->lost[*at - first][r->to / sizeof(float) / OCT_VNNI_NR] = r->value;
    }
}

/* Sixteen rows of a panel. */
static void pack_group(const tables *t, const oct_operand *x, int64_t row, __mmask16 lanes,
                       int64_t k, int64_t kc, const oct_vnni_panel *p, int64_t group,
                       int64_t panel_rows) {
    staging st;
    rows16 rows;
    st.words = oct_bf16_of_codes(x->dtype);
    oct_gather_codes(x, row, lanes, k, kc, st.codes);
    const int64_t n_blocks = oct_vnni_padded_k(kc) / BLOCK;
    rows.n_blocks = n_blocks;
    measure(t, st.codes, &rows);
    /* The padding's blocks have no scales of their own: those of the last real block will do. */
    const int64_t real_blocks = (kc + BLOCK - 1) / BLOCK;
    rows.n_blocks = real_blocks;
    look_at_scales(x, row, lanes, k, &rows, st.factors);
    for (int64_t b = real_blocks; b < n_blocks; b++) {
        rows.scale_exponent[b] = rows.scale_exponent[real_blocks - 1];
        _mm512_store_ps(st.factors + b * 16, _mm512_set1_ps(1));
    }
    rows.n_blocks = n_blocks;
    int64_t n = align_in_chunks(t, &rows, &st, p, group, panel_rows, OCT_VNNI_LONG_CHUNK);
    if (n > MANY_RESIDUALS * (kc / OCT_VNNI_LONG_CHUNK + 1)) {
        p->head->chunk = BLOCK;
        n = align_in_chunks(t, &rows, &st, p, group, panel_rows, BLOCK);
    }
    p->head->by_codes |= n > p->capacity;
    p->head->n_residuals[group] = (int32_t)(n > p->capacity ? p->capacity : n);
    p->head->special_rows |= (uint32_t)rows.special << (16 * group);
    if (panel_rows == A_ROWS)
        spread_residuals(p, n_blocks);
}

void oct_vnni_pack(const oct_gemm_source *from, void *bytes, int64_t panel_rows) {
    const oct_operand *x = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    oct_vnni_panel p = oct_vnni_panel_at(bytes, kc, panel_rows);
    *p.head = (oct_vnni_head){
        .source = x, .row = row, .k = k, .n_rows = (int32_t)n_rows, .chunk = OCT_VNNI_LONG_CHUNK};
    for (int64_t group = 0; group < panel_rows / 16; group++) {
        __mmask16 lanes = oct_lanes_below(n_rows - 16 * group);
        pack_group(tables_of(x->dtype), x, lanes ? row + 16 * group : row, lanes, k, kc, &p, group,
                   panel_rows);
    }
}
