/* Sharded training on 1 to 4 ranks against one process: the same codes, the same losses, the bytes
 * that were foretold. */
#include "gathers.h"

#include <math.h>
#include <string.h>

#include "base/count.h"
#include "base/rng.h"
#include "fsdp/sharding.h"

/* ---- shards ---- */

static void check_cover(int n_dims, const int64_t *shape, int n_ranks, int expert_degree) {
    oct_param param = {.n_dims = n_dims};
    memcpy(param.shape, shape, (size_t)n_dims * sizeof *shape);
    oct_matrices m = oct_param_matrices(&param);
    const oct_sharding sharding = {n_ranks, expert_degree};
    int64_t next = 0, in_matrices = 0;
    for (int i = 0; i < n_ranks; i++) {
        int r = oct_shard_holder(&param, &sharding, i);
        oct_rows rows = oct_shard_rows(&param, &sharding, r);
        assert_int_equal(rows.first, next);
        next += rows.n;
        if (rows.n > 0)
            assert_int_equal(rows.first % m.N % OCT_SHARD_BLOCK_ROWS, 0);
        for (int64_t e = 0; e < m.E; e++)
            in_matrices += oct_shard_matrix_rows(&param, &sharding, e, r).n;
    }
    assert_int_equal(next, m.E * m.N);
    assert_int_equal(in_matrices, m.E * m.N);
}

static void given_any_shape_shards_cover_it_in_order_at_blocks_of_32(void **state) {
    (void)state;
    for (int n_ranks = 1; n_ranks <= 9; n_ranks++) {
        check_cover(2, (int64_t[]){4096, 1024}, n_ranks, 1);
        check_cover(2, (int64_t[]){96, 7}, n_ranks, 1);
        check_cover(2, (int64_t[]){2, 5}, n_ranks, n_ranks);
        check_cover(1, (int64_t[]){33}, n_ranks, n_ranks);
        check_cover(3, (int64_t[]){4, 64, 8}, n_ranks, 1);
        check_cover(3, (int64_t[]){5, 50, 3}, n_ranks, 1);
        for (int degree = 1; degree <= n_ranks; degree++)
            if (n_ranks % degree == 0)
                check_cover(3, (int64_t[]){3 * degree, 50, 3}, n_ranks, degree);
    }
}

static void given_4096_rows_on_3_ranks_no_rank_has_a_block_more_than_another(void **state) {
    (void)state;
    oct_param param = {.n_dims = 2, .shape = {4096, 1024}};
    const oct_sharding on_3 = {3, 1}, on_5 = {5, 1};
    assert_int_equal(oct_shard_rows(&param, &on_3, 0).n, 43 * 32);
    assert_int_equal(oct_shard_rows(&param, &on_3, 1).n, 43 * 32);
    assert_int_equal(oct_shard_rows(&param, &on_3, 2).n, 42 * 32);
    param = (oct_param){.n_dims = 2, .shape = {96, 8}};
    assert_int_equal(oct_shard_rows(&param, &on_5, 2).n, 32);
    assert_int_equal(oct_shard_rows(&param, &on_5, 4).n, 0);
    param = (oct_param){.n_dims = 2, .shape = {2, 8}};
    assert_int_equal(oct_shard_rows(&param, &on_3, 0).n, 2);
    assert_int_equal(oct_shard_rows(&param, &on_3, 1).n, 0);
}

static void given_as_many_experts_as_ranks_each_rank_has_whole_ones(void **state) {
    (void)state;
    oct_param param = {.n_dims = 3, .shape = {8, 48, 16}};
    const oct_sharding on_4 = {4, 1};
    for (int r = 0; r < 4; r++) {
        assert_int_equal(oct_shard_rows(&param, &on_4, r).first, r * 96);
        assert_int_equal(oct_shard_rows(&param, &on_4, r).n, 96);
    }
}

/* Ranks 0 and 2 share the experts 0 to 3, ranks 1 and 3 the others. */
static void given_teams_of_2_among_4_ranks_each_place_has_half_of_the_experts(void **state) {
    (void)state;
    static const int64_t first[] = {0, 192, 96, 288};
    oct_param param = {.n_dims = 3, .shape = {8, 48, 16}};
    const oct_sharding teams = {4, 2};
    for (int r = 0; r < 4; r++) {
        assert_int_equal(oct_shard_rows(&param, &teams, r).first, first[r]);
        assert_int_equal(oct_shard_rows(&param, &teams, r).n, 96);
    }
    param = (oct_param){.n_dims = 2, .shape = {128, 16}}; /* all else is cut over all four */
    assert_int_equal(oct_shard_rows(&param, &teams, 1).first, 32);
}

/* ---- gathered codes ---- */

static void given_any_recipe_gathered_codes_are_those_of_one_process(void **state) {
    (void)state;
    for (int i = 0; i < N_RECIPES; i++) {
        check_gathers(&(setup){.recipe = recipes[i],
                               .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD)});
        check_gathers(
            &(setup){.recipe = recipes[i], .config = with(OCT_GATHER_ALL, OCT_RESHARD_NEVER)});
        check_gathers(&(setup){.recipe = recipes[i],
                               .config = with(OCT_GATHER_MINIMAL, OCT_RESHARD_NEVER),
                               .recompute = OCT_RECOMPUTE_FULL});
        check_gathers(&(setup){.recipe = recipes[i],
                               .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD),
                               .experts = 1});
        for (int degree = 2; degree <= oct_comm_size(world); degree *= 2)
            if (oct_comm_size(world) % degree == 0)
                check_gathers(
                    &(setup){.recipe = recipes[i],
                             .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD),
                             .experts = 1,
                             .expert_degree = degree});
    }
}

/* The shards are rounded to bf16 before amaxes are shared and codes are made: the whole's codes. */
static void given_a_frameworks_rules_gathered_codes_are_those_of_the_weight_in_bf16(void **state) {
    (void)state;
    const oct_rule_set sets[] = {OCT_RULES_TORCHTITAN_NPU, OCT_RULES_MINDSPEED};
    for (int i = 0; i < N_RECIPES; i++)
        for (int k = 0; k < 2; k++)
            for (int experts = 0; experts < 2; experts++)
                check_gathers(
                    &(setup){.recipe = recipes[i],
                             .rules = sets[k],
                             .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD),
                             .experts = experts});
}

/* ---- training ---- */

static void given_a_frameworks_rules_losses_are_those_of_one_process(void **state) {
    (void)state;
    const char *some[] = {"mxfp8", "hif8"};
    for (int i = 0; i < 2; i++)
        check_training(&(setup){.recipe = some[i],
                                .rules = OCT_RULES_TORCHTITAN_NPU,
                                .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD)},
                       20);
}

static void given_any_recipe_losses_after_20_steps_are_those_of_one_process(void **state) {
    (void)state;
    for (int i = 0; i < N_RECIPES; i++)
        check_training(&(setup){.recipe = recipes[i],
                                .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD)},
                       20);
}

static void given_high_precision_losses_are_those_of_one_process(void **state) {
    (void)state;
    oct_fsdp_config config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD);
    check_training(&(setup){.config = config}, 20);
    config.activation = OCT_F32;
    config.reshard = OCT_RESHARD_NEVER;
    check_training(&(setup){.config = config}, 20);
    config.low_precision_linears = false;
    check_training(&(setup){.recipe = "mxfp8", .config = config}, 20);
}

static void given_any_mode_and_checkpointing_losses_are_those_of_one_process(void **state) {
    (void)state;
    static const oct_recompute recomputes[] = {OCT_RECOMPUTE_NONE, OCT_RECOMPUTE_OP,
                                               OCT_RECOMPUTE_FULL};
    static const oct_gather_mode modes[] = {OCT_GATHER_ALL, OCT_GATHER_MINIMAL};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            check_training(
                &(setup){.recipe = "mxfp8",
                         .config = with(modes[j], (i + j) % 2 ? OCT_RESHARD_NEVER
                                                              : OCT_RESHARD_AFTER_FORWARD),
                         .recompute = recomputes[i]},
                5);
}

static void given_a_tied_or_converted_head_losses_are_those_of_one_process(void **state) {
    (void)state;
    oct_fsdp_config config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD);
    config.activation = OCT_F32;
    check_training(&(setup){.recipe = "mxfp8", .config = config, .tied = 1}, 20);
    check_training(&(setup){.recipe = "mxfp8", .config = config, .convert_head = 1}, 20);
    check_training(&(setup){.recipe = "hif8", .config = config, .tied = 1, .convert_head = 1}, 20);
}

static void given_experts_losses_are_those_of_one_process(void **state) {
    (void)state;
    static const char *const some[] = {"mxfp8", "hif8", "delayed_per_tensor_E4M3_E4M3_E4M3"};
    oct_fsdp_config config = with(OCT_GATHER_MINIMAL, OCT_RESHARD_AFTER_FORWARD);
    config.activation = OCT_F32; /* a token at the border of two experts decides the same way */
    for (int i = 0; i < 3; i++)
        check_training(&(setup){.recipe = some[i],
                                .config = config,
                                .recompute = i == 0 ? OCT_RECOMPUTE_FULL : OCT_RECOMPUTE_NONE,
                                .experts = 1},
                       20);
    check_training(&(setup){.config = config, .experts = 1}, 20);
}

/* ---- memory ---- */

static void given_ranks_each_holds_its_share_of_weights_gradients_and_state(void **state) {
    (void)state;
    const setup s = {.recipe = "mxfp8",
                     .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD)};
    size_t n_ranks = (size_t)oct_comm_size(world), start = oct_alloc_live_bytes();
    replica whole, sharded;
    replica_open(&whole, &s, NULL);
    size_t all = oct_alloc_live_bytes() - start;
    replica_close(&whole);
    assert_int_equal(oct_alloc_live_bytes(), start);
    int64_t n_params, block_rows = 0;
    replica_open(&sharded, &s, world);
    oct_param *const *params = oct_model_params(sharded.model, &n_params);
    for (int64_t i = 0; i < n_params; i++)
        block_rows += OCT_SHARD_BLOCK_ROWS * oct_param_matrices(params[i]).K;
    size_t own = oct_alloc_live_bytes() - start;
    /* a block of each parameter may be one more than a fair share: 16 bytes an element */
    assert_true(own <= all / n_ranks + 16 * (size_t)block_rows + (1 << 18));
    replica_close(&sharded);
    assert_int_equal(oct_alloc_live_bytes(), start);
}

/* ---- bytes ---- */

static double check_bytes(const setup *s) {
    static int32_t tokens[N_SEQUENCES * S], targets[N_SEQUENCES * S];
    replica sharded;
    oct_fsdp_traffic expected;
    int n_passes = N_SEQUENCES / oct_comm_size(world);
    fill_tokens(tokens, targets);
    replica_open(&sharded, s, world);
    const oct_sharding sharding = oct_fsdp_sharding(&sharded.comms);
    assert_int_equal(
        oct_fsdp_plan_traffic(sharded.model, sharded.plan, &s->config, &sharding, 1, S, &expected),
        OCT_OK);
    int64_t codes = total_bytes(OCT_TRAFFIC_GATHER_8BIT);
    int64_t high = total_bytes(OCT_TRAFFIC_GATHER_HIGH);
    int64_t gradients = total_bytes(OCT_TRAFFIC_REDUCE_SCATTER);
    train_step(&sharded, tokens, targets);
    assert_int_equal(total_bytes(OCT_TRAFFIC_GATHER_8BIT) - codes, n_passes * expected.gather_8bit);
    assert_int_equal(total_bytes(OCT_TRAFFIC_GATHER_HIGH) - high, n_passes * expected.gather_high);
    assert_int_equal(total_bytes(OCT_TRAFFIC_REDUCE_SCATTER) - gradients,
                     n_passes * expected.reduce_scatter);
    replica_close(&sharded);
    return expected.converted_in_bf16
               ? (double)expected.converted / (double)expected.converted_in_bf16
               : 0;
}

static void given_a_gather_mode_bytes_are_as_foretold_and_as_few_as_promised(void **state) {
    (void)state;
    oct_fsdp_config config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD);
    const struct {
        const char *recipe;
        oct_gather_mode mode;
        oct_recompute recompute;
        double at_most;
    } cases[] = {{"mxfp8", OCT_GATHER_ON_DEMAND, OCT_RECOMPUTE_NONE, 0.53},
                 {"mxfp8", OCT_GATHER_MINIMAL, OCT_RECOMPUTE_OP, 0.53},
                 {"mxfp8", OCT_GATHER_ALL, OCT_RECOMPUTE_FULL, 1.06},
                 {"mxfp8", OCT_GATHER_MINIMAL, OCT_RECOMPUTE_FULL, 0.80},
                 {"mxfp8-32x32", OCT_GATHER_ALL, OCT_RECOMPUTE_FULL, 0.505},
                 {"hif8", OCT_GATHER_ALL, OCT_RECOMPUTE_NONE, 0.505}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        config.mode = cases[i].mode;
        double ratio = check_bytes(
            &(setup){.recipe = cases[i].recipe, .config = config, .recompute = cases[i].recompute});
        assert_true(ratio <= cases[i].at_most);
    }
    check_bytes(&(setup){.config = config});
    check_bytes(&(setup){.recipe = "mxfp8", .config = with(OCT_GATHER_MINIMAL, OCT_RESHARD_NEVER)});
    check_bytes(&(setup){.recipe = "mxfp8", .config = config, .tied = 1, .convert_head = 1});
    check_bytes(&(setup){.recipe = "mxfp8", .config = config, .experts = 1});
}

/* Sizes that are multiples of 32 in a model of a real flavor: the ratios that users are told. */
static void given_a_flavor_the_ratios_of_converted_weights_are_those_of_the_formats(void **state) {
    (void)state;
    const struct {
        const char *recipe;
        oct_gather_mode mode;
        oct_recompute recompute;
        double at_most;
    } cases[] = {{"mxfp8", OCT_GATHER_ON_DEMAND, OCT_RECOMPUTE_NONE, 0.52},
                 {"mxfp8", OCT_GATHER_MINIMAL, OCT_RECOMPUTE_NONE, 0.52},
                 {"mxfp8", OCT_GATHER_ALL, OCT_RECOMPUTE_FULL, 1.04},
                 {"mxfp8", OCT_GATHER_MINIMAL, OCT_RECOMPUTE_FULL, 0.78},
                 {"hif8", OCT_GATHER_ON_DEMAND, OCT_RECOMPUTE_NONE, 0.505}};
    oct_model_args args;
    assert_int_equal(oct_model_args_flavor("llama3", "8B", &args, NULL), OCT_OK);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        setup s = {.recipe = cases[i].recipe,
                   .config = with(cases[i].mode, OCT_RESHARD_AFTER_FORWARD)};
        oct_model *model;
        oct_recipe recipe;
        oct_fsdp_traffic t;
        assert_int_equal(oct_model_create(&args, OCT_PARAMS_SHAPES_ONLY, &model, NULL), OCT_OK);
        oct_model_set_recompute(model, cases[i].recompute);
        oct_plan *plan = plan_model(model, &s, &recipe);
        assert_int_equal(
            oct_fsdp_plan_traffic(model, plan, &s.config, &(oct_sharding){4, 1}, 1, S, &t), OCT_OK);
        assert_true((double)t.converted <= cases[i].at_most * (double)t.converted_in_bf16);
        assert_true(t.converted_in_bf16 > 0 && t.gather_high > 0);
        oct_plan_destroy(plan);
        oct_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_shape_shards_cover_it_in_order_at_blocks_of_32),
        cmocka_unit_test(given_4096_rows_on_3_ranks_no_rank_has_a_block_more_than_another),
        cmocka_unit_test(given_as_many_experts_as_ranks_each_rank_has_whole_ones),
        cmocka_unit_test(given_teams_of_2_among_4_ranks_each_place_has_half_of_the_experts),
        cmocka_unit_test(given_any_recipe_gathered_codes_are_those_of_one_process),
        cmocka_unit_test(given_a_frameworks_rules_gathered_codes_are_those_of_the_weight_in_bf16),
        cmocka_unit_test(given_a_frameworks_rules_losses_are_those_of_one_process),
        cmocka_unit_test(given_any_recipe_losses_after_20_steps_are_those_of_one_process),
        cmocka_unit_test(given_high_precision_losses_are_those_of_one_process),
        cmocka_unit_test(given_any_mode_and_checkpointing_losses_are_those_of_one_process),
        cmocka_unit_test(given_a_tied_or_converted_head_losses_are_those_of_one_process),
        cmocka_unit_test(given_experts_losses_are_those_of_one_process),
        cmocka_unit_test(given_ranks_each_holds_its_share_of_weights_gradients_and_state),
        cmocka_unit_test(given_a_gather_mode_bytes_are_as_foretold_and_as_few_as_promised),
        cmocka_unit_test(given_a_flavor_the_ratios_of_converted_weights_are_those_of_the_formats),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
