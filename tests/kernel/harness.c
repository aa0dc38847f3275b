/* See harness.h. */
#include "harness.h"

#include <math.h>
#include <octet/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "format/fp8.h"

guarded guarded_alloc(size_t n_bytes, size_t element_bytes, placement where) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (n_bytes + 256 + page - 1) / page * page;
    unsigned char *all =
        mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all, page, PROT_NONE) != 0 ||
        mprotect(all + page + inner, page, PROT_NONE) != 0) {
        perror("guarded_alloc");
        exit(1);
    }
    guarded g = {.n_bytes = n_bytes, .pages = all + page, .n_page_bytes = inner};
    memset(g.pages, GUARD_BYTE, inner);
    size_t at = where == AT_PAGE_END     ? inner - n_bytes
                : where == AT_PAGE_START ? 0
                                         : 64 + element_bytes;
    g.data = g.pages + at;
    return g;
}

static bool all_guards(const unsigned char *from, const unsigned char *to) {
    for (; from < to; from++)
        if (*from != GUARD_BYTE)
            return false;
    return true;
}

bool guarded_intact(const guarded *g) {
    return all_guards(g->pages, g->data) &&
           all_guards(g->data + g->n_bytes, g->pages + g->n_page_bytes);
}

void guarded_free(guarded *g) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(g->pages - page, g->n_page_bytes + 2 * page);
    *g = (guarded){0};
}

bool gaps_intact(const guarded *g, int64_t rows, size_t row_bytes, size_t stride_bytes) {
    for (int64_t r = 0; r + 1 < rows; r++) {
        const unsigned char *row = g->data + (size_t)r * stride_bytes;
        if (!all_guards(row + row_bytes, row + stride_bytes))
            return false;
    }
    return true;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A code's value, or the middle between it and the next, or an fp32 step beside that. */
static float near_tie(uint32_t draw) {
    static const oct_dtype formats[] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
    oct_dtype format = formats[draw % 3];
    uint8_t code = (uint8_t)(draw >> 8 & 0x7e);
    float low = oct_fp8_value(format, code), high = oct_fp8_value(format, code + 1);
    float middle = isfinite(low) && isfinite(high) ? low + (high - low) / 2 : 464;
    float x = draw >> 16 & 1 ? middle : low;
    switch (draw >> 17 & 3) {
    case 0:
        x = nextafterf(x, INFINITY);
        break;
    case 1:
        x = nextafterf(x, -INFINITY);
        break;
    default:
        break;
    }
    return draw >> 19 & 1 ? -x : x;
}

static float near_scale_edge(uint32_t draw) {
    static const float bases[] = {448, 57344, 1, 1.9375f, 1.875f, 464, 61440, 15, 224, 32768};
    float x = ldexpf(bases[draw % 10], (int)(draw >> 8 & 63) - 32);
    switch (draw >> 16 & 3) {
    case 0:
        x = nextafterf(x, INFINITY);
        break;
    case 1:
        x = nextafterf(x, 0);
        break;
    default:
        break;
    }
    return draw >> 18 & 1 ? -x : x;
}

float hostile_number(flavour kind, uint64_t stream, uint64_t i) {
    oct_rng_block draw = oct_rng_draw(20, stream, i);
    float gaussian = oct_rng_normal(21, stream, i);
    uint32_t word = draw.word[0];
    switch (kind) {
    case GAUSSIAN:
        return gaussian;
    case WIDE:
        return ldexpf(gaussian, (int)(word % 241) - 120);
    case TINY:
        return from_bits((word & 0x80000000u) | (word % 5 ? word & 0x00ffffffu : 0));
    case TIES:
        return near_tie(word);
    case EDGES:
        return near_scale_edge(word);
    case WITH_NANS:
        if (word % 97 == 0)
            return from_bits(0x7f800000u | (draw.word[1] & 0x80400001u));
        return gaussian;
    case ZEROS:
        return word & 1 ? -0.0f : 0.0f;
    case RANDOM_BITS:
    case N_FLAVOURS:
        break;
    }
    return from_bits(word);
}

void hostile_fill(void *to, oct_dtype dtype, int64_t n, flavour kind, uint64_t stream) {
    for (int64_t i = 0; i < n; i++) {
        float x = hostile_number(kind, stream, (uint64_t)i);
        if (dtype == OCT_F32)
            memcpy((unsigned char *)to + i * 4, &x, 4);
        else
            ((uint16_t *)to)[i] = oct_bf16_encode(x);
    }
}

bool same_float(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void report_skipped_sets(void) {
    oct_cpu_features cpu = oct_cpu_detect();
    for (int level = (int)cpu.level + 1; level < OCT_N_CPU_LEVELS; level++)
        printf("SKIPPED: %s lacks %s, its kernels are not tested here\n", oct_cpu_model_name(),
               oct_cpu_level_name((oct_cpu_level)level));
    if (!cpu.avx512_bf16)
        printf("SKIPPED: %s lacks AVX512-BF16, its kernels are not tested here\n",
               oct_cpu_model_name());
    if (!cpu.amx_bf16)
        printf("SKIPPED: %s lacks AMX-BF16, its kernels are not tested here\n",
               oct_cpu_model_name());
    if (cpu.level == OCT_CPU_AVX512 && !(cpu.avx512_vnni && cpu.avx512_vbmi))
        printf("SKIPPED: %s lacks AVX512-VNNI or VBMI, their kernels are not tested here\n",
               oct_cpu_model_name());
}
