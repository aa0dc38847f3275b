/* The public API through its headers alone: any layout and block against the definition, element by
 * element (exact.h), and what must never change a result. */
#include "story.h"

#include <math.h>
#include <octet/octet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "exact.h"

#define SIZED(type, ...) ((type){.struct_size = sizeof(type), __VA_ARGS__})

enum { MAX = 160 * 160 };

static float normal(int i) { /* spread over some binades, by a hash of i */
    uint32_t h = (uint32_t)i * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return ldexpf((float)((int)(h & 0xffff) - 0x8000) / 0x8000, (int)(h >> 28) - 8);
}

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = normal(i);
}

static oct_matrix matrix(oct_dtype dtype, const void *data, int64_t rows, int64_t cols) {
    return SIZED(oct_matrix, .dtype = dtype, .data = (void *)(uintptr_t)data, .rows = rows,
                 .cols = cols, .row_stride = cols, .col_stride = 1);
}

static int64_t extent(int64_t block, int64_t n) {
    return block ? block : n;
}

/* The scale that the definition gives to the block of (r, c). */
static double expected_scale(const oct_quantizer *q, const float *x, int64_t R, int64_t C,
                             int64_t r, int64_t c) {
    const int64_t br = extent(q->block_rows, R), bc = extent(q->block_cols, C);
    double amax = 0;
    for (int64_t i = r / br * br; i < R && i < (r / br + 1) * br; i++)
        for (int64_t j = c / bc * bc; j < C && j < (c / bc + 1) * bc; j++)
            amax = fmax(amax, fabs((double)x[i * C + j]));
    if (q->scale_dtype == OCT_E8M0)
        return exact_mx_scale(amax, q->format, q->scale_mode);
    return amax == 0 ? 1 : (double)(float)(amax / (double)q->target);
}

/* Of all blocks, by rows of blocks. */
static void expected_scales(const oct_quantizer *q, const float *x, int64_t R, int64_t C,
                            double *out) {
    for (int64_t r = 0; r < R; r += extent(q->block_rows, R))
        for (int64_t c = 0; c < C; c += extent(q->block_cols, C))
            *out++ = expected_scale(q, x, R, C, r, c);
}

static double scale_at(const oct_coded *q, int64_t r, int64_t c) {
    const int64_t i = r / extent(q->block_rows, q->rows) * q->scale_row_stride +
                      c / extent(q->block_cols, q->cols) * q->scale_col_stride;
    return q->scale_dtype == OCT_E8M0 ? (double)oct_e8m0_decode(((uint8_t *)q->scales)[i])
                                      : (double)((float *)q->scales)[i];
}

static void check_block(oct_dtype format, oct_dtype scale, int64_t br, int64_t bc,
                        bool by_columns) {
    enum { R = 70, C = 133 };
    static float x[R * C], turned[R * C];
    static uint8_t codes[R * C];
    static float scales[R * C];
    oct_quantizer q = SIZED(oct_quantizer, .format = format, .scale_dtype = scale, .block_rows = br,
                            .block_cols = bc, .scale_mode = OCT_SCALE_RCEIL, .source = OCT_F32);
    float largest;
    int64_t down, across;
    fill(x, R * C);
    for (int i = 0; i < R * C; i++)
        turned[i % C * R + i / C] = x[i];
    assert_int_equal(oct_fp8_max(format, &largest), OCT_OK);
    assert_int_equal(oct_quantizer_scales(&q, R, C, &down, &across), OCT_OK);
    q.target = largest;
    oct_matrix source = matrix(OCT_F32, by_columns ? turned : x, R, C);
    oct_coded out = SIZED(oct_coded, .codes = codes, .row_stride = C, .col_stride = 1,
                          .scales = scales, .scale_row_stride = across, .scale_col_stride = 1);
    if (by_columns) {
        source.row_stride = out.row_stride = 1;
        source.col_stride = out.col_stride = R;
        out.scale_row_stride = 1;
        out.scale_col_stride = down;
    }
    static double expected_of_block[R * C];
    expected_scales(&q, x, R, C, expected_of_block);
    memset(codes, 0x55, sizeof codes);
    assert_int_equal(oct_matrix_quantize(&q, &source, &out, 2), OCT_OK);
    assert_int_equal(out.rows, R);
    assert_int_equal(out.block_cols, bc);
    static float y[R * C];
    const oct_matrix back = matrix(OCT_F32, y, R, C);
    assert_int_equal(oct_matrix_dequantize(&out, &back, 2), OCT_OK);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            const double expected =
                expected_of_block[r / extent(br, R) * across + c / extent(bc, C)];
            const double quotient = (double)(float)((double)x[r * C + c] / expected);
            const uint8_t code = codes[r * out.row_stride + c * out.col_stride];
            assert_that(scale_at(&out, r, c) == expected &&
                            exact_value(format, code) == exact_rounded(format, quotient),
                        "%s %dx%d %s (%d,%d): scale %g, expected %g; code %02x of %g",
                        oct_dtype_name(format), (int)br, (int)bc, by_columns ? "by columns" : "",
                        (int)r, (int)c, scale_at(&out, r, c), expected, code, quotient);
            assert_true((double)y[r * C + c] ==
                        (double)(float)(exact_value(format, code) * expected));
        }
}

static void given_any_block_and_layout_elements_follow_the_definition(void **state) {
    (void)state;
    static const int64_t blocks[][2] = {{1, 32},    {32, 1}, {32, 32}, {1, 16}, {1, 128}, {128, 1},
                                        {128, 128}, {0, 0},  {1, 0},   {0, 1},  {65, 7}};
    for (size_t i = 0; i < OCT_COUNT(blocks); i++)
        for (int by_columns = 0; by_columns < 2; by_columns++) {
            for (int f = OCT_E4M3; f <= OCT_E5M2; f++)
                check_block((oct_dtype)f, OCT_E8M0, blocks[i][0], blocks[i][1], by_columns);
            for (int f = OCT_E4M3; f <= OCT_HIF8; f++)
                check_block((oct_dtype)f, OCT_F32, blocks[i][0], blocks[i][1], by_columns);
        }
}

/* What `quantize` and its twin of the plain functions give of the same matrix. */
static void given_mx_by_rows_it_is_what_the_plain_function_gives_of_any_source(void **state) {
    (void)state;
    enum { R = 67, C = 300 };
    static float x[R * C];
    static uint16_t halves[R * C];
    static uint8_t plain[R * C], plain_scales[R * C], codes[R * C], scales[R * C];
    fill(x, R * C);
    for (int i = 0; i < R * C; i++)
        halves[i] = oct_bf16_encode(x[i]);
    for (int mode = OCT_SCALE_FLOOR; mode <= OCT_SCALE_RCEIL; mode++)
        for (int rounded = 0; rounded < 2; rounded++) {
            oct_quantizer q =
                SIZED(oct_quantizer, .format = OCT_E4M3, .scale_dtype = OCT_E8M0, .block_rows = 1,
                      .block_cols = 32, .scale_mode = (oct_scale_mode)mode,
                      .source = rounded ? OCT_BF16 : OCT_F32);
            const oct_matrix source = matrix(OCT_F32, x, R, C);
            oct_coded out = SIZED(oct_coded, .codes = codes, .row_stride = C, .col_stride = 1,
                                  .scales = scales, .scale_row_stride = 10, .scale_col_stride = 1);
            assert_int_equal(oct_mx_quantize(rounded ? (void *)halves : (void *)x,
                                             rounded ? OCT_BF16 : OCT_F32, R, C, OCT_E4M3,
                                             (oct_scale_mode)mode, plain, plain_scales),
                             OCT_OK);
            assert_int_equal(oct_matrix_quantize(&q, &source, &out, 0), OCT_OK);
            assert_memory_equal(codes, plain, R * C);
            assert_memory_equal(scales, plain_scales, R * 10);
        }
}

static void given_fp16_with_gaps_it_is_read_as_its_fp32_values(void **state) {
    (void)state;
    enum { R = 5, C = 64 };
    static uint16_t halves[R * C * 3];
    static float x[R * C], y[R * C];
    static uint8_t codes[R * C], expected[R * C], scales[R * 2], expected_scales[R * 2];
    for (int i = 0; i < R * C; i++) {
        halves[i * 3] = (uint16_t)(0x2c00 + i * 7 % 0x1800) | (uint16_t)(i % 2 << 15);
        x[i] = ldexpf((float)(1024 + (halves[i * 3] & 1023)), (halves[i * 3] >> 10 & 31) - 25) *
               (i % 2 ? -1.0f : 1.0f);
    }
    oct_quantizer q = SIZED(oct_quantizer, .format = OCT_E5M2, .scale_dtype = OCT_E8M0,
                            .block_rows = 1, .block_cols = 32, .source = OCT_F32);
    oct_matrix source = matrix(OCT_F16, halves, R, C);
    source.row_stride = C * 3;
    source.col_stride = 3;
    oct_coded out = SIZED(oct_coded, .codes = codes, .row_stride = C, .col_stride = 1,
                          .scales = scales, .scale_row_stride = 2, .scale_col_stride = 1);
    assert_int_equal(oct_matrix_quantize(&q, &source, &out, 1), OCT_OK);
    assert_int_equal(
        oct_mx_quantize(x, OCT_F32, R, C, OCT_E5M2, OCT_SCALE_FLOOR, expected, expected_scales),
        OCT_OK);
    assert_memory_equal(codes, expected, R * C);
    assert_memory_equal(scales, expected_scales, R * 2);
    const oct_matrix back = matrix(OCT_F32, y, R, C);
    assert_int_equal(oct_matrix_dequantize(&out, &back, 0), OCT_OK);
    for (int i = 0; i < R * C; i++)
        assert_true((double)y[i] == exact_value(OCT_E5M2, codes[i]) * scale_at(&out, i / C, i % C));
}

/* Of E4M3's positive codes the neighbours of x in magnitude. */
static void given_a_rounding_codes_are_the_neighbour_that_it_says(void **state) {
    (void)state;
    enum { N = 4096 };
    static float x[N];
    static uint8_t codes[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i / 8;
    oct_codec codec = SIZED(oct_codec, .format = OCT_E4M3, .rounding = OCT_ROUND_AWAY,
                            .overflow = OCT_SATURATE, .seed = 7);
    assert_int_equal(oct_encode_array(&codec, x, OCT_F32, N, codes, 3), OCT_OK);
    for (int i = 0; i < N; i++) {
        const double value = exact_value(OCT_E4M3, codes[i]), error = fabs(value - (double)x[i]);
        if (codes[i] < 0x7e) { /* no other is nearer; one as near is smaller */
            assert_true(error <= fabs(exact_value(OCT_E4M3, codes[i] + 1) - (double)x[i]));
            assert_true(error != fabs(exact_value(OCT_E4M3, codes[i] + 1) - (double)x[i]));
        }
        if (codes[i] > 0 && codes[i] < 0x7e)
            assert_true(error <= fabs(exact_value(OCT_E4M3, codes[i] - 1) - (double)x[i]));
    }
}

static void given_stochastic_rounding_the_mean_is_the_number_and_the_counter_decides(void **state) {
    (void)state;
    enum { N = 40000 };
    static float x[N];
    static uint8_t codes[N], tail[N];
    static const struct {
        oct_dtype format;
        float x;
    } cases[] = {{OCT_E4M3, 17.3f},
                 {OCT_E5M2, -0.0007f},
                 {OCT_HIF8, 300.0f},
                 {OCT_E4M3, 0x1p-10f},
                 {OCT_HIF8, 0x1.8p-24f}};
    for (size_t k = 0; k < OCT_COUNT(cases); k++) {
        oct_codec codec =
            SIZED(oct_codec, .format = cases[k].format, .rounding = OCT_ROUND_STOCHASTIC,
                  .overflow = OCT_SATURATE, .seed = 5, .counter = 100);
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (int i = 0; i < N; i++)
            x[i] = cases[k].x;
        assert_int_equal(oct_encode_array(&codec, x, OCT_F32, N, codes, 2), OCT_OK);
        for (int i = 0; i < N; i++) {
            const double value = exact_value(cases[k].format, codes[i]);
            sum += value;
            low = fmin(low, value);
            high = fmax(high, value);
        }
        assert_true(low <= (double)x[0] && (double)x[0] <= high && low < high);
        assert_true(fabs(sum / N - (double)x[0]) < 5 * (high - low) / 2 / sqrt(N));
        codec.counter += 1000;
        assert_int_equal(oct_encode_array(&codec, x, OCT_F32, N - 1000, tail, 1), OCT_OK);
        assert_memory_equal(tail, codes + 1000, N - 1000);
    }
}

static void given_arrays_of_bf16_and_fp16_they_are_read_and_written_as_such(void **state) {
    (void)state;
    const uint16_t halves[3] = {0x3fc0, 0xc3fa, 0x4000}; /* bf16: 1.5, -500, 2 */
    const uint16_t fp16[3] = {0x3e00, 0xdfd0, 0x4000};   /* the same */
    uint8_t codes[3];
    uint16_t out[3];
    oct_codec codec = SIZED(oct_codec, .format = OCT_E4M3, .overflow = OCT_SATURATE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            oct_encode_array(&codec, i ? fp16 : halves, i ? OCT_F16 : OCT_BF16, 3, codes, 0),
            OCT_OK);
        assert_true(codes[0] == 0x3c && codes[1] == 0xfe && codes[2] == 0x40);
        assert_int_equal(oct_decode_array(OCT_E4M3, codes, 3, out, i ? OCT_F16 : OCT_BF16, 0),
                         OCT_OK);
        assert_int_equal(out[0], i ? fp16[0] : halves[0]);
        assert_int_equal(out[1], i ? 0xdf00 : 0xc3e0); /* -448 */
    }
    codec.overflow = OCT_NO_SATURATE;
    assert_int_equal(oct_encode_array(&codec, halves, OCT_BF16, 3, codes, 0), OCT_OK);
    assert_int_equal(codes[1], 0xff);
}

static void given_arrays_of_codes_every_value_comes_back(void **state) {
    (void)state;
    uint8_t all[256], codes[256];
    float values[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (int f = OCT_E4M3; f <= OCT_HIF8; f++) {
        oct_codec codec = SIZED(oct_codec, .format = (oct_dtype)f, .overflow = OCT_NO_SATURATE);
        assert_int_equal(oct_decode_array((oct_dtype)f, all, 256, values, OCT_F32, 0), OCT_OK);
        assert_int_equal(oct_encode_array(&codec, values, OCT_F32, 256, codes, 0), OCT_OK);
        for (int i = 0; i < 256; i++) {
            assert_true(isnan(values[i]) || (double)values[i] == exact_value((oct_dtype)f, i));
            assert_true(isnan(values[i]) || codes[i] == i);
        }
    }
    assert_int_equal(oct_decode_array(OCT_E8M0, all, 256, values, OCT_F32, 0), OCT_OK);
    for (int i = 0; i < 255; i++)
        assert_true((double)values[i] == ldexp(1, i - 127));
    assert_true(isnan(values[255]));
}

/* ---- products ---- */

typedef struct operand {
    float x[MAX];
    uint8_t codes[MAX];
    float scales[MAX];
    oct_coded q;
} operand;

static void make(operand *o, const char *recipe, int64_t rows, int64_t cols, bool by_columns) {
    oct_quantizer q = SIZED(oct_quantizer, 0);
    int64_t down, across;
    fill(o->x, (int)(rows * cols));
    assert_int_equal(oct_quantizer_preset(recipe, NULL, OCT_USE_INPUT, 1, &q, NULL), OCT_OK);
    assert_int_equal(oct_quantizer_scales(&q, rows, cols, &down, &across), OCT_OK);
    const oct_matrix x = matrix(OCT_F32, o->x, rows, cols);
    o->q = SIZED(oct_coded, .codes = o->codes, .row_stride = by_columns ? 1 : cols,
                 .col_stride = by_columns ? rows : 1, .scales = o->scales,
                 .scale_row_stride = by_columns ? 1 : across,
                 .scale_col_stride = by_columns ? down : 1);
    assert_int_equal(oct_matrix_quantize(&q, &x, &o->q, 1), OCT_OK);
}

/* docs/numerics.md, `exact`: sums of 512 k by fused multiply-add, added in order, then C, bias. */
static float exact_element(const oct_coded *a, const oct_coded *b, int64_t m, int64_t n, float c,
                           const float *bias) {
    float sum = 0;
    for (int64_t first = 0; first < a->cols; first += 512) {
        float part = 0;
        for (int64_t k = first; k < a->cols && k < first + 512; k++) {
            const uint8_t x = ((uint8_t *)a->codes)[m * a->row_stride + k * a->col_stride];
            const uint8_t y = ((uint8_t *)b->codes)[n * b->row_stride + k * b->col_stride];
            part = fmaf((float)(exact_value(a->format, x) * scale_at(a, m, k)),
                        (float)(exact_value(b->format, y) * scale_at(b, n, k)), part);
        }
        sum = first ? sum + part : part;
    }
    return (c + sum) + (bias ? bias[n] : 0);
}

static void
given_operands_of_any_block_and_layout_exact_products_have_the_defined_bits(void **state) {
    (void)state;
    enum { M = 9, N = 21, K = 130 };
    static const char *recipes[] = {"mxfp8",      "e4m3:mx32x32", "e5m2:tensor", "hif8:channel",
                                    "e4m3:1x128", "e4m3:128x128", "hif8:3x5"};
    static operand a, b;
    float c[M * N], before[M * N], bias[N];
    fill(bias, N);
    for (size_t i = 0; i < 7; i++)
        for (int layout = 0; layout < 4; layout++) {
            make(&a, recipes[i], M, K, layout & 1);
            make(&b, recipes[6 - i], N, K, layout & 2);
            fill(c, M * N);
            memcpy(before, c, sizeof c);
            const oct_product p =
                SIZED(oct_product, .a = &a.q, .b = &b.q, .c = c, .c_dtype = OCT_F32, .ld_c = N,
                      .accumulate = layout > 1, .bias = layout % 2 ? bias : NULL);
            assert_int_equal(oct_multiply(&p, 1, OCT_PRODUCT_EXACT, 2), OCT_OK);
            for (int e = 0; e < M * N; e++) {
                const float expected =
                    exact_element(&a.q, &b.q, e / N, e % N, layout > 1 ? before[e] : 0, p.bias);
                assert_that(c[e] == expected, "%s x %s, layout %d, %d: %a, expected %a", recipes[i],
                            recipes[6 - i], layout, e, (double)c[e], (double)expected);
            }
        }
}

static void given_a_group_of_products_each_has_the_bits_that_it_has_alone(void **state) {
    (void)state;
    static operand a[3], b[3];
    static float grouped[3][40 * 40], alone[40 * 40];
    static uint16_t halves[40 * 40];
    static const int64_t sizes[3][3] = {{40, 40, 64}, {1, 33, 150}, {17, 8, 32}};
    oct_product products[3];
    for (int mode = OCT_PRODUCT_AUTO; mode <= OCT_PRODUCT_EXACT; mode++) {
        for (int i = 0; i < 3; i++) {
            make(&a[i], "mxfp8", sizes[i][0], sizes[i][2], false);
            make(&b[i], "mxfp8", sizes[i][1], sizes[i][2], false);
            products[i] = SIZED(oct_product, .a = &a[i].q, .b = &b[i].q, .c = grouped[i],
                                .c_dtype = OCT_F32, .ld_c = sizes[i][1]);
        }
        assert_int_equal(oct_multiply(products, 3, (oct_product_mode)mode, 2), OCT_OK);
        for (int i = 0; i < 3; i++) {
            const size_t n = (size_t)(sizes[i][0] * sizes[i][1]);
            products[i].c = alone;
            assert_int_equal(oct_multiply(&products[i], 1, (oct_product_mode)mode, 1), OCT_OK);
            assert_memory_equal(alone, grouped[i], n * sizeof(float));
            products[i].c = halves;
            products[i].c_dtype = OCT_BF16;
            assert_int_equal(oct_multiply(&products[i], 1, (oct_product_mode)mode, 1), OCT_OK);
            for (size_t e = 0; e < n; e++)
                assert_int_equal(halves[e], oct_bf16_encode(alone[e]));
        }
    }
}

/* ---- what quantizing cost ---- */

static void given_a_quantized_matrix_its_statistics_are_those_of_its_elements(void **state) {
    (void)state;
    static const float x[8] = {928, 930, -1000, 1e-9f, 0, 6, INFINITY, NAN};
    uint8_t codes[8] = {0x7e, 0x7e, 0xfe, 0, 0, 0x44, 0x7e, 0x7f};
    float scale = 2;
    const oct_matrix m = matrix(OCT_F32, x, 1, 8);
    const oct_coded q =
        SIZED(oct_coded, .format = OCT_E4M3, .rows = 1, .cols = 8, .codes = codes, .row_stride = 8,
              .col_stride = 1, .scale_dtype = OCT_F32, .scales = &scale);
    oct_statistics s = SIZED(oct_statistics, 0);
    assert_int_equal(oct_matrix_measure(&m, &q, &s, 0), OCT_OK);
    assert_int_equal(s.n, 8);
    assert_int_equal(s.n_special, 2);
    assert_int_equal(s.n_zero, 1);
    assert_int_equal(s.n_underflow, 1);
    assert_int_equal(s.n_saturated, 2);
    const double noise = 32 * 32 + 34 * 34 + 104 * 104 + 1e-18;
    assert_true(fabs(s.noise - noise) < 1e-9 && s.max_error == 104);
    assert_true(fabs(s.sqnr_db - 10 * log10(s.signal / s.noise)) < 1e-12);
    assert_true(fabs(s.signal - (928.0 * 928 + 930.0 * 930 + 1000.0 * 1000 + 36)) < 1e-9);
}

/* ---- what is refused ---- */

static void given_arguments_that_make_no_sense_nothing_is_written(void **state) {
    (void)state;
    static float x[64], y[64];
    uint8_t codes[64], scales[2];
    memset(codes, 0x33, sizeof codes);
    const oct_matrix good_x = matrix(OCT_F32, x, 2, 32);
    const oct_quantizer good_q = SIZED(oct_quantizer, .format = OCT_E4M3, .scale_dtype = OCT_E8M0,
                                       .block_rows = 1, .block_cols = 32, .source = OCT_F32);
    const oct_coded good_out =
        SIZED(oct_coded, .codes = codes, .row_stride = 32, .col_stride = 1, .scales = scales,
              .scale_row_stride = 1, .scale_col_stride = 1);
    for (int i = 0; i < 21; i++) {
        oct_matrix m = good_x;
        oct_quantizer q = good_q;
        oct_coded out = good_out;
        int threads = 0;
        switch (i) {
        case 0:
            m.struct_size = 0;
            break;
        case 1:
            m.dtype = OCT_E4M3;
            break;
        case 2:
            m.data = NULL;
            break;
        case 3:
            m.rows = -1;
            break;
        case 4:
            m.rows = INT64_MAX;
            m.cols = 3;
            break;
        case 5:
            q.struct_size--;
            break;
        case 6:
            q.format = OCT_HIF8;
            break;
        case 7:
            q.format = OCT_F32;
            break;
        case 8:
            q.scale_dtype = OCT_BF16;
            break;
        case 9:
            q.block_cols = -32;
            break;
        case 10:
            q.scale_mode = (oct_scale_mode)9;
            break;
        case 11:
            q.rounding = OCT_ROUND_HYBRID;
            break;
        case 12:
            q.quirks = 1u << 31;
            break;
        case 13:
            q.target = -1;
            break;
        case 14:
            q.source = OCT_F16;
            break;
        case 15:
            out.codes = NULL;
            break;
        case 16:
            out.scales = NULL;
            break;
        case 17:
            out.row_stride = 31;
            break;
        case 18:
            out.scale_row_stride = 0;
            break;
        case 19:
            threads = -1;
            break;
        case 20:
            q.target = NAN;
            break;
        }
        assert_that(oct_matrix_quantize(&q, &m, &out, threads) == OCT_INVALID, "case %d", i);
        for (int k = 0; k < 64; k++)
            assert_int_equal(codes[k], 0x33);
    }
    assert_int_equal(oct_matrix_quantize(NULL, &good_x, (oct_coded *)&good_out, 0), OCT_INVALID);
    assert_int_equal(oct_matrix_quantize(&good_q, NULL, (oct_coded *)&good_out, 0), OCT_INVALID);
    assert_int_equal(oct_matrix_quantize(&good_q, &good_x, NULL, 0), OCT_INVALID);
    oct_coded coded = good_out;
    assert_int_equal(oct_matrix_quantize(&good_q, &good_x, &coded, 0), OCT_OK);
    const oct_matrix good_y = matrix(OCT_F32, y, 2, 32), short_y = matrix(OCT_F32, y, 2, 31);
    assert_int_equal(oct_matrix_dequantize(&coded, &short_y, 0), OCT_INVALID);
    oct_coded no_scale = coded;
    no_scale.scales = NULL;
    assert_int_equal(oct_matrix_dequantize(&no_scale, &good_y, 0), OCT_INVALID);
    oct_product p =
        SIZED(oct_product, .a = &coded, .b = &no_scale, .c = y, .c_dtype = OCT_F32, .ld_c = 2);
    assert_int_equal(oct_multiply(&p, 1, OCT_PRODUCT_AUTO, 0), OCT_INVALID);
    p.b = &coded;
    p.c_dtype = OCT_F16;
    assert_int_equal(oct_multiply(&p, 1, OCT_PRODUCT_AUTO, 0), OCT_INVALID);
    p.c_dtype = OCT_F32;
    p.ld_c = 1;
    assert_int_equal(oct_multiply(&p, 1, OCT_PRODUCT_AUTO, 0), OCT_INVALID);
    assert_int_equal(oct_multiply(NULL, 1, OCT_PRODUCT_AUTO, 0), OCT_INVALID);
    const oct_codes bare = {OCT_E4M3, codes, NULL, 0}; /* neither kind of scale */
    assert_int_equal(oct_codes_multiply(&bare, &bare, 2, 2, 32, y), OCT_INVALID);
    assert_int_equal(
        oct_mx_quantize(NULL, OCT_F32, 2, 32, OCT_E4M3, OCT_SCALE_FLOOR, codes, scales),
        OCT_INVALID);
    assert_int_equal(oct_mx_dequantize(codes, NULL, 2, 32, OCT_E4M3, y), OCT_INVALID);
    assert_int_equal(oct_tensor_quantize(x, OCT_F32, 2, 32, OCT_HIF8, 15, codes, NULL),
                     OCT_INVALID);
    assert_int_equal(oct_tensor_dequantize(codes, 1, 2, 32, OCT_E8M0, y), OCT_INVALID);
}

static void given_structs_of_a_newer_header_unknown_fields_may_only_be_zero(void **state) {
    (void)state;
    struct {
        oct_matrix m;
        int64_t unknown;
    } newer = {.m = {.struct_size = sizeof newer, .dtype = OCT_F32}};
    oct_quantizer q = SIZED(oct_quantizer, .format = OCT_E4M3, .scale_dtype = OCT_E8M0,
                            .block_rows = 1, .block_cols = 32, .source = OCT_F32);
    oct_coded out = SIZED(oct_coded, .codes = NULL);
    assert_int_equal(oct_matrix_quantize(&q, &newer.m, &out, 0), OCT_OK);
    newer.unknown = 1;
    assert_int_equal(oct_matrix_quantize(&q, &newer.m, &out, 0), OCT_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_block_and_layout_elements_follow_the_definition),
        cmocka_unit_test(given_mx_by_rows_it_is_what_the_plain_function_gives_of_any_source),
        cmocka_unit_test(given_fp16_with_gaps_it_is_read_as_its_fp32_values),
        cmocka_unit_test(given_a_rounding_codes_are_the_neighbour_that_it_says),
        cmocka_unit_test(given_stochastic_rounding_the_mean_is_the_number_and_the_counter_decides),
        cmocka_unit_test(given_arrays_of_bf16_and_fp16_they_are_read_and_written_as_such),
        cmocka_unit_test(given_arrays_of_codes_every_value_comes_back),
        cmocka_unit_test(
            given_operands_of_any_block_and_layout_exact_products_have_the_defined_bits),
        cmocka_unit_test(given_a_group_of_products_each_has_the_bits_that_it_has_alone),
        cmocka_unit_test(given_a_quantized_matrix_its_statistics_are_those_of_its_elements),
        cmocka_unit_test(given_arguments_that_make_no_sense_nothing_is_written),
        cmocka_unit_test(given_structs_of_a_newer_header_unknown_fields_may_only_be_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
