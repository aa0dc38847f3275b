/* Rotary position embeddings against rotations in fp64, and their scaled frequencies against what
 * transformers computes. */
#include "op_support.h"

#include "op/rope.h"

static const oct_dtype DTYPES[] = {OCT_F32, OCT_BF16};

/* The turn by complex numbers, as torchtitan's freqs_cis. */
static void naive_rope(double *x, int64_t dims, oct_rope_pairs pairs, double position,
                       double theta) {
    for (int64_t i = 0; i < dims / 2; i++) {
        int64_t a = pairs == OCT_ROPE_INTERLEAVED ? 2 * i : i;
        int64_t b = pairs == OCT_ROPE_INTERLEAVED ? 2 * i + 1 : i + dims / 2;
        double angle = position * pow(theta, -2.0 * (double)i / (double)dims);
        double re = x[a] * cos(angle) - x[b] * sin(angle);
        x[b] = x[a] * sin(angle) + x[b] * cos(angle);
        x[a] = re;
    }
}

static void check_rope(oct_rope_pairs pairs, oct_dtype dtype, int64_t dims, int64_t first) {
    oct_arena *arena = oct_arena_create();
    const int64_t B = 2, S = 5, H = 3, head_dim = first + dims + 2, position = 7;
    oct_rope_table *table = NULL;
    oct_rope_config config = {.dims = dims, .theta = 10000, .pairs = pairs};
    assert_int_equal(oct_rope_table_create(&config, position + S, &table), OCT_OK);
    oct_tensor x = test_random(arena, dtype, B * S, H * head_dim, 1);
    oct_tensor before = test_copy(arena, &x);
    double *expected = test_values(arena, &x), *original = test_values(arena, &x);
    for (int64_t t = 0; t < B * S; t++)
        for (int64_t h = 0; h < H; h++)
            naive_rope(expected + (t * H + h) * head_dim + first, dims, pairs,
                       (double)(position + t % S), 10000);
    assert_int_equal(oct_rope_apply(table, &x, S, position, head_dim, first, OCT_ROPE_FORWARD),
                     OCT_OK);
    test_close(&x, expected, 2e-6);
    assert_int_equal(oct_rope_apply(table, &x, S, position, head_dim, first, OCT_ROPE_BACKWARD),
                     OCT_OK);
    test_close(&x, original, dtype == OCT_F32 ? 1e-6 : 8e-3);
    for (int64_t i = 0; i < first; i++) /* what doesn't turn keeps its bits */
        assert_true(test_get(&x, i) == test_get(&before, i));
    assert_int_equal(oct_rope_apply(table, &x, S, position + 1, head_dim, first, OCT_ROPE_FORWARD),
                     OCT_INVALID);
    assert_int_equal(oct_rope_apply(table, &x, S, 0, head_dim, first + 3, OCT_ROPE_FORWARD),
                     OCT_INVALID);
    oct_rope_table_destroy(table);
    oct_arena_destroy(arena);
}

static void given_both_pairings_rope_turns_and_turns_back(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        check_rope(OCT_ROPE_INTERLEAVED, DTYPES[d], 64, 0);
        check_rope(OCT_ROPE_HALVES, DTYPES[d], 64, 0);
        check_rope(OCT_ROPE_INTERLEAVED, DTYPES[d], 18, 5);
        check_rope(OCT_ROPE_HALVES, DTYPES[d], 18, 5);
        check_rope(OCT_ROPE_HALVES, DTYPES[d], 2, 1);
    }
}

/* The frequency of a pair, read back from a table: the angle of position 1. */
static double frequency_of(const oct_rope_config *config, int64_t pair) {
    oct_rope_table *table = NULL;
    assert_int_equal(oct_rope_table_create(config, 2, &table), OCT_OK);
    float x[256] = {0};
    x[2 * pair] = 1;
    oct_tensor tensor = oct_tensor_2d(OCT_F32, 1, config->dims, x);
    assert_int_equal(oct_rope_apply(table, &tensor, 1, 1, config->dims, 0, OCT_ROPE_FORWARD),
                     OCT_OK);
    oct_rope_table_destroy(table);
    return atan2((double)x[2 * pair + 1], (double)x[2 * pair]);
}

static void given_scaled_frequencies_long_waves_are_stretched_and_short_ones_kept(void **state) {
    (void)state;
    /* Llama 3.1 8B: theta 500000, head 128, factor 8, 1 and 4, 8192. Pair 20 makes 1.65 turns in
     * 8192 positions per radian: wavelength 379.7 < 8192 / 4, kept; pair 60 has wavelength 1.4e6 >
     * 8192, divided by 8; pair 32 has wavelength 2 pi sqrt(500000) = 4442.88, in the ramp. */
    oct_rope_config config = {.dims = 128, .theta = 500000, .pairs = OCT_ROPE_INTERLEAVED};
    double kept = frequency_of(&config, 20), middle = frequency_of(&config, 32);
    double slow = frequency_of(&config, 60);
    config.scaling = OCT_ROPE_LLAMA3;
    config.factor = 8;
    config.original_context = 8192;
    config.low_freq_factor = 1;
    config.high_freq_factor = 4;
    assert_true(fabs(frequency_of(&config, 20) - kept) < 1e-9);
    assert_true(fabs(frequency_of(&config, 60) - slow / 8) < slow * 1e-6);
    double smooth = (8192 / 4442.8829 - 1) / 3;
    assert_true(fabs(frequency_of(&config, 32) - (smooth + (1 - smooth) / 8) * middle) <
                middle * 1e-6);
    /* YaRN, DeepSeek V3: dims 64, theta 10000, 40 times 4096, beta 32 and 1: the ramp runs from
     * pair 10 (10.47 rounded down) to pair 23 (22.51 rounded up). */
    config = (oct_rope_config){.dims = 64, .theta = 10000, .pairs = OCT_ROPE_INTERLEAVED};
    double f10 = frequency_of(&config, 10), f15 = frequency_of(&config, 15);
    double f25 = frequency_of(&config, 25);
    config.scaling = OCT_ROPE_YARN;
    config.factor = 40;
    config.original_context = 4096;
    config.beta_fast = 32;
    config.beta_slow = 1;
    assert_true(fabs(frequency_of(&config, 10) - f10) < 1e-7);
    assert_true(fabs(frequency_of(&config, 25) - f25 / 40) < f25 * 1e-6);
    double ramp = 5.0 / 13;
    assert_true(fabs(frequency_of(&config, 15) - f15 * (1 - ramp + ramp / 40)) < f15 * 1e-6);
}

/* transformers' rules, in fp64. A table of two positions is a sequence of two tokens. */
static void given_linear_and_dynamic_scaling_frequencies_follow_transformers(void **state) {
    (void)state;
    oct_rope_config config = {.dims = 16, .theta = 10000, .pairs = OCT_ROPE_INTERLEAVED};
    double plain[8];
    for (int i = 0; i < 8; i++)
        plain[i] = frequency_of(&config, i);
    config.scaling = OCT_ROPE_LINEAR;
    config.factor = 4;
    for (int i = 0; i < 8; i++)
        assert_true(fabs(frequency_of(&config, i) - plain[i] / 4) <= plain[i] * 1e-6);
    config.scaling = OCT_ROPE_DYNAMIC;
    config.original_context = 2;
    for (int i = 0; i < 8; i++)
        assert_true(fabs(frequency_of(&config, i) - plain[i]) <= plain[i] * 1e-6);
    config.original_context = 1; /* twice as long as trained: base * (4 * 2 - 3)^(16 / 14) */
    double base = 10000 * pow(5, 16.0 / 14);
    for (int i = 0; i < 8; i++) {
        double expected = pow(base, -i / 8.0);
        assert_true(fabs(frequency_of(&config, i) - expected) <= expected * 1e-6);
    }
    config.dims = 2; /* no exponent */
    oct_rope_table *table = NULL;
    assert_int_equal(oct_rope_table_create(&config, 4, &table), OCT_INVALID);
}

static void given_an_attention_factor_turned_vectors_are_longer(void **state) {
    (void)state;
    oct_rope_config config = {.dims = 2, .theta = 10000, .attention_factor = 1.5};
    oct_rope_table *table = NULL;
    assert_int_equal(oct_rope_table_create(&config, 2, &table), OCT_OK);
    float x[2] = {3, 4};
    oct_tensor tensor = oct_tensor_2d(OCT_F32, 1, 2, x);
    assert_int_equal(oct_rope_apply(table, &tensor, 1, 1, 2, 0, OCT_ROPE_FORWARD), OCT_OK);
    assert_true(fabs(hypot((double)x[0], (double)x[1]) - 7.5) < 1e-5);
    /* The transpose, for gradients: the same factor, the other way round. */
    assert_int_equal(oct_rope_apply(table, &tensor, 1, 1, 2, 0, OCT_ROPE_BACKWARD), OCT_OK);
    assert_true(fabs((double)x[0] - 6.75) < 1e-5 && fabs((double)x[1] - 9) < 1e-5);
    oct_rope_table_destroy(table);
}

/* DeepSeek V3's ramp as it is: from pair 10.47 to pair 22.51. */
static void given_an_untruncated_ramp_its_ends_are_not_whole_pairs(void **state) {
    (void)state;
    oct_rope_config config = {.dims = 64, .theta = 10000, .pairs = OCT_ROPE_INTERLEAVED};
    double f15 = frequency_of(&config, 15);
    config.scaling = OCT_ROPE_YARN;
    config.factor = 40;
    config.original_context = 4096;
    config.beta_fast = 32;
    config.beta_slow = 1;
    config.untruncated = true;
    double low = 64 * log(4096 / (64 * M_PI)) / (2 * log(10000));
    double high = 64 * log(4096 / (2 * M_PI)) / (2 * log(10000));
    double ramp = (15 - low) / (high - low);
    assert_true(fabs(frequency_of(&config, 15) - f15 * (1 - ramp + ramp / 40)) < f15 * 1e-6);
}

static void given_impossible_rope_settings_the_table_is_refused(void **state) {
    (void)state;
    oct_rope_table *table = NULL;
    const oct_rope_config good = {.dims = 8,
                                  .theta = 10000,
                                  .scaling = OCT_ROPE_LLAMA3,
                                  .factor = 8,
                                  .original_context = 8192,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 4};
    oct_rope_config bad[6] = {good, good, good, good, good, good};
    bad[0].dims = 7;
    bad[1].theta = 0;
    bad[2].theta = NAN;
    bad[3].factor = 0;
    bad[4].high_freq_factor = 1;
    bad[5].original_context = -1;
    for (int i = 0; i < 6; i++)
        assert_int_equal(oct_rope_table_create(&bad[i], 4, &table), OCT_INVALID);
    assert_int_equal(oct_rope_table_create(&good, INT64_MAX, &table), OCT_INVALID);
    assert_null(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_both_pairings_rope_turns_and_turns_back),
        cmocka_unit_test(given_scaled_frequencies_long_waves_are_stretched_and_short_ones_kept),
        cmocka_unit_test(given_linear_and_dynamic_scaling_frequencies_follow_transformers),
        cmocka_unit_test(given_an_attention_factor_turned_vectors_are_longer),
        cmocka_unit_test(given_an_untruncated_ramp_its_ends_are_not_whole_pairs),
        cmocka_unit_test(given_impossible_rope_settings_the_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
