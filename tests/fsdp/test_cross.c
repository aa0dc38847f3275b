/* Every recipe with every gather mode and checkpointing, on dense and expert models: slow. */
#include "gathers.h"

typedef void check_fn(const setup *s);

static void for_each_setup(check_fn *run, int experts) {
    static const oct_recompute recomputes[] = {OCT_RECOMPUTE_NONE, OCT_RECOMPUTE_OP,
                                               OCT_RECOMPUTE_FULL};
    static const oct_gather_mode modes[] = {OCT_GATHER_ON_DEMAND, OCT_GATHER_ALL,
                                            OCT_GATHER_MINIMAL};
    for (int i = 0; i < N_RECIPES; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 3; k++) {
                if (j > 0 && modes[k] == OCT_GATHER_ON_DEMAND)
                    continue; /* becomes `all` */
                setup s = {.recipe = recipes[i],
                           .config = with(modes[k], (i + j + k) % 2 ? OCT_RESHARD_NEVER
                                                                    : OCT_RESHARD_AFTER_FORWARD),
                           .recompute = recomputes[j],
                           .experts = experts};
                run(&s);
            }
}

static void check_20_steps(const setup *s) {
    setup same = *s;
    if (s->experts) /* a token at the border of two experts decides the same way */
        same.config.activation = OCT_F32;
    check_training(&same, 20);
}

static void given_dense_models_gathered_codes_are_those_of_one_process(void **state) {
    (void)state;
    for_each_setup(check_gathers, 0);
}

static void given_experts_gathered_codes_are_those_of_one_process(void **state) {
    (void)state;
    for_each_setup(check_gathers, 1);
}

static void given_dense_models_losses_are_those_of_one_process(void **state) {
    (void)state;
    for_each_setup(check_20_steps, 0);
}

static void given_experts_losses_are_those_of_one_process(void **state) {
    (void)state;
    for_each_setup(check_20_steps, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_dense_models_gathered_codes_are_those_of_one_process),
        cmocka_unit_test(given_experts_gathered_codes_are_those_of_one_process),
        cmocka_unit_test(given_dense_models_losses_are_those_of_one_process),
        cmocka_unit_test(given_experts_losses_are_those_of_one_process),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
