/* Weights that ranks can't share evenly: gathered codes and losses are those of one process. */
#include "gathers.h"

#include "fsdp/sharding.h"

/* Rows of the parameter that this rank holds. */
static int64_t held_rows(const replica *r, const char *name) {
    const oct_param *param = oct_model_find_param(r->model, name);
    return param->n_held / oct_param_matrices(param).K;
}

static void check_held(sizes which, const char *name, const int64_t *expected) {
    const setup s = {.recipe = "mxfp8", .config = low, .sizes = which};
    replica r;
    replica_open(&r, &s, world);
    assert_int_equal(held_rows(&r, name), expected[oct_comm_rank(world)]);
    replica_close(&r);
}

static void given_4096_96_and_2_rows_ranks_hold_blocks_of_32_in_order(void **state) {
    (void)state;
    if (oct_comm_size(world) == 3) {
        check_held(SIZES_WIDE, "layers.0.feed_forward.w1.weight",
                   (int64_t[]){43 * 32, 43 * 32, 42 * 32});
        check_held(SIZES_FEW_ROWS, "layers.0.attention.wk.weight", (int64_t[]){2, 0, 0});
    } else {
        assert_int_equal(oct_comm_size(world), 5);
        check_held(SIZES_FEW_ROWS, "layers.0.feed_forward.w1.weight",
                   (int64_t[]){32, 32, 32, 0, 0});
    }
}

static void check_recipe(const char *recipe, sizes which) {
    check_gathers(&(setup){.recipe = recipe,
                           .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD),
                           .sizes = which});
    check_gathers(&(setup){.recipe = recipe,
                           .config = with(OCT_GATHER_MINIMAL, OCT_RESHARD_NEVER),
                           .recompute = OCT_RECOMPUTE_FULL,
                           .sizes = which});
}

static void given_96_and_2_rows_gathered_codes_are_those_of_one_process(void **state) {
    (void)state;
    for (int i = 0; i < N_RECIPES; i++)
        check_recipe(recipes[i], SIZES_FEW_ROWS);
}

static void given_4096_by_1024_on_3_ranks_gathered_codes_are_those_of_one_process(void **state) {
    (void)state;
    check_gathers(&(setup){.recipe = "mxfp8", /* 30 million weights on each */
                           .config = with(OCT_GATHER_ALL, OCT_RESHARD_AFTER_FORWARD),
                           .sizes = SIZES_WIDE});
}

static void given_96_and_2_rows_losses_are_those_of_one_process(void **state) {
    (void)state;
    static const char *const some[] = {"mxfp8", "dynamic_per_channel_E4M3_E4M3_E4M3"};
    for (int i = 0; i < 2; i++)
        check_training(&(setup){.recipe = some[i],
                                .config = with(OCT_GATHER_ON_DEMAND, OCT_RESHARD_AFTER_FORWARD),
                                .sizes = SIZES_FEW_ROWS},
                       20);
}

int main(void) {
    const struct CMUnitTest on_any[] = {
        cmocka_unit_test(given_4096_96_and_2_rows_ranks_hold_blocks_of_32_in_order),
        cmocka_unit_test(given_96_and_2_rows_gathered_codes_are_those_of_one_process),
    };
    const struct CMUnitTest on_3[] = {
        cmocka_unit_test(given_4096_by_1024_on_3_ranks_gathered_codes_are_those_of_one_process),
        /* as many sequences for each rank */
        cmocka_unit_test(given_96_and_2_rows_losses_are_those_of_one_process),
    };
    if (open_world(NULL))
        return 1;
    int n_failed = cmocka_run_group_tests(on_any, NULL, NULL);
    if (oct_comm_size(world) == 3)
        n_failed += cmocka_run_group_tests(on_3, NULL, NULL);
    close_world(NULL);
    return n_failed;
}
