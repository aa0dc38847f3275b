/* Experts spread over ranks, against one process that sorts the tokens of all of them together. */
#include "sharded.h"

#include <string.h>

#include "base/count.h"
#include "nn/experts.h"

static const oct_fsdp_config config = {.activation = OCT_F32,
                                       .mode = OCT_GATHER_MINIMAL,
                                       .low_precision_linears = true,
                                       .low_precision_experts = true};

static void for_each_degree(void (*check)(int degree)) {
    for (int degree = 2; degree <= oct_comm_size(world); degree *= 2)
        if (oct_comm_size(world) % degree == 0)
            check(degree);
}

/* ---- gradients of one pass ---- */

/* Sends all tokens to one expert, by a bias that outweighs every score. */
static void favour(oct_model *model, int expert) {
    for (int64_t i = 0; expert >= 0 && i < oct_model_get_args(model)->n_layers; i++) {
        oct_moe *moe = oct_model_moe(model, i);
        moe->config.rule.n_active = 1;
        moe->config.load_balance_coeff = 1e-3f;
        moe->expert_bias[expert] = 100.0f;
    }
}

/* Sequences first .. first+B-1 in one micro-batch; of `size` in all. */
static void run_pass(replica *r, int first, int B, int size) {
    static int32_t tokens[N_SEQUENCES * S], targets[N_SEQUENCES * S];
    double loss;
    int64_t count;
    fill_tokens(tokens, targets);
    oct_optimizer_clear_gradients(r->optimizer);
    assert_int_equal(oct_model_train(r->model, r->step, B, S, tokens + first * S,
                                     targets + first * S, 1.0f / (float)(size * S), &loss, &count),
                     OCT_OK);
}

typedef struct pair {
    replica whole, sharded;
} pair;

/* Each rank takes one sequence, the whole model all of them. */
static void open_pair(pair *p, const setup *s, int expert) {
    replica_open(&p->whole, s, NULL);
    replica_open(&p->sharded, s, world);
    favour(p->whole.model, expert);
    favour(p->sharded.model, expert);
    run_pass(&p->whole, 0, oct_comm_size(world), oct_comm_size(world));
    run_pass(&p->sharded, oct_comm_rank(world), 1, oct_comm_size(world));
}

static void close_pair(pair *p) {
    replica_close(&p->sharded);
    replica_close(&p->whole);
}

/* Of all experts of the model, those rows that this rank keeps. */
static void check_expert_gradients(const pair *p, const char *recipe) {
    for (int64_t i = 0; i < oct_model_get_args(p->whole.model)->n_layers; i++)
        for (int w = 0; w < OCT_N_EXPERT_WEIGHTS; w++) {
            const oct_param *got = oct_model_moe(p->sharded.model, i)->experts->w[w];
            const oct_param *expected = oct_model_moe(p->whole.model, i)->experts->w[w];
            bool learns = false;
            for (int64_t k = 0; k < oct_param_elements(expected); k++)
                learns |= expected->grad[k] != 0;
            assert_true(learns);
            assert_int_equal(got->n_held, oct_param_elements(got) / oct_comm_size(world));
            if (memcmp(got->grad, expected->grad + got->first,
                       (size_t)got->n_held * sizeof *got->grad) != 0)
                fail_msg("%s: gradients of %s differ", recipe ? recipe : "none", got->name);
        }
}

/* With as many ranks in a team as there are, each expert sees its tokens in one product. */
static void given_one_team_experts_gradients_are_bit_for_bit_those_of_one_process(void **state) {
    (void)state;
    static const char *const recipes[] = {NULL,
                                          "mxfp8",
                                          "mxfp8-32x32",
                                          "hif8",
                                          "dynamic_per_channel_E4M3_E4M3_E4M3",
                                          "delayed_per_tensor_E4M3_E4M3_E4M3"};
    static const oct_recompute recomputes[] = {OCT_RECOMPUTE_NONE, OCT_RECOMPUTE_OP,
                                               OCT_RECOMPUTE_FULL};
    static const oct_dtype activations[] = {OCT_F32, OCT_BF16};
    int size = oct_comm_size(world);
    for (size_t i = 0; i < OCT_COUNT(recipes); i++)
        for (int j = 0; j < 6; j++) {
            setup s = {.recipe = recipes[i],
                       .config = config,
                       .recompute = recomputes[j % 3],
                       .experts = 1,
                       .expert_degree = size,
                       .plain_linears = 1};
            s.config.activation = activations[j / 3];
            pair p;
            open_pair(&p, &s, -1);
            check_expert_gradients(&p, recipes[i]);
            close_pair(&p);
        }
}

/* All gradients, by their distance relative to the largest of the parameter. */
static void check_close(const pair *p, double tolerance) {
    int64_t n;
    oct_param *const *params = oct_model_params(p->sharded.model, &n);
    for (int64_t i = 0; i < n; i++) {
        const oct_param *expected = oct_model_find_param(p->whole.model, params[i]->name);
        double largest = 0, distance = 0;
        for (int64_t k = 0; k < oct_param_elements(expected); k++)
            largest = fmax(largest, fabs((double)expected->grad[k]));
        for (int64_t k = 0; k < params[i]->n_held; k++)
            distance = fmax(distance, fabs((double)params[i]->grad[k] -
                                           (double)expected->grad[params[i]->first + k]));
        assert_true(largest > 0);
        if (!(distance <= tolerance * largest))
            fail_msg("%s: %g of %g", params[i]->name, distance, largest);
    }
}

static void check_gradients(int degree) {
    static const oct_reshard reshards[] = {OCT_RESHARD_AFTER_FORWARD, OCT_RESHARD_NEVER};
    for (int i = 0; i < 2; i++) {
        setup s = {.config = config, .experts = 1, .expert_degree = degree};
        s.config.reshard = reshards[i];
        pair p;
        open_pair(&p, &s, -1);
        check_close(&p, 2e-6);
        close_pair(&p);
    }
}

static void given_teams_gradients_of_all_parameters_are_those_of_one_process(void **state) {
    (void)state;
    for_each_degree(check_gradients);
}

/* ---- uneven loads ---- */

static void check_zeros_beside(const oct_moe *moe, int expert) {
    for (int w = 0; w < OCT_N_EXPERT_WEIGHTS; w++) {
        const oct_param *param = moe->experts->w[w];
        int64_t per_expert = param->shape[1] * param->shape[2];
        for (int64_t k = 0; k < param->n_held; k++)
            if ((param->first + k) / per_expert != expert)
                assert_true(param->grad[k] == 0);
    }
}

/* The memory of the gradients, as a step before might have left it. */
static void spoil_gradients(replica *r) {
    int64_t n;
    oct_param *const *params = oct_model_params(r->model, &n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i]->n_held; k++)
            params[i]->grad[k] = NAN;
}

static void check_all_on(int expert, int degree) {
    static const char *const recipes[] = {NULL, "mxfp8", "hif8"};
    for (int i = 0; i < 6; i++) {
        const setup s = {.recipe = recipes[i / 2],
                         .config = config,
                         .experts = 1,
                         .expert_degree = degree,
                         .plain_linears = 1};
        pair p;
        open_pair(&p, &s, expert);
        const oct_moe *moe = oct_model_moe(p.sharded.model, 1);
        assert_int_equal(moe->tokens_per_expert[expert], S);
        if (i % 2) { /* once more */
            spoil_gradients(&p.sharded);
            run_pass(&p.sharded, oct_comm_rank(world), 1, oct_comm_size(world));
        }
        check_zeros_beside(moe, expert);
        if (degree == oct_comm_size(world))
            check_expert_gradients(&p, recipes[i / 2]);
        close_pair(&p);
    }
}

static void check_uneven(int degree) {
    check_all_on(0, degree);
    check_all_on(7, degree);
}

static void given_all_tokens_on_one_expert_all_others_gradients_are_exactly_zero(void **state) {
    (void)state;
    for_each_degree(check_uneven);
}

/* ---- training ---- */

static void check_losses(int degree) {
    static const char *const recipes[] = {NULL, "mxfp8", "hif8",
                                          "delayed_per_tensor_E4M3_E4M3_E4M3"};
    static const oct_recompute recomputes[] = {OCT_RECOMPUTE_OP, OCT_RECOMPUTE_FULL,
                                               OCT_RECOMPUTE_NONE, OCT_RECOMPUTE_NONE};
    for (int i = 0; i < 4; i++)
        check_training(&(setup){.recipe = recipes[i],
                                .config = config,
                                .recompute = recomputes[i],
                                .experts = 1,
                                .expert_degree = degree},
                       20);
}

static void given_teams_losses_after_20_steps_are_those_of_one_process(void **state) {
    (void)state;
    for_each_degree(check_losses);
}

/* ---- bytes ---- */

static void check_bytes(int degree) {
    static const oct_recompute recomputes[] = {OCT_RECOMPUTE_NONE, OCT_RECOMPUTE_OP,
                                               OCT_RECOMPUTE_FULL};
    static const oct_traffic kinds[] = {OCT_TRAFFIC_GATHER_8BIT, OCT_TRAFFIC_GATHER_HIGH,
                                        OCT_TRAFFIC_REDUCE_SCATTER, OCT_TRAFFIC_ALL_TO_ALL};
    for (int i = 0; i < 6; i++) {
        const setup s = {.recipe = i % 2 ? "mxfp8" : NULL,
                         .config = config,
                         .recompute = recomputes[i / 2],
                         .experts = 1,
                         .expert_degree = degree};
        replica r;
        oct_fsdp_traffic t;
        int64_t before[4];
        replica_open(&r, &s, world);
        for (int64_t l = 0; l < oct_model_get_args(r.model)->n_layers; l++) {
            oct_moe *moe = oct_model_moe(r.model, l);
            moe->config.rule.assignment = OCT_ASSIGN_IN_TURN;
            moe->config.score_before_experts = i >= 3;
        }
        const oct_sharding sharding = oct_fsdp_sharding(&r.comms);
        assert_int_equal(oct_fsdp_plan_traffic(r.model, r.plan, &s.config, &sharding, 1, S, &t),
                         OCT_OK);
        const int64_t expected[4] = {t.gather_8bit, t.gather_high, t.reduce_scatter, t.all_to_all};
        assert_true(t.all_to_all > 0);
        for (int k = 0; k < 4; k++)
            before[k] = total_bytes(kinds[k]);
        run_pass(&r, oct_comm_rank(world), 1, oct_comm_size(world));
        for (int k = 0; k < 4; k++)
            assert_int_equal(total_bytes(kinds[k]) - before[k], expected[k]);
        replica_close(&r);
    }
}

static void given_even_loads_bytes_are_as_foretold(void **state) {
    (void)state;
    for_each_degree(check_bytes);
}

/* ---- memory ---- */

static void given_teams_nothing_stays_allocated(void **state) {
    (void)state;
    const setup s = {
        .recipe = "mxfp8", .config = config, .experts = 1, .expert_degree = oct_comm_size(world)};
    size_t start = oct_alloc_live_bytes();
    replica r;
    replica_open(&r, &s, world);
    run_pass(&r, oct_comm_rank(world), 1, oct_comm_size(world));
    replica_close(&r);
    assert_int_equal(oct_alloc_live_bytes(), start);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_one_team_experts_gradients_are_bit_for_bit_those_of_one_process),
        cmocka_unit_test(given_teams_gradients_of_all_parameters_are_those_of_one_process),
        cmocka_unit_test(given_all_tokens_on_one_expert_all_others_gradients_are_exactly_zero),
        cmocka_unit_test(given_teams_losses_after_20_steps_are_those_of_one_process),
        cmocka_unit_test(given_even_loads_bytes_are_as_foretold),
        cmocka_unit_test(given_teams_nothing_stays_allocated),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
