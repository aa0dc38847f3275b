/* What must never change a result of the public API: the caller's floating-point mode, and other
 * threads that call, or set the number of threads, meanwhile. Runs under ThreadSanitizer too. */
#include "story.h"

#include <fenv.h>
#include <math.h>
#include <octet/octet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define SIZED(type, ...) ((type){.struct_size = sizeof(type), __VA_ARGS__})

enum { R = 150, C = 200, N_PRESETS = 9, ROUNDS = 12 };

/* Everything that the functions gave. */
typedef struct results {
    uint8_t codes[N_PRESETS][R * C], transposed[R * C], stochastic[R * C], scalar[3][256];
    float scales[N_PRESETS][R * C], values[N_PRESETS][R * C], products[3][R * R], decoded[256];
    uint8_t scale_codes[4][64];
    oct_statistics statistics[N_PRESETS];
} results;

static float x[R * C];

/* Ordinary numbers, subnormal blocks, zeros, ties, and the ends of the range. */
static void fill_source(void) {
    for (int i = 0; i < R * C; i++) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h ^= h >> 15;
        const int row = i / C;
        const float unit = (float)(int)(h & 0xfff) / 256 - 8;
        x[i] = ldexpf(unit, row % 5 == 1 ? -140 : row % 5 == 2 ? -128 : row % 5 == 3 ? 120 : -3);
        if (row % 7 == 6)
            x[i] = 0;
    }
}

static oct_matrix matrix(float *data) {
    return SIZED(oct_matrix, .dtype = OCT_F32, .data = data, .rows = R, .cols = C, .row_stride = C,
                 .col_stride = 1);
}

static const char *const presets[N_PRESETS][2] = {
    {"mxfp8", "octet"},          {"mxfp8", "mindspeed"},  {"mxfp8_cublas_rceil", "torchao"},
    {"mxfp8", "torchao"},        {"e5m2:mx32x32", "ocp"}, {"hif8", "mindspeed"},
    {"e4m3:channel", "torchao"}, {"hif8:1x16", "octet"},  {"e4m3:1x128", "transformer-engine"}};

static int quantize_all(results *out, oct_coded *coded) {
    int wrong = 0;
    for (int i = 0; i < N_PRESETS; i++) {
        oct_quantizer q = SIZED(oct_quantizer, 0);
        const oct_matrix source = matrix(x), back = matrix(out->values[i]);
        int64_t down, across;
        wrong += oct_quantizer_preset(presets[i][0], presets[i][1], OCT_USE_INPUT, 1, &q, NULL) !=
                 OCT_OK;
        wrong += oct_quantizer_scales(&q, R, C, &down, &across) != OCT_OK;
        coded[i] =
            SIZED(oct_coded, .codes = out->codes[i], .row_stride = C, .col_stride = 1,
                  .scales = out->scales[i], .scale_row_stride = across, .scale_col_stride = 1);
        wrong += oct_matrix_quantize(&q, &source, &coded[i], 0) != OCT_OK;
        wrong += oct_matrix_dequantize(&coded[i], &back, 0) != OCT_OK;
        out->statistics[i] = SIZED(oct_statistics, 0);
        wrong += oct_matrix_measure(&source, &coded[i], &out->statistics[i], 0) != OCT_OK;
    }
    return wrong;
}

static int run_plain(results *out) {
    static const oct_dtype formats[] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
    uint8_t scales[C * 5], all[256];
    int wrong = oct_mx_quantize_transposed(x, OCT_F32, R, C, OCT_E4M3, OCT_SCALE_EVEN,
                                           out->transposed, scales) != OCT_OK;
    const oct_codec codec = SIZED(oct_codec, .format = OCT_E5M2, .rounding = OCT_ROUND_STOCHASTIC,
                                  .overflow = OCT_SATURATE, .seed = 3);
    wrong += oct_encode_array(&codec, x, OCT_F32, R * C, out->stochastic, 0) != OCT_OK;
    for (int i = 0; i < 256; i++) {
        all[i] = (uint8_t)i;
        for (int f = 0; f < 3; f++)
            wrong += oct_fp8_encode(formats[f], x[i * 97], &out->scalar[f][i]) != OCT_OK;
    }
    wrong += oct_decode_array(OCT_E8M0, all, 256, out->decoded, OCT_F32, 0) != OCT_OK;
    for (int mode = 0; mode < 4; mode++)
        for (int i = 0; i < 64; i++)
            wrong += oct_mx_scale(fabsf(x[i * 411]), OCT_E4M3, (oct_scale_mode)mode,
                                  &out->scale_codes[mode][i]) != OCT_OK;
    return wrong;
}

static int run_all(results *out) {
    oct_coded coded[N_PRESETS];
    static const int pairs[3][2] = {{0, 1}, {5, 6}, {7, 8}};
    int wrong = quantize_all(out, coded) + run_plain(out);
    for (int i = 0; i < 3; i++) {
        const oct_product p = SIZED(oct_product, .a = &coded[pairs[i][0]], .b = &coded[pairs[i][1]],
                                    .c = out->products[i], .c_dtype = OCT_F32, .ld_c = R);
        wrong += oct_multiply(&p, 1, i ? OCT_PRODUCT_EXACT : OCT_PRODUCT_AUTO, 0) != OCT_OK;
    }
    return wrong;
}

static results *expected_results(void) {
    static results *expected;
    if (!expected) {
        fill_source();
        expected = calloc(1, sizeof *expected);
        assert_non_null(expected);
        assert_int_equal(run_all(expected), 0);
    }
    return expected;
}

static void given_any_floating_point_mode_results_are_the_same_and_the_mode_stays(void **state) {
    (void)state;
#if defined(__SSE2__)
    results *expected = expected_results(), *got = calloc(1, sizeof *got);
    assert_non_null(got);
    const unsigned before = _mm_getcsr();
    for (unsigned mode = 0; mode < 16; mode++) { /* FTZ, DAZ, four roundings */
        const unsigned csr =
            0x1f80 | (mode & 1 ? 0x8000 : 0) | (mode & 2 ? 0x40 : 0) | (mode >> 2) << 13;
        memset(got, 0x5a, sizeof *got);
        memcpy(got->scales, expected->scales, sizeof got->scales); /* gaps between strides */
        _mm_setcsr(csr);
        const int wrong = run_all(got);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(wrong, 0);
        assert_int_equal(after & 0xffc0, csr);
        assert_that(memcmp(got, expected, sizeof *got) == 0, "MXCSR %04x changes results", csr);
    }
    free(got);
#else
    print_message("skipped: no SSE2, whose register is set here\n");
    skip();
#endif
}

typedef struct caller {
    int number, wrong;
    const results *expected;
} caller;

static void *call(void *context) {
    caller *c = context;
    results *got = calloc(1, sizeof *got);
    for (int round = 0; got && round < ROUNDS; round++) {
        oct_threads_set(1 + (c->number * 31 + round * 17) % 64);
        memset(got, 0x5a, sizeof *got);
        memcpy(got->scales, c->expected->scales, sizeof got->scales);
        c->wrong += run_all(got) || memcmp(got, c->expected, sizeof *got) != 0;
    }
    c->wrong += !got;
    free(got);
    return NULL;
}

static void given_eight_threads_that_call_and_change_counts_all_get_the_right_bits(void **state) {
    (void)state;
    enum { N = 8 };
    pthread_t threads[N];
    caller callers[N];
    const int before = oct_threads();
    const results *expected = expected_results();
    for (int i = 0; i < N; i++) {
        callers[i] = (caller){.number = i, .expected = expected};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(callers[i].wrong, 0);
    }
    oct_threads_set(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_floating_point_mode_results_are_the_same_and_the_mode_stays),
        cmocka_unit_test(given_eight_threads_that_call_and_change_counts_all_get_the_right_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
