/* Tokens drawn from logits: temperature, top-k, top-p, min-p, a penalty of repeats. */
#include "train_support.h"

#include <math.h>

#include "base/count.h"
#include "infer/sampling.h"

static void given_logits_sampling_obeys_temperature_top_k_and_seed(void **state) {
    (void)state;
    const float logits[] = {0, 3, 1, 3, -INFINITY};
    int counts[5] = {0};
    oct_sampling greedy = {0};
    assert_int_equal(oct_sample(logits, 5, &greedy, 0), 1); /* the lower id of equal logits */
    oct_sampling two = {.temperature = 1, .top_k = 2, .seed = 9};
    for (int i = 0; i < 400; i++)
        counts[oct_sample(logits, 5, &two, i)]++;
    assert_int_equal(counts[1] + counts[3], 400);
    assert_in_range(counts[1], 150, 250);
    oct_sampling all = {.temperature = 2, .seed = 9};
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < 4000; i++) {
        int32_t id = oct_sample(logits, 5, &all, i);
        assert_int_equal(id, oct_sample(logits, 5, &all, i));
        counts[id]++;
    }
    /* softmax(logits / 2) is 0.0862, 0.3861, 0.1421, 0.3861, 0 */
    assert_in_range(counts[0], 345 - 80, 345 + 80);
    assert_in_range(counts[2], 568 - 90, 568 + 90);
    assert_int_equal(counts[4], 0);
    const float bad[] = {0, NAN};
    assert_int_equal(oct_sample(bad, 2, &all, 0), -1);
}

/* Which of five tokens are ever drawn, a bit each. */
static unsigned drawn(const float *logits, const oct_sampling *sampling) {
    unsigned set = 0;
    for (int i = 0; i < 2000; i++)
        set |= 1u << oct_sample(logits, 5, sampling, i);
    return set;
}

/* Probabilities are 0.0228, 0.4576, 0.0619, 0.4576, 0; the likeliest's shares 0.05, 1, 0.135, 1, 0.
 */
static void given_top_p_and_min_p_the_fewest_that_reach_them_are_left(void **state) {
    (void)state;
    const float logits[] = {0, 3, 1, 3, -INFINITY};
    static const struct {
        double temperature, top_p, min_p;
        int64_t top_k;
        unsigned left;
    } cases[] = {
        {1, 0, 0, 0, 1 | 2 | 4 | 8},
        {1, 0.4, 0, 0, 2},
        {1, 0.5, 0, 0, 2 | 8},
        {1, 0.95, 0, 0, 2 | 4 | 8},
        {1, 0.98, 0, 0, 1 | 2 | 4 | 8},
        {1, 0, 0.2, 0, 2 | 8},
        {1, 0, 0.1, 0, 2 | 4 | 8},
        {1, 0, 0.04, 0, 1 | 2 | 4 | 8},
        {1, 0, 1, 0, 2 | 8},    /* as likely as the likeliest */
        {1, 0.99, 0, 2, 2 | 8}, /* of what top_k left */
        {1, 0.4, 0.01, 0, 2},
        {2, 0, 0.2, 0, 1 | 2 | 4 | 8}, /* shares are of what the temperature makes of them: 0.22 */
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const oct_sampling sampling = {.temperature = cases[i].temperature,
                                       .top_p = cases[i].top_p,
                                       .min_p = cases[i].min_p,
                                       .top_k = cases[i].top_k,
                                       .seed = 3};
        assert_int_equal(drawn(logits, &sampling), cases[i].left);
    }
}

static void given_tokens_that_were_there_their_logits_fall_once(void **state) {
    (void)state;
    float logits[] = {2, -2, 3, 0, 5};
    const int32_t before[] = {0, 1, 1, 3, 0};
    const float expected[] = {1, -4, 3, 0, 5};
    uint8_t seen[5] = {0};
    oct_penalize_repeats(logits, before, 5, 2, seen);
    assert_memory_equal(logits, expected, sizeof expected);
    const uint8_t none[5] = {0};
    assert_memory_equal(seen, none, sizeof none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_logits_sampling_obeys_temperature_top_k_and_seed),
        cmocka_unit_test(given_top_p_and_min_p_the_fewest_that_reach_them_are_left),
        cmocka_unit_test(given_tokens_that_were_there_their_logits_fall_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
