/* What golden rows expect of the public functions: see expect.h.
 *
 * Nothing here encodes or decodes: inputs and expected values are those of the files. Outputs are
 * filled with wrong values first, so that what isn't written is seen. */
#include <math.h>

#include "expect.h"

enum { N_BLOCKS = (COPIES + OCT_MX_BLOCK - 1) / OCT_MX_BLOCK };

/* Puts the next kernel set with quantizers of its own in force, from *i on, and names it. After the
 * last: NULL, and the table of before again. */
static const char *use_next(size_t *i) {
    static oct_kernels before;
    const kernel_set *sets;
    const size_t n_sets = golden_sets(&sets);
    if (*i == 0)
        before = *oct_kernels_current();
    while (*i > 0 && *i < n_sets && sets[*i].kernels.quantize == sets[*i - 1].kernels.quantize)
        ++*i;
    if (*i >= n_sets) {
        oct_kernels_use(before);
        return NULL;
    }
    oct_kernels_use(sets[*i].kernels);
    return sets[(*i)++].name;
}

static void expect_ok(verdict *v, oct_status status, const char *who, const char *what) {
    expect(v, OCT_F32, OCT_OK, (uint32_t)status, who, what);
}

void expect_mx_dequantized(verdict *v, oct_dtype format, uint8_t code, uint8_t scale,
                           uint32_t expected) {
    enum { ROWS = 3 };
    uint8_t codes[ROWS * COPIES], scales[ROWS * N_BLOCKS];
    float y[ROWS * COPIES];
    memset(codes, code, sizeof codes);
    memset(scales, scale, sizeof scales);
    memset(y, POISON, sizeof y);
    expect_ok(v, oct_mx_dequantize(codes, scales, ROWS, COPIES, format, y), "oct_mx_dequantize",
              "status");
    for (int i = 0; i < ROWS * COPIES; i++)
        expect(v, OCT_F32, expected, to_bits(y[i]), "oct_mx_dequantize", "decoded");
}

void expect_tensor_dequantized(verdict *v, oct_dtype format, uint8_t code, float scale,
                               uint32_t expected) {
    const char *set;
    uint8_t codes[2 * COPIES];
    float y[2 * COPIES];
    memset(codes, code, sizeof codes);
    for (size_t s = 0; (set = use_next(&s));) {
        memset(y, POISON, sizeof y);
        expect_ok(v, oct_tensor_dequantize(codes, scale, 2, COPIES, format, y), set, "status");
        for (int i = 0; i < 2 * COPIES; i++)
            expect(v, OCT_F32, expected, to_bits(y[i]), set, "oct_tensor_dequantize");
    }
}

static bool is_bf16(float x) {
    return (to_bits(x) & 0xffff) == 0;
}

/* x as F32, or as BF16 where that holds it: its dtype, and the numbers in `out`. */
static oct_dtype narrowest(const float *x, int n, void *out) {
    uint16_t *halves = out;
    for (int i = 0; i < n; i++)
        if (!is_bf16(x[i])) {
            memcpy(out, x, (size_t)n * sizeof *x);
            return OCT_F32;
        }
    for (int i = 0; i < n; i++)
        halves[i] = (uint16_t)(to_bits(x[i]) >> 16);
    return OCT_BF16;
}

typedef oct_status mx_quantizer(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                                oct_dtype format, oct_scale_mode mode, uint8_t *codes,
                                uint8_t *scales);
static const struct {
    const char *name;
    mx_quantizer *quantize;
} mx_quantizers[] = {{"oct_mx_quantize", oct_mx_quantize},
                     {"oct_mx_quantize_transposed", oct_mx_quantize_transposed}};

/* Blocks that begin with the format's largest power of two: with mode floor their scale is 1. */
void expect_mx_quantized(verdict *v, oct_dtype format, float x, uint32_t expected) {
    enum { N = OCT_MX_BLOCK, R = 3 };
    const char *set;
    const float force = format == OCT_E4M3 ? 256 : 32768;
    float values[R * N], source[R * N];
    uint8_t codes[R * N], scales[R];
    if (!(fabsf(x) < 2 * force))
        return;
    for (int q = 0; q < 2; q++) { /* R x N, then N x R that is written transposed */
        for (int i = 0; i < R * N; i++)
            values[i] = (q == 0 ? i % N : i / R) == 0 ? force : x;
        const oct_dtype dtype = narrowest(values, R * N, source);
        for (size_t s = 0; (set = use_next(&s));) {
            memset(codes, (int)~expected, sizeof codes);
            memset(scales, POISON, sizeof scales);
            expect_ok(v,
                      mx_quantizers[q].quantize(source, dtype, q == 0 ? R : N, q == 0 ? N : R,
                                                format, OCT_SCALE_FLOOR, codes, scales),
                      set, "status");
            for (int i = 0; i < R * N; i++)
                if (i % N != 0)
                    expect(v, format, expected, codes[i], set, mx_quantizers[q].name);
            for (int i = 0; i < R; i++)
                expect(v, OCT_E8M0, 127, scales[i], set, mx_quantizers[q].name);
        }
    }
}

/* The target is the largest value of the format and in the matrix, so the scale is 1. */
void expect_tensor_quantized(verdict *v, oct_dtype format, float x, uint32_t expected) {
    const char *set;
    const float largest = format == OCT_E4M3 ? 448 : format == OCT_E5M2 ? 57344 : 32768;
    float values[2 * COPIES], source[2 * COPIES];
    uint8_t codes[2 * COPIES];
    if (!(fabsf(x) <= largest))
        return;
    for (int i = 0; i < 2 * COPIES; i++)
        values[i] = x;
    values[0] = largest;
    const oct_dtype dtype = narrowest(values, 2 * COPIES, source);
    for (size_t s = 0; (set = use_next(&s));) {
        float scale = 0;
        memset(codes, (int)~expected, sizeof codes);
        expect_ok(v, oct_tensor_quantize(source, dtype, 2, COPIES, format, largest, codes, &scale),
                  set, "status");
        expect(v, OCT_F32, 0x3f800000 /* 1.0 */, to_bits(scale), set, "oct_tensor_quantize");
        for (int i = 1; i < 2 * COPIES; i++)
            expect(v, format, expected, codes[i], set, "oct_tensor_quantize");
    }
}

/* Blocks that hold amax once, at every position and with either sign, else zeros. */
void expect_public_scale(verdict *v, oct_dtype format, oct_scale_mode mode, float amax,
                         uint32_t expected) {
    const char *set;
    enum { N = OCT_MX_BLOCK };
    float values[N * N] = {0}, source[N * N];
    uint8_t codes[N * N], scales[N];
    for (int i = 0; i < N; i++)
        values[i * N + i] = i % 2 ? -amax : amax;
    const oct_dtype dtype = narrowest(values, N * N, source);
    for (int q = 0; q < 2; q++)
        for (size_t s = 0; (set = use_next(&s));) {
            memset(scales, (int)~expected, sizeof scales);
            expect_ok(v,
                      mx_quantizers[q].quantize(source, dtype, N, N, format, mode, codes, scales),
                      set, "status");
            for (int i = 0; i < N; i++)
                expect(v, OCT_E8M0, expected, scales[i], set, mx_quantizers[q].name);
        }
}

void expect_public_mx(verdict *v, const mx_case *c) {
    const char *set;
    expect(v, OCT_F32, (uint32_t)(LINES * c->n_blocks), (uint32_t)oct_mx_scale_bytes(LINES, c->n),
           "oct_mx_scale_bytes", "bytes");
    for (size_t s = 0; (set = use_next(&s));) {
        lay_in_rows(c);
        poison_mx(c);
        expect_ok(v,
                  oct_mx_quantize(c->x, OCT_F32, LINES, c->n, c->format, c->mode, c->out_codes,
                                  c->out_scales),
                  set, "status");
        expect_mx_lines(v, c, set, "oct_mx_quantize");
        lay_in_columns(c);
        poison_mx(c);
        expect_ok(v,
                  oct_mx_quantize_transposed(c->x, OCT_F32, c->n, LINES, c->format, c->mode,
                                             c->out_codes, c->out_scales),
                  set, "status");
        expect_mx_lines(v, c, set, "oct_mx_quantize_transposed");
    }
}

void expect_public_tensor(verdict *v, const float *x, int64_t n, float target, uint32_t scale,
                          const uint32_t *codes, uint8_t *out) {
    const char *set;
    for (size_t s = 0; (set = use_next(&s));) {
        float got = 0;
        for (int64_t i = 0; i < n; i++)
            out[i] = (uint8_t)~codes[i];
        expect_ok(v, oct_tensor_quantize(x, OCT_F32, 1, n, OCT_HIF8, target, out, &got), set,
                  "status");
        expect(v, OCT_F32, scale, to_bits(got), set, "oct_tensor_quantize");
        for (int64_t i = 0; i < n; i++)
            expect(v, OCT_HIF8, codes[i], out[i], set, "oct_tensor_quantize");
    }
}
