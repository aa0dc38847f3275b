/* What each golden file asks of the scalar codecs and of every kernel set: see golden.h.
 *
 * A kernel is asked for the same value many times over in one call, so that its vector body and its
 * tail both answer. */
#include <inttypes.h>
#include <math.h>
#include <octet/format.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "expect.h"
#include "format/fp8.h"
#include "kernel/gemm/tuning.h"
#include "levels.h"

enum { MAX_N = 1 << 16 /* elements of one row of a file */ };

static const char *const fp8_names[] = {"e4m3", "e5m2", "hif8"};
static const oct_dtype fp8_dtypes[] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
static const char *const mode_names[] = {"floor", "ceil", "even", "rceil"}; /* oct_scale_mode */

size_t golden_sets(const kernel_set **out) {
    static kernel_set sets[MAX_KERNEL_SETS];
    static size_t n;
    if (n == 0)
        n = kernel_sets(sets);
    *out = sets;
    return n;
}

/* By dtype; what a refusal leaves is no code or value of any row. */
static uint8_t encoded(oct_dtype format, float x) {
    uint8_t code = (uint8_t)~oct_fp8_code(format, x);
    return oct_fp8_encode(format, x, &code) == OCT_OK ? code : (uint8_t)~oct_fp8_code(format, x);
}

static float decoded(oct_dtype format, uint8_t code) {
    float value = 12345;
    return oct_fp8_decode(format, code, &value) == OCT_OK ? value : 12345;
}

static uint8_t scale_of(float amax, oct_dtype format, oct_scale_mode mode) {
    uint8_t code = (uint8_t)~oct_mx_scale_code(amax, format, mode);
    oct_status status = oct_mx_scale(amax, format, mode, &code);
    return !status ? code : (uint8_t)~oct_mx_scale_code(amax, format, mode);
}

/* "When the expected value is a NaN, accept any NaN of that type." */
static bool is_nan_code(oct_dtype format, uint32_t code) {
    switch (format) {
    case OCT_E4M3:
        return (code & 0x7f) == 0x7f;
    case OCT_E5M2:
        return (code & 0x7f) > 0x7c;
    case OCT_HIF8:
        return code == 0x80;
    case OCT_E8M0:
        return code == 0xff;
    default:
        return isnan(to_float(code));
    }
}

static bool same(oct_dtype format, uint32_t expected, uint32_t got) {
    return expected == got || (is_nan_code(format, expected) && is_nan_code(format, got));
}

void expect(verdict *v, oct_dtype format, uint32_t expected, uint32_t got, const char *who,
            const char *what) {
    if (same(format, expected, got))
        return;
    if (v->agrees && v->log) {
        int digits = format == OCT_F32 ? 8 : 2;
        fprintf(v->log, "%s:%" PRId64 ": %s: %s; expected %0*x; got %0*x\n", v->row->path,
                v->row->line, who, what, digits, expected, digits, got);
    }
    v->agrees = false;
}

/* ---- decode_FMT ---- */

/* One code times one scale, by the product's packing (an operand with one element of K). */
static void expect_packed(verdict *v, oct_dtype format, uint8_t code, uint8_t scale,
                          uint32_t expected) {
    enum { MAX_PANEL = 64 };
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    uint8_t codes[MAX_PANEL], scales[MAX_PANEL];
    memset(codes, code, sizeof codes);
    memset(scales, scale, sizeof scales);
    oct_operand x = {.dtype = format,
                     .layout = OCT_K_CONTIGUOUS,
                     .data = codes,
                     .ld = 1,
                     .scaling = OCT_SCALING_MX,
                     .scales = scales,
                     .ld_scales = 1,
                     .block_rows = 1};
    for (size_t s = 0; s < n_sets; s++) {
        const oct_gemm_kernels *gemm = oct_gemm_exact_kernels(sets[s].kernels.gemm);
        _Alignas(64) float panel[MAX_PANEL + 16];
        memset(panel, POISON, sizeof panel);
        gemm->pack_a(&(oct_gemm_source){&x, 0, gemm->MR, 0, 1}, panel);
        for (int64_t i = 0; i < gemm->MR; i++)
            expect(v, OCT_F32, expected, to_bits(panel[i]), sets[s].name, "decoded in A");
        memset(panel, POISON, sizeof panel);
        gemm->pack_b(&(oct_gemm_source){&x, 0, gemm->NR, 0, 1}, panel);
        for (int64_t i = 0; i < gemm->NR; i++)
            expect(v, OCT_F32, expected, to_bits(panel[i]), sets[s].name, "decoded in B");
    }
}

static void expect_decoded(verdict *v, oct_dtype format, uint8_t code, float scale,
                           uint32_t expected) {
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    uint8_t codes[COPIES];
    float y[COPIES];
    memset(codes, code, sizeof codes);
    for (size_t s = 0; s < n_sets; s++) {
        memset(y, POISON, sizeof y);
        sets[s].kernels.quantize->decode_scaled(codes, 1, COPIES, COPIES, format, scale, y, COPIES);
        for (int i = 0; i < COPIES; i++)
            expect(v, OCT_F32, expected, to_bits(y[i]), sets[s].name, "decoded");
    }
}

static oct_status check_decode(const golden_row *row, oct_dtype format, bool *agrees, FILE *log,
                               oct_error *err) {
    verdict v = {row, log, true};
    uint32_t code, expected;
    oct_status status = golden_hex(row, 0, 2, &code, err);
    if (!status)
        status = golden_hex(row, 1, 8, &expected, err);
    if (status)
        return status;
    uint8_t byte = (uint8_t)code;
    if (format == OCT_E8M0) {
        expect(&v, OCT_F32, expected, to_bits(oct_e8m0_decode(byte)), "codec", "decoded");
        expect_packed(&v, OCT_E4M3, 0x38 /* 1.0 */, byte, expected);
    } else {
        float (*decode)(uint8_t) = format == OCT_E4M3   ? oct_e4m3_decode
                                   : format == OCT_E5M2 ? oct_e5m2_decode
                                                        : oct_hif8_decode;
        expect(&v, OCT_F32, expected, to_bits(decode(byte)), "codec", "decoded");
        expect(&v, OCT_F32, expected, to_bits(decoded(format, byte)), "by dtype", "decoded");
        expect_tensor_dequantized(&v, format, byte, 1, expected);
        if (format != OCT_HIF8)
            expect_mx_dequantized(&v, format, byte, 127 /* 1.0 */, expected);
        expect_decoded(&v, format, byte, 1, expected);
        expect_packed(&v, format, byte, 127 /* 1.0 */, expected);
    }
    *agrees = v.agrees;
    return OCT_OK;
}

static oct_status check_decode_e4m3(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_decode(row, OCT_E4M3, agrees, log, err);
}
static oct_status check_decode_e5m2(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_decode(row, OCT_E5M2, agrees, log, err);
}
static oct_status check_decode_e8m0(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_decode(row, OCT_E8M0, agrees, log, err);
}
static oct_status check_decode_hif8(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_decode(row, OCT_HIF8, agrees, log, err);
}

/* ---- encode_FMT ---- */

/* Kernels saturate; a scale of 1 leaves x as it is. */
static void expect_encoded(verdict *v, oct_dtype format, float x, uint32_t expected) {
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    float copies[COPIES];
    uint8_t codes[COPIES];
    for (int i = 0; i < COPIES; i++)
        copies[i] = x;
    oct_matrix_view view = {copies, OCT_F32, 1, COPIES, COPIES};
    for (size_t s = 0; s < n_sets; s++) {
        memset(codes, (int)~expected, sizeof codes);
        sets[s].kernels.quantize->scaled(&view, format, 1, codes, COPIES);
        for (int i = 0; i < COPIES; i++)
            expect(v, format, expected, codes[i], sets[s].name, "encoded");
    }
}

static oct_status read_encode_row(const golden_row *row, int n_codes, float *x, uint32_t *codes,
                                  oct_error *err) {
    uint32_t bits = 0;
    oct_status status = golden_hex(row, 0, 8, &bits, err);
    for (int i = 0; i < n_codes && !status; i++)
        status = golden_hex(row, 1 + i, 2, &codes[i], err);
    *x = to_float(bits);
    return status;
}

static oct_status check_encode_fp8(const golden_row *row, oct_dtype format,
                                   uint8_t (*encode)(float x, oct_overflow overflow), bool *agrees,
                                   FILE *log, oct_error *err) {
    verdict v = {row, log, true};
    float x;
    uint32_t code[2];
    oct_status status = read_encode_row(row, 2, &x, code, err);
    if (status)
        return status;
    expect(&v, format, code[0], encode(x, OCT_NO_SATURATE), "codec", "not saturating");
    expect(&v, format, code[1], encode(x, OCT_SATURATE), "codec", "saturating");
    expect(&v, format, code[1], encoded(format, x), "by dtype", "saturating");
    expect_encoded(&v, format, x, code[1]);
    expect_mx_quantized(&v, format, x, code[1]);
    expect_tensor_quantized(&v, format, x, code[1]);
    *agrees = v.agrees;
    return OCT_OK;
}

static oct_status check_encode_e4m3(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_encode_fp8(row, OCT_E4M3, oct_e4m3_encode, agrees, log, err);
}
static oct_status check_encode_e5m2(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    return check_encode_fp8(row, OCT_E5M2, oct_e5m2_encode, agrees, log, err);
}

static oct_status check_encode_hif8(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    static const struct {
        oct_hif8_rounding rounding;
        oct_overflow overflow;
        const char *what;
    } columns[4] = {{OCT_HIF8_TA, OCT_NO_SATURATE, "TA, not saturating"},
                    {OCT_HIF8_TA, OCT_SATURATE, "TA, saturating"},
                    {OCT_HIF8_HYBRID, OCT_NO_SATURATE, "hybrid, not saturating"},
                    {OCT_HIF8_HYBRID, OCT_SATURATE, "hybrid, saturating"}};
    verdict v = {row, log, true};
    float x;
    uint32_t code[4];
    oct_status status = read_encode_row(row, 4, &x, code, err);
    if (status)
        return status;
    for (int i = 0; i < 4; i++)
        expect(&v, OCT_HIF8, code[i], oct_hif8_encode(x, columns[i].rounding, columns[i].overflow),
               "codec", columns[i].what);
    expect(&v, OCT_HIF8, code[1], encoded(OCT_HIF8, x), "by dtype", "saturating");
    expect_encoded(&v, OCT_HIF8, x, code[1]);
    expect_tensor_quantized(&v, OCT_HIF8, x, code[1]);
    *agrees = v.agrees;
    return OCT_OK;
}

/* ---- mx_scale_FMT ---- */

/* Blocks that hold amax once, at every position and with either sign, else zeros. */
static void expect_block_scale(verdict *v, oct_dtype format, oct_scale_mode mode, float amax,
                               uint32_t expected) {
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    float x[OCT_MX_BLOCK * OCT_MX_BLOCK] = {0};
    uint8_t codes[OCT_MX_BLOCK * OCT_MX_BLOCK], scales[OCT_MX_BLOCK];
    for (int i = 0; i < OCT_MX_BLOCK; i++)
        x[i * OCT_MX_BLOCK + i] = i % 2 ? -amax : amax;
    oct_matrix_view view = {x, OCT_F32, OCT_MX_BLOCK, OCT_MX_BLOCK, OCT_MX_BLOCK};
    oct_mx_output out = {codes, OCT_MX_BLOCK, scales, 1};
    for (size_t s = 0; s < n_sets; s++) {
        memset(scales, (int)~expected, sizeof scales);
        sets[s].kernels.quantize->mx_rows(&view, format, mode, &out);
        for (int i = 0; i < OCT_MX_BLOCK; i++)
            expect(v, OCT_E8M0, expected, scales[i], sets[s].name, mode_names[mode]);
        memset(scales, (int)~expected, sizeof scales);
        sets[s].kernels.quantize->mx_cols(&view, format, mode, &out);
        for (int i = 0; i < OCT_MX_BLOCK; i++)
            expect(v, OCT_E8M0, expected, scales[i], sets[s].name, mode_names[mode]);
    }
}

static oct_status check_mx_scale(const golden_row *row, oct_dtype format, bool *agrees, FILE *log,
                                 oct_error *err) {
    verdict v = {row, log, true};
    uint32_t bits, expected[4];
    oct_status status = golden_hex(row, 0, 8, &bits, err);
    for (int i = 0; i < 4 && !status; i++)
        status = golden_hex(row, 1 + i, 2, &expected[i], err);
    if (status)
        return status;
    float amax = to_float(bits);
    for (int mode = OCT_SCALE_FLOOR; mode <= OCT_SCALE_RCEIL; mode++) {
        expect(&v, OCT_E8M0, expected[mode], scale_of(amax, format, (oct_scale_mode)mode), "codec",
               mode_names[mode]);
        expect_block_scale(&v, format, (oct_scale_mode)mode, amax, expected[mode]);
        expect_public_scale(&v, format, (oct_scale_mode)mode, amax, expected[mode]);
    }
    *agrees = v.agrees;
    return OCT_OK;
}

static oct_status check_mx_scale_e4m3(const golden_row *row, bool *agrees, FILE *log,
                                      oct_error *err) {
    return check_mx_scale(row, OCT_E4M3, agrees, log, err);
}
static oct_status check_mx_scale_e5m2(const golden_row *row, bool *agrees, FILE *log,
                                      oct_error *err) {
    return check_mx_scale(row, OCT_E5M2, agrees, log, err);
}

/* ---- mx_dequant ---- */

static oct_status check_mx_dequant(const golden_row *row, bool *agrees, FILE *log, oct_error *err) {
    verdict v = {row, log, true};
    size_t format;
    uint32_t scale, code, expected;
    oct_status status = golden_choice(row, 0, fp8_names, 2, &format, err);
    if (!status)
        status = golden_hex(row, 1, 2, &scale, err);
    if (!status)
        status = golden_hex(row, 2, 2, &code, err);
    if (!status)
        status = golden_hex(row, 3, 8, &expected, err);
    if (status)
        return status;
    oct_dtype dtype = fp8_dtypes[format];
    float factor = oct_e8m0_decode((uint8_t)scale);
    float product = oct_fp8_value(dtype, (uint8_t)code) * factor;
    expect(&v, OCT_F32, expected, to_bits(product), "codec", "element times scale");
    expect_decoded(&v, dtype, (uint8_t)code, factor, expected);
    expect_packed(&v, dtype, (uint8_t)code, (uint8_t)scale, expected);
    expect_tensor_dequantized(&v, dtype, (uint8_t)code, factor, expected);
    expect_mx_dequantized(&v, dtype, (uint8_t)code, (uint8_t)scale, expected);
    *agrees = v.agrees;
    return OCT_OK;
}

/* ---- mx_quant ---- */

static void free_mx_case(mx_case *c) {
    oct_free(c->bits);
    oct_free(c->scales);
    oct_free(c->codes);
    oct_free(c->x);
    oct_free(c->out_codes);
    oct_free(c->out_scales);
}

static oct_status read_mx_case(const golden_row *row, mx_case *c, oct_error *err) {
    size_t format, mode;
    oct_status status = golden_choice(row, 1, fp8_names, 2, &format, err);
    if (!status)
        status = golden_choice(row, 2, mode_names, 4, &mode, err);
    if (!status)
        status = golden_decimal(row, 3, MAX_N, &c->n, err);
    if (status)
        return status;
    c->format = fp8_dtypes[format];
    c->mode = (oct_scale_mode)mode;
    c->n_blocks = (c->n + OCT_MX_BLOCK - 1) / OCT_MX_BLOCK;
    size_t n = (size_t)c->n, n_blocks = (size_t)c->n_blocks;
    c->bits = oct_malloc_array(n, sizeof *c->bits);
    c->scales = oct_malloc_array(n_blocks, sizeof *c->scales);
    c->codes = oct_malloc_array(n, sizeof *c->codes);
    c->x = oct_malloc_array(n * LINES, sizeof *c->x);
    c->out_codes = oct_malloc_array(n * LINES, 1);
    c->out_scales = oct_malloc_array(n_blocks * LINES, 1);
    if (!c->bits || !c->scales || !c->codes || !c->x || !c->out_codes || !c->out_scales)
        return oct_fail_memory(err);
    status = golden_hex_list(row, 4, 8, c->n, c->bits, err);
    if (!status)
        status = golden_hex_list(row, 5, 2, c->n_blocks, c->scales, err);
    return !status ? golden_hex_list(row, 6, 2, c->n, c->codes, err) : status;
}

static void expect_mx_codec(verdict *v, const mx_case *c) {
    for (int64_t first = 0; first < c->n; first += OCT_MX_BLOCK) {
        int64_t end = first + OCT_MX_BLOCK < c->n ? first + OCT_MX_BLOCK : c->n;
        float amax = 0;
        for (int64_t i = first; i < end; i++) {
            float magnitude = fabsf(to_float(c->bits[i]));
            amax = magnitude <= amax ? amax : magnitude; /* a NaN is kept */
            if (isnan(amax))
                break;
        }
        uint8_t scale = oct_mx_scale_code(amax, c->format, c->mode);
        expect(v, OCT_E8M0, c->scales[first / OCT_MX_BLOCK], scale, "codec", "scale");
        for (int64_t i = first; i < end; i++) {
            double quotient = ldexp((double)to_float(c->bits[i]), 127 - scale);
            float element = scale == 255 ? NAN : (float)quotient;
            expect(v, c->format, c->codes[i], oct_fp8_code(c->format, element), "codec", "code");
        }
    }
}

/* What no right result is, in every place of the output. */
void poison_mx(const mx_case *c) {
    for (int64_t i = 0; i < LINES * c->n_blocks; i++)
        c->out_scales[i] = (uint8_t)~c->scales[i % c->n_blocks];
    for (int64_t i = 0; i < LINES * c->n; i++)
        c->out_codes[i] = (uint8_t)~c->codes[i % c->n];
}

void expect_mx_lines(verdict *v, const mx_case *c, const char *who, const char *what) {
    for (int64_t line = 0; line < LINES; line++) {
        for (int64_t i = 0; i < c->n_blocks; i++)
            expect(v, OCT_E8M0, c->scales[i], c->out_scales[line * c->n_blocks + i], who, what);
        for (int64_t i = 0; i < c->n; i++)
            expect(v, c->format, c->codes[i], c->out_codes[line * c->n + i], who, what);
    }
}

void lay_in_rows(const mx_case *c) {
    for (int64_t i = 0; i < LINES * c->n; i++)
        c->x[i] = to_float(c->bits[i % c->n]);
}

void lay_in_columns(const mx_case *c) {
    for (int64_t i = 0; i < LINES * c->n; i++)
        c->x[i] = to_float(c->bits[i / LINES]);
}

static void expect_mx_kernels(verdict *v, const mx_case *c) {
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    oct_mx_output out = {c->out_codes, c->n, c->out_scales, c->n_blocks};
    for (size_t s = 0; s < n_sets; s++) {
        const oct_quantize_kernels *kernels = sets[s].kernels.quantize;
        lay_in_rows(c);
        poison_mx(c);
        oct_matrix_view rows = {c->x, OCT_F32, LINES, c->n, c->n};
        kernels->mx_rows(&rows, c->format, c->mode, &out);
        expect_mx_lines(v, c, sets[s].name, "mx_rows");
        poison_mx(c);
        oct_matrix_view row = {c->x, OCT_F32, 1, c->n, c->n};
        kernels->mx_tiles(&row, c->format, c->mode, &out);
        for (int64_t i = 0; i < c->n; i++)
            expect(v, c->format, c->codes[i], c->out_codes[i], sets[s].name, "mx_tiles");
        for (int64_t i = 0; i < c->n_blocks; i++)
            expect(v, OCT_E8M0, c->scales[i], c->out_scales[i], sets[s].name, "mx_tiles");
        lay_in_columns(c);
        poison_mx(c);
        oct_matrix_view cols = {c->x, OCT_F32, c->n, LINES, LINES};
        kernels->mx_cols(&cols, c->format, c->mode, &out);
        expect_mx_lines(v, c, sets[s].name, "mx_cols");
    }
}

static oct_status check_mx_quant(const golden_row *row, bool *agrees, FILE *log, oct_error *err) {
    verdict v = {row, log, true};
    mx_case c = {0};
    oct_status status = read_mx_case(row, &c, err);
    if (!status) {
        expect_mx_codec(&v, &c);
        expect_mx_kernels(&v, &c);
        expect_public_mx(&v, &c);
    }
    free_mx_case(&c);
    *agrees = v.agrees;
    return status;
}

/* ---- hif8_tensor ---- */

static void expect_hif8_tensor(verdict *v, const float *x, int64_t n, float target, uint32_t scale,
                               const uint32_t *codes, uint8_t *out) {
    const kernel_set *sets;
    size_t n_sets = golden_sets(&sets);
    oct_matrix_view view = {x, OCT_F32, 1, n, n};
    for (size_t s = 0; s < n_sets; s++) {
        const oct_quantize_kernels *kernels = sets[s].kernels.quantize;
        float got = oct_scale_from_amax(kernels->amax(&view), target);
        expect(v, OCT_F32, scale, to_bits(got), sets[s].name, "scale");
        for (int64_t i = 0; i < n; i++)
            out[i] = (uint8_t)~codes[i];
        kernels->scaled(&view, OCT_HIF8, got, out, n);
        for (int64_t i = 0; i < n; i++) {
            uint8_t scalar = oct_hif8_encode(x[i] / got, OCT_HIF8_TA, OCT_SATURATE);
            expect(v, OCT_HIF8, codes[i], scalar, "codec", "code");
            expect(v, OCT_HIF8, codes[i], out[i], sets[s].name, "code");
        }
    }
}

static oct_status check_hif8_tensor(const golden_row *row, bool *agrees, FILE *log,
                                    oct_error *err) {
    verdict v = {row, log, true};
    int64_t target, n;
    uint32_t scale, *bits = NULL, *codes = NULL;
    float *x = NULL;
    uint8_t *out = NULL;
    oct_status status = golden_decimal(row, 1, 1 << 20, &target, err);
    if (!status)
        status = golden_decimal(row, 2, MAX_N, &n, err);
    if (status)
        return status;
    bits = oct_malloc_array((size_t)n, sizeof *bits);
    codes = oct_malloc_array((size_t)n, sizeof *codes);
    x = oct_malloc_array((size_t)n, sizeof *x);
    out = oct_malloc_array((size_t)n, 1);
    if (!bits || !codes || !x || !out) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    status = golden_hex_list(row, 3, 8, n, bits, err);
    if (!status)
        status = golden_hex(row, 4, 8, &scale, err);
    if (!status)
        status = golden_hex_list(row, 5, 2, n, codes, err);
    if (status)
        goto cleanup;
    for (int64_t i = 0; i < n; i++)
        x[i] = to_float(bits[i]);
    expect_hif8_tensor(&v, x, n, (float)target, scale, codes, out);
    expect_public_tensor(&v, x, n, (float)target, scale, codes, out);
    *agrees = v.agrees;
cleanup:
    oct_free(bits);
    oct_free(codes);
    oct_free(x);
    oct_free(out);
    return status;
}

const golden_file golden_files[] = {
    {"decode_e4m3.csv", "code,fp32", check_decode_e4m3},
    {"decode_e5m2.csv", "code,fp32", check_decode_e5m2},
    {"decode_e8m0.csv", "code,fp32", check_decode_e8m0},
    {"decode_hif8.csv", "code,fp32", check_decode_hif8},
    {"encode_e4m3.csv", "x,nosat,sat", check_encode_e4m3},
    {"encode_e5m2.csv", "x,nosat,sat", check_encode_e5m2},
    {"encode_hif8.csv", "x,ta_nosat,ta_sat,hybrid_nosat,hybrid_sat", check_encode_hif8},
    {"mx_scale_e4m3.csv", "amax,floor,ceil,even,rceil", check_mx_scale_e4m3},
    {"mx_scale_e5m2.csv", "amax,floor,ceil,even,rceil", check_mx_scale_e5m2},
    {"mx_quant.csv", "case,fmt,mode,n,x,scales,codes", check_mx_quant},
    {"mx_dequant.csv", "fmt,scale,code,fp32", check_mx_dequant},
    {"hif8_tensor.csv", "case,target,n,x,scale,codes", check_hif8_tensor},
};
const size_t golden_n_files = OCT_COUNT(golden_files);
