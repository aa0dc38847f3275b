/* `fast` products in AMX: every 8-bit value and every power of two is exact in bf16, so operands
 * become bf16 tiles, their MX scales relative to one exponent a row (and step of K), and tdpbf16ps
 * multiplies 16x32 by 32x16. Products are exact; only the fp32 accumulation rounds, and none of its
 * terms is lost: it flushes subnormals, but a row's exponents are centred such that no product, nor
 * any difference of products, comes near them.
 *
 * A row of a step that has a NaN, an Inf, or scales too far apart or too extreme for that is
 * special: its elements of C are computed from the operand in fp32, fused multiply-adds in order of
 * k, as `exact` does.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm/amx/tile_config.h"
#include "kernel/gemm/bf16/pack_by_bits.h"
#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/vectors_avx512.h"

enum { R = OCT_BF16_ROWS, TILE_BYTES = OCT_BF16_TILE_BYTES };

/* --- multiplying --- */

alignas(64) static const oct_tile_config all_tiles_whole = {
    .palette = 1,
    .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* A pair of panels: its sums, what they're added to (NULL: nothing) and where they go. */
typedef struct pair pair;
struct pair {
    const oct_bf16_head *a, *b;
    const float *first, *second;
    int64_t ld_first, ld_second;
    float *to;
    int64_t ld_to, n_rows, n_cols;
    oct_bf16_sums *s;
    void (*finish)(const pair *p, int64_t from, int64_t end); /* rows */
};

/* Sixteen sums with their rows' scales. */
OCT_INLINE __m512 scaled_sums(const pair *p, int64_t i, int64_t j) {
    __m512 x = _mm512_mul_ps(_mm512_load_ps(p->s->x[i] + j), _mm512_set1_ps(p->a->unit[i]));
    return _mm512_mul_ps(x, _mm512_load_ps(p->b->unit + j));
}

/* The end of 16 sums, of columns j .. j + 15: added and written. */
OCT_INLINE void finish_sums(const pair *p, int64_t i, int64_t j, __mmask16 mask, __m512 x) {
    if (p->first)
        x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, p->first + i * p->ld_first + j), x);
    if (p->second)
        x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, p->second + i * p->ld_second + j), x);
    _mm512_mask_storeu_ps(p->to + i * p->ld_to + j, mask, x);
}

static void finish_any(const pair *p, int64_t from, int64_t end) {
    for (int64_t i = from; i < end; i++)
        for (int64_t j = 0; j < R; j += 16)
            finish_sums(p, i, j, oct_lanes_below(p->n_cols - j), scaled_sums(p, i, j));
}

/* The usual cases, where all columns are there and at most one thing is added. */
OCT_INLINE void finish_whole(const pair *p, int64_t from, int64_t end, bool adds, bool streams) {
    const __m512 unit[2] = {_mm512_load_ps(p->b->unit), _mm512_load_ps(p->b->unit + 16)};
    const float *units = p->a->unit, *add = adds ? p->first + from * p->ld_first : p->to;
    float *to = p->to + from * p->ld_to;
    for (int64_t i = from; i < end; i++) {
        const __m512 row_unit = _mm512_set1_ps(units[i]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512 x = _mm512_mul_ps(_mm512_load_ps(p->s->x[i] + 16 * j), row_unit);
            x = _mm512_mul_ps(x, unit[j]);
            if (adds)
                x = _mm512_add_ps(_mm512_loadu_ps(add + 16 * j), x);
            if (streams)
                _mm512_stream_ps(to + 16 * j, x);
            else
                _mm512_storeu_ps(to + 16 * j, x);
        }
        to += p->ld_to;
        if (adds)
            add += p->ld_first;
    }
}

static void finish_kept(const pair *p, int64_t from, int64_t end) {
    finish_whole(p, from, end, false, false);
}

static void finish_kept_sum(const pair *p, int64_t from, int64_t end) {
    finish_whole(p, from, end, true, false);
}

static void finish_streamed(const pair *p, int64_t from, int64_t end) {
    finish_whole(p, from, end, false, true);
}

static void finish_streamed_sum(const pair *p, int64_t from, int64_t end) {
    finish_whole(p, from, end, true, true);
}

/* Tiles of a panel that is read once by this block shouldn't push out of L1 the one that stays. */
#define LOAD(tile, address, streams)                                                               \
    do {                                                                                           \
        if (streams)                                                                               \
            _tile_stream_loadd(tile, address, 64);                                                 \
        else                                                                                       \
            _tile_loadd(tile, address, 64);                                                        \
    } while (0)

/* Lines of memory that are to come to L2 while a block is multiplied. */
typedef struct prefetcher {
    const char *row;
    int64_t ld, n_lines, line; /* rows of n_lines; `line` is the next of the first */
    int64_t n_all, n_steps, due;
} prefetcher;

static prefetcher prefetcher_make(const oct_gemm_source *source, int64_t n_steps) {
    const oct_operand *x = source->operand;
    if (!x || source->n_rows <= 0)
        return (prefetcher){.n_steps = n_steps};
    bool contiguous = x->layout == OCT_K_CONTIGUOUS;
    int64_t p = contiguous ? source->row : source->k, q = contiguous ? source->k : source->row;
    int64_t n_rows = contiguous ? source->n_rows : source->kc;
    const int64_t size = (int64_t)oct_dtype_bytes(x->dtype);
    int64_t n_lines = ((contiguous ? source->kc : source->n_rows) * size + 63) / 64;
    return (prefetcher){.row = (const char *)x->data + (p * x->ld + q) * size,
                        .ld = x->ld * size,
                        .n_lines = n_lines,
                        .n_all = n_lines * n_rows,
                        .n_steps = n_steps};
}

OCT_INLINE void prefetch_line(prefetcher *f) {
    _mm_prefetch(f->row + 64 * f->line, _MM_HINT_T1);
    if (++f->line == f->n_lines) {
        f->line = 0;
        f->row += f->ld;
    }
}

/* Fetches during the steps of a block, evenly: credit grows each step by as many lines as there
 * are, and each line costs the number of steps. */
OCT_INLINE void prefetch_share(prefetcher *f) {
    for (f->due += f->n_all; f->due >= f->n_steps; f->due -= f->n_steps)
        prefetch_line(f);
}

static int64_t tile_steps(int64_t kc) {
    return (kc + OCT_BF16_PAIR - 1) / OCT_BF16_PAIR * 2;
}

/* One of eight parts of packing a block, for between the tile instructions. The barriers keep them
 * there: the compiler would gather them, and move stores above the loads of what they replace. */
OCT_INLINE void pack_share(oct_bf16_packer *p, oct_bf16_half *h, int share) {
    if (!p)
        return;
    const oct_bf16_bits t = p->bits;
    const int half = share / 4;
    __asm__ volatile("" ::: "memory");
    switch (share % 4) {
    case 0:
        oct_bf16_half_begin(p, half, h);
        break;
    case 1:
        oct_bf16_half_pairs(h, 0);
        oct_bf16_half_words(h, &t, 0, 0);
        oct_bf16_half_words(h, &t, 0, 1);
        break;
    case 2:
        oct_bf16_half_words(h, &t, 0, 2);
        oct_bf16_half_words(h, &t, 0, 3);
        oct_bf16_half_pairs(h, 1);
        break;
    default:
        oct_bf16_half_words(h, &t, 1, 0);
        oct_bf16_half_words(h, &t, 1, 1);
        oct_bf16_half_words(h, &t, 1, 2);
        oct_bf16_half_words(h, &t, 1, 3);
        if (!oct_bf16_all_normal(h->least))
            oct_bf16_pack_half(p, half);
        if (half == 1)
            p->at += OCT_MX_BLOCK;
    }
    __asm__ volatile("" ::: "memory");
}

/* A step of 32 of k. Where `packer` isn't NULL, the block of B that it multiplies with is replaced
 * meanwhile. */
OCT_INLINE void multiply_step(const char *a, const char *b, bool a_streams,
                              oct_bf16_packer *packer) {
    oct_bf16_half h;
    LOAD(6, b, !a_streams);
    LOAD(4, a, a_streams);
    pack_share(packer, &h, 0);
    LOAD(7, b + TILE_BYTES, !a_streams);
    pack_share(packer, &h, 1);
    _tile_dpbf16ps(0, 4, 6);
    pack_share(packer, &h, 2);
    LOAD(5, a + TILE_BYTES, a_streams);
    pack_share(packer, &h, 3);
    _tile_dpbf16ps(1, 4, 7);
    pack_share(packer, &h, 4);
    pack_share(packer, &h, 5);
    _tile_dpbf16ps(2, 5, 6);
    pack_share(packer, &h, 6);
    _tile_dpbf16ps(3, 5, 7);
    pack_share(packer, &h, 7);
}

/* Multiplies a pair, and meanwhile finishes the one before, and packs what is to take the place of
 * B's panel (NULL: nothing): the tile unit needs few of the core's instructions. */
OCT_INLINE void multiply_tiles(const pair *p, int64_t kc, const pair *before, prefetcher *f,
                               oct_bf16_packer *next, bool a_streams) {
    const char *a = (const char *)p->a + OCT_BF16_HEAD_BYTES,
               *b = (const char *)p->b + OCT_BF16_HEAD_BYTES;
    const int64_t n_steps = tile_steps(kc), begin = n_steps / 8;
    const int64_t rows_a_step = (R + n_steps - begin - 1) / (n_steps - begin);
    int64_t row = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < n_steps; k++) {
        if (next && next->at < next->bits_end)
            multiply_step(a, b, a_streams, next);
        else
            multiply_step(a, b, a_streams, NULL);
        a += 2 * TILE_BYTES;
        b += 2 * TILE_BYTES;
        /* The sums have just been stored: a few steps later they can be loaded without waiting. */
        if (k >= begin && row < before->n_rows) {
            int64_t end = row + rows_a_step < before->n_rows ? row + rows_a_step : before->n_rows;
            before->finish(before, row, end);
            row = end;
        }
        prefetch_share(f);
    }
    _tile_stored(0, p->s->x[0], sizeof p->s->x[0]);
    _tile_stored(1, p->s->x[0] + 16, sizeof p->s->x[0]);
    _tile_stored(2, p->s->x[16], sizeof p->s->x[0]);
    _tile_stored(3, p->s->x[16] + 16, sizeof p->s->x[0]);
}

/* Finishes a pair that has special rows. */
static __attribute__((noinline)) void finish_special(pair *p, int64_t kc) {
    oct_bf16_sums e;
    oct_bf16_multiply_operands(&p->a->operand, p->a->row, p->a->n_rows, &p->b->operand, p->b->row,
                               p->b->n_rows, p->a->k, kc, &e);
    for (int64_t i = 0; i < p->n_rows; i++) {
        uint32_t columns = p->a->special >> i & 1 ? 0xffffffffu : p->b->special;
        for (int64_t j = 0; j < R; j += 16)
            finish_sums(p, i, j, oct_lanes_below(p->n_cols - j),
                        _mm512_mask_mov_ps(scaled_sums(p, i, j), (__mmask16)(columns >> j),
                                           _mm512_load_ps(e.x[i] + j)));
    }
    p->n_rows = 0;
}

/* The pair at row i and column j of a block. */
OCT_INLINE pair pair_at(const oct_gemm_block *block, int64_t i, int64_t j, oct_bf16_sums *s) {
    float *acc = block->acc + i * block->ld_acc + j;
    pair p = {.a = (const oct_bf16_head *)(block->a + (size_t)(i / R) * block->a_stride),
              .b = (const oct_bf16_head *)(block->b + (size_t)(j / R) * block->b_stride),
              .first = block->accumulate == OCT_ADD_TO_OUTPUT ? acc : NULL,
              .ld_first = block->ld_acc,
              .to = acc,
              .ld_to = block->ld_acc,
              .n_rows = block->n_rows - i < R ? block->n_rows - i : R,
              .n_cols = block->n_cols - j < R ? block->n_cols - j : R,
              .s = s};
    bool streams = block->output == OCT_OUTPUT_STREAMED;
    if (block->c) {
        p.to = block->c + i * block->ld_c + j;
        p.ld_to = p.ld_second = block->ld_c;
        p.second = block->c_accumulate == OCT_ADD_TO_OUTPUT ? p.to : NULL;
        streams &= ((uintptr_t)p.to | (uintptr_t)p.ld_to * sizeof(float)) % 64 == 0;
    } else {
        streams = false;
    }
    if (p.n_cols < R || (p.first && p.second))
        p.finish = finish_any;
    else if (p.first || p.second)
        p.finish = streams ? finish_streamed_sum : finish_kept_sum;
    else
        p.finish = streams ? finish_streamed : finish_kept;
    if (p.second && !p.first) {
        p.first = p.second;
        p.ld_first = p.ld_second;
        p.second = NULL;
    }
    return p;
}

OCT_INLINE void multiply_pairs(const oct_gemm_block *block, bool a_streams) {
    oct_bf16_sums s[2];
    pair before = {.n_rows = 0};
    int turn = 0;
    int64_t n_pairs = ((block->n_rows + R - 1) / R) * ((block->n_cols + R - 1) / R);
    prefetcher f = prefetcher_make(&block->fetch, n_pairs * tile_steps(block->kc));
    oct_bf16_packer packer;
    const oct_gemm_source *next = n_pairs > 0 && block->next.n_rows > 0 ? &block->next : NULL;
    _tile_loadconfig(&all_tiles_whole);
    for (int64_t i = 0; i < block->n_rows; i += R)
        for (int64_t j = 0; j < block->n_cols; j += R) {
            pair p = pair_at(block, i, j, &s[turn]);
            bool packs = next && --n_pairs == 0;
            if (packs)
                oct_bf16_pack_begin(&packer, next, block->next_panel);
            multiply_tiles(&p, block->kc, &before, &f, packs ? &packer : NULL, a_streams);
            if (p.a->special | p.b->special)
                finish_special(&p, block->kc);
            before = p;
            turn ^= 1;
        }
    _tile_release();
    if (before.n_rows > 0)
        before.finish(&before, 0, before.n_rows);
    if (next && n_pairs == 0) {
        while (packer.at < packer.end)
            oct_bf16_pack_block(&packer);
        oct_bf16_pack_end(&packer);
    }
    if (block->output == OCT_OUTPUT_STREAMED)
        _mm_sfence();
}

static void multiply_block(const oct_gemm_block *block) {
    if (block->n_rows > R)
        multiply_pairs(block, true);
    else
        multiply_pairs(block, false);
}

const oct_gemm_kernels oct_gemm_kernels_amx = {
    .MR = R,
    .NR = R,
    .k_step = OCT_BF16_STEP,
    .a_bytes_per_k = R * sizeof(uint16_t),
    .a_bytes_fixed = OCT_BF16_HEAD_BYTES + (OCT_BF16_PAIR - 1) * R * sizeof(uint16_t),
    .b_bytes_per_k = R * sizeof(uint16_t),
    .b_bytes_fixed = OCT_BF16_HEAD_BYTES + (OCT_BF16_PAIR - 1) * R * sizeof(uint16_t),
    .pack_a = oct_bf16_pack_a,
    .pack_b = oct_bf16_pack_b,
    .multiply_block = multiply_block,
    .store = oct_gemm_store_avx512,
};
