/* Which experts a token goes to, by hand, and the gradient of what their scores weigh. */
#include "gradient_support.h"

static void route(const oct_routing_rule *rule, float *logits, int64_t T, const float *bias,
                  int32_t *chosen, float *weights) {
    oct_tensor scores = oct_tensor_2d(OCT_F32, T, rule->n_experts, logits);
    assert_int_equal(oct_route_forward(rule, &scores, bias, chosen, weights), OCT_OK);
}

static void expect_close(float got, double expected) {
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected)))
        fail_msg("got %.9g, expected %.9g", got, expected);
}

static void given_softmax_scores_the_largest_are_chosen_with_their_shares(void **state) {
    (void)state;
    float logits[] = {0.0f, 2.0f, 1.0f, -1.0f, /* and a tie: the lower number first */
                      1.0f, 1.0f, 1.0f, 1.0f};
    int32_t chosen[4];
    float weights[4];
    oct_routing_rule rule = plain_rule(4, 2);
    route(&rule, logits, 2, NULL, chosen, weights);
    assert_int_equal(chosen[0], 1);
    assert_int_equal(chosen[1], 2);
    assert_int_equal(chosen[2], 0);
    assert_int_equal(chosen[3], 1);
    double sum = exp(0) + exp(2) + exp(1) + exp(-1);
    expect_close(weights[0], exp(2) / sum);
    expect_close(weights[1], exp(1) / sum);
    expect_close(weights[2], 0.25);
    expect_close(logits[3], exp(-1) / sum); /* the scores themselves */
}

static void given_sigmoid_scores_a_bias_moves_the_choice_but_not_the_weights(void **state) {
    (void)state;
    const float given[] = {2.0f, 1.0f, 0.0f, -1.0f};
    const float bias[] = {-1.0f, 0.0f, 0.0f, 0.9f};
    float logits[4], weights[2];
    int32_t chosen[2];
    oct_routing_rule rule = plain_rule(4, 2);
    rule.score_func = OCT_SCORE_SIGMOID;
    memcpy(logits, given, sizeof given);
    route(&rule, logits, 1, bias, chosen, weights);
    double s1 = 1 / (1 + exp(-1)), s3 = 1 / (1 + exp(1));
    assert_int_equal(chosen[0], 3); /* 0.27 + 0.9 */
    assert_int_equal(chosen[1], 1); /* 0.73 */
    expect_close(weights[0], s3);
    expect_close(weights[1], s1);
    rule.normalize = true;
    rule.route_scale = 2.5f;
    memcpy(logits, given, sizeof given);
    route(&rule, logits, 1, bias, chosen, weights);
    expect_close(weights[0], 2.5 * s3 / (s1 + s3));
    expect_close(weights[1], 2.5 * s1 / (s1 + s3));
}

static void given_groups_only_the_experts_of_the_best_groups_are_chosen(void **state) {
    (void)state;
    /* Groups {0,1,2} {3,4,5} {6,7,8}: the largest logit is alone in its group, whose two best sum
     * to less than those of the others. */
    float logits[] = {5.0f, -9.0f, -9.0f, 2.0f, 1.9f, -1.0f, 1.8f, 1.7f, -2.0f};
    int32_t chosen[4];
    float weights[4];
    oct_routing_rule rule = plain_rule(9, 4);
    rule.score_func = OCT_SCORE_SIGMOID;
    rule.n_groups = 3;
    rule.n_limited_groups = 2;
    route(&rule, logits, 1, NULL, chosen, weights);
    const int32_t expected[] = {3, 4, 6, 7};
    assert_memory_equal(chosen, expected, sizeof expected);
}

static void given_assignment_in_turn_loads_are_even_and_weights_are_scores(void **state) {
    (void)state;
    enum { T = 8, E = 4, A = 3 };
    float logits[T * E], weights[T * A];
    int32_t chosen[T * A];
    int64_t n[E] = {0};
    oct_routing_rule rule = plain_rule(E, A);
    rule.assignment = OCT_ASSIGN_IN_TURN;
    fill(logits, T * E, 3, 1.0f);
    route(&rule, logits, T, NULL, chosen, weights);
    for (int i = 0; i < T * A; i++) {
        assert_int_equal(chosen[i], i % E);
        assert_true(weights[i] == logits[i / A * E + i % E]);
        n[chosen[i]]++;
    }
    for (int e = 0; e < E; e++)
        assert_int_equal(n[e], T * A / E);
}

static void given_scores_that_are_not_numbers_choices_are_still_experts_and_distinct(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        float logits[8] = {NAN, INFINITY, -INFINITY, NAN, 1e38f, -1e38f, NAN, 0}, weights[4];
        int32_t chosen[4];
        oct_routing_rule rule = plain_rule(8, 4);
        rule.score_func = k % 2 ? OCT_SCORE_SIGMOID : OCT_SCORE_SOFTMAX;
        rule.n_groups = k < 2 ? 1 : 4;
        rule.n_limited_groups = k < 2 ? 1 : 2;
        route(&rule, logits, 1, NULL, chosen, weights);
        for (int i = 0; i < 4; i++) {
            assert_in_range(chosen[i], 0, 7);
            for (int j = 0; j < i; j++)
                assert_int_not_equal(chosen[i], chosen[j]);
        }
    }
}

static void given_rules_that_cannot_be_routing_is_refused(void **state) {
    (void)state;
    float logits[8] = {0}, weights[8];
    int32_t chosen[8];
    oct_tensor scores = oct_tensor_2d(OCT_F32, 1, 8, logits);
    for (int k = 0; k < 6; k++) {
        oct_routing_rule rule = plain_rule(8, 2);
        rule.n_active = k == 0 ? 9 : k == 1 ? 0 : k == 4 ? 5 : 2;
        rule.n_groups = k == 2 ? 3 : k >= 3 ? 4 : 1;
        rule.n_limited_groups = k == 3 ? 5 : k == 4 ? 2 : 1;
        rule.route_scale = k == 5 ? 0.0f : 1.0f;
        assert_int_equal(oct_route_forward(&rule, &scores, NULL, chosen, weights), OCT_INVALID);
    }
}

static void given_choices_the_sort_is_stable_and_its_own_inverse(void **state) {
    (void)state;
    const int32_t chosen[] = {4, 1, 0, 1, 4, 0, 4, 1};
    const int32_t by_expert[] = {2, 5, 1, 3, 7, 0, 4, 6};
    const int64_t expected[] = {0, 2, 5, 5, 5, 8};
    int64_t offsets[6];
    int32_t choice_at[8], place_of[8];
    oct_route_sort(chosen, 8, 5, offsets, choice_at, place_of);
    assert_memory_equal(offsets, expected, sizeof expected);
    assert_memory_equal(choice_at, by_expert, sizeof by_expert);
    for (int i = 0; i < 8; i++)
        assert_int_equal(place_of[choice_at[i]], i);
    oct_route_sort(chosen, 0, 5, offsets, choice_at, place_of);
    for (int e = 0; e <= 5; e++)
        assert_int_equal(offsets[e], 0);
}

typedef struct router_case {
    oct_routing_rule rule;
    int64_t T;
    float *logits, *scores, *weights, *r; /* loss = <r, weights> */
    const float *bias;
    int32_t *chosen;
} router_case;

static double router_loss(void *context) {
    router_case *c = context;
    memcpy(c->scores, c->logits, (size_t)(c->T * c->rule.n_experts) * sizeof(float));
    route(&c->rule, c->scores, c->T, c->bias, c->chosen, c->weights);
    return dot(c->r, c->weights, c->T * c->rule.n_active);
}

static void given_a_router_the_gradient_of_its_logits_matches_finite_differences(void **state) {
    (void)state;
    enum { T = 70, E = 6, A = 3 };
    float logits[T * E], scores[T * E], weights[T * A], r[T * A], dlogits[T * E];
    /* Choices must not change within a difference: the bias decides them. */
    const float bias[E] = {10, 0, 20, 0, 30, 0};
    int32_t chosen[T * A];
    for (int k = 0; k < 4; k++) {
        router_case c = {.rule = plain_rule(E, A),
                         .T = T,
                         .logits = logits,
                         .scores = scores,
                         .weights = weights,
                         .r = r,
                         .bias = bias,
                         .chosen = chosen};
        c.rule.score_func = k % 2 ? OCT_SCORE_SIGMOID : OCT_SCORE_SOFTMAX;
        c.rule.normalize = k >= 2;
        c.rule.route_scale = 1.5f;
        fill(logits, (int64_t)T * E, 5, 1.0f);
        fill(r, (int64_t)T * A, 6, 1.0f);
        router_loss(&c);
        oct_tensor s = oct_tensor_2d(OCT_F32, T, E, scores);
        oct_tensor d = oct_tensor_2d(OCT_F32, T, E, dlogits);
        assert_int_equal(oct_route_backward(&c.rule, &s, chosen, r, &d), OCT_OK);
        expect_gradient("logits", router_loss, &c, logits, dlogits, (int64_t)T * E, 0.05, 2e-4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_softmax_scores_the_largest_are_chosen_with_their_shares),
        cmocka_unit_test(given_sigmoid_scores_a_bias_moves_the_choice_but_not_the_weights),
        cmocka_unit_test(given_groups_only_the_experts_of_the_best_groups_are_chosen),
        cmocka_unit_test(given_assignment_in_turn_loads_are_even_and_weights_are_scores),
        cmocka_unit_test(given_scores_that_are_not_numbers_choices_are_still_experts_and_distinct),
        cmocka_unit_test(given_rules_that_cannot_be_routing_is_refused),
        cmocka_unit_test(given_choices_the_sort_is_stable_and_its_own_inverse),
        cmocka_unit_test(given_a_router_the_gradient_of_its_logits_matches_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
