/* Mixtures of experts: gradients, balance, and whole models of both families. */
#include "gradient_support.h"

#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/thread.h"
#include "convert/plan.h"
#include "nn/latent_attention.h"
#include "nn/moe.h"

static const oct_init any = {.kind = OCT_INIT_ZEROS};

/* ---- modules ---- */

static oct_moe_config moe_config(int64_t n_experts, int64_t n_active) {
    return (oct_moe_config){.dim = 20,
                            .hidden = 12,
                            .n_shared = 1,
                            .rule = plain_rule(n_experts, n_active),
                            .gate_init = any,
                            .w1_init = any,
                            .w2_w3_init = any};
}

static void given_a_mixture_gradients_match_finite_differences(void **state) {
    (void)state;
    for (int k = 0; k < 16; k++) {
        bench b;
        bench_open(&b, 2, 13);
        oct_moe_config config = moe_config(5, 3);
        config.rule.assignment = OCT_ASSIGN_IN_TURN; /* a choice has no gradient */
        config.rule.score_func = k & 1 ? OCT_SCORE_SIGMOID : OCT_SCORE_SOFTMAX;
        config.rule.normalize = k & 2;
        config.rule.route_scale = 1.7f;
        config.score_before_experts = k & 4;
        config.n_shared = k & 8 ? 2 : 0;
        oct_moe *moe;
        assert_int_equal(oct_moe_create(b.root, "moe", &config, &moe), OCT_OK);
        if (k & 1)
            oct_moe_set_products(moe, OCT_PRODUCT_RECOMPUTED);
        if (k & 2)
            moe->experts->products = &oct_expert_grouped;
        bench_finish(&b, &moe->base, 20, 20, 3e-4);
    }
}

static void given_limited_groups_and_a_bias_gradients_match_finite_differences(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 3, 17);
    oct_moe_config config = moe_config(8, 2);
    config.rule.score_func = OCT_SCORE_SIGMOID;
    config.rule.normalize = true;
    config.rule.n_groups = 4;
    config.rule.n_limited_groups = 2;
    config.load_balance_coeff = 1e-3f;
    oct_moe *moe;
    assert_int_equal(oct_moe_create(b.root, "moe", &config, &moe), OCT_OK);
    bench_set(&b, &moe->base, 20, 20);
    /* The choice must not change within a difference: the bias decides it. */
    moe->expert_bias[2] = 20.0f;
    moe->expert_bias[5] = 30.0f;
    bench_check(&b, 3e-4);
    bench_close(&b);
}

static void given_latent_attention_gradients_match_finite_differences(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bench b;
        bench_open(&b, 2, 9);
        oct_rotary rotary = {.config = {.dims = 4, .theta = 100.0, .pairs = OCT_ROPE_INTERLEAVED}};
        const oct_latent_attention_config config = {
            .dim = 24,
            .q_rank = k ? 10 : 0,
            .kv_rank = 14,
            .heads = {.n_heads = 3, .nope_dim = 6, .rope_dim = 4, .v_dim = 5},
            .scale = 0.4f,
            .norm_eps = 1e-5f,
            .rotary = &rotary,
            .init = any,
            .wo_init = any};
        oct_latent_attention *a;
        assert_int_equal(oct_latent_attention_create(b.root, "attention", &config, &a), OCT_OK);
        bench_finish(&b, &a->base, 24, 24, 3e-4);
        oct_rotary_clear(&rotary);
    }
}

static void given_counts_the_bias_moves_by_their_signs_and_its_mean_stays(void **state) {
    (void)state;
    oct_module *root = new_root();
    oct_moe *moe;
    oct_moe_config config = moe_config(4, 1);
    config.load_balance_coeff = 0.5f;
    assert_int_equal(oct_moe_create(root, "moe", &config, &moe), OCT_OK);
    const int64_t counts[] = {10, 0, 1, 1}; /* mean 3: signs -1 1 1 1, their mean 0.5 */
    const float expected[] = {-0.75f, 0.25f, 0.25f, 0.25f};
    moe->tokens_per_expert[2] = 7;
    oct_moe_update_bias(moe, counts);
    assert_memory_equal(moe->expert_bias, expected, sizeof expected);
    assert_int_equal(moe->tokens_per_expert[2], 0);
    const int64_t even[] = {3, 3, 3, 3};
    oct_moe_update_bias(moe, even);
    assert_memory_equal(moe->expert_bias, expected, sizeof expected);
    oct_module_destroy(root);
}

/* ---- whole models ---- */

static oct_model_args moe_args(oct_model_family family) {
    oct_model_args args;
    bool latent = family == OCT_MODEL_DEEPSEEK_V3;
    oct_error err = {0};
    assert_int_equal(oct_model_args_flavor(oct_model_family_name(family),
                                           latent ? "demo" : "demo_moe", &args, &err),
                     OCT_OK);
    args.vocab_size = V;
    args.dim = 32;
    args.n_layers = 3;
    args.n_heads = 4;
    args.n_kv_heads = 2;
    args.head_dim = latent ? 0 : 12;
    args.hidden_dim = 48;
    args.rope_theta = 100.0;
    args.moe_inter_dim = 24;
    args.q_lora_rank = latent ? 20 : 0;
    args.kv_lora_rank = 16;
    args.qk_nope_head_dim = 6;
    args.qk_rope_head_dim = 4;
    args.v_head_dim = 8;
    return args;
}

static const oct_model_family families[] = {OCT_MODEL_QWEN3, OCT_MODEL_DEEPSEEK_V3};

typedef struct conversion {
    oct_recipe recipes[2]; /* of linears, of experts */
    oct_plan *plan;
} conversion;

/* `linear`, `experts` NULL: kept. Experts run grouped. */
static void lab_convert(lab *l, const char *linear, const char *experts, conversion *c) {
    static const char *const kept[] = {"output", "router.gate"};
    oct_error err = {0};
    oct_converter_spec specs[3] = {
        {.kind = OCT_CONVERT_GROUPED_MM, .name = "npu_gmm", .where = "test"}};
    int64_t n = 1;
    if (linear) {
        assert_int_equal(oct_recipe_parse(linear, &c->recipes[0], &err), OCT_OK);
        specs[n++] = (oct_converter_spec){.kind = OCT_CONVERT_LINEAR,
                                          .name = "quantize.linear.mx",
                                          .where = "test",
                                          .recipe = &c->recipes[0],
                                          .exclude = {.patterns = kept, .n = 2}};
    }
    if (experts) {
        assert_int_equal(oct_recipe_parse(experts, &c->recipes[1], &err), OCT_OK);
        specs[n++] = (oct_converter_spec){.kind = OCT_CONVERT_EXPERTS,
                                          .name = "quantize.grouped_mm.mx",
                                          .where = "test",
                                          .recipe = &c->recipes[1]};
    }
    if (oct_plan_create(oct_model_root(l->model), specs, n, false, NULL, NULL, &c->plan, &err) ||
        oct_plan_apply(c->plan, &err))
        fail_msg("%s", err.message);
}

static void given_models_with_experts_gradients_match_finite_differences(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        oct_model_args args = moe_args(families[f]);
        args.moe_force_load_balance = true;
        check_model_gradients(&args, 2e-3);
    }
}

static void given_a_loop_or_grouped_products_a_model_gets_the_same_bits(void **state) {
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        oct_model_args args = moe_args(families[f]);
        conversion c = {0};
        lab l;
        lab_open(&l, &args, OCT_BF16);
        lab_train(&l);
        float *expected = gradients(&l);
        double loss = l.loss;
        lab_convert(&l, NULL, NULL, &c);
        lab_train_again(&l, loss, expected);
        oct_free(expected);
        oct_plan_destroy(c.plan);
        lab_close(&l);
    }
}

static void given_recompute_and_threads_models_with_experts_keep_their_bits(void **state) {
    (void)state;
    static const char *const recipes[] = {NULL, "mxfp8", "hif8"};
    int before = oct_threads();
    for (int k = 0; k < 6; k++) {
        oct_model_args args = moe_args(families[k % 2]);
        args.score_before_experts = k >= 4;
        conversion c = {0};
        lab l;
        lab_open(&l, &args, k < 3 ? OCT_F32 : OCT_BF16);
        lab_convert(&l, recipes[k % 3], recipes[k % 3], &c);
        oct_threads_set(1);
        lab_train(&l);
        float *expected = gradients(&l);
        double loss = l.loss;
        for (int mode = 0; mode < 3; mode++) {
            oct_model_set_recompute(l.model, (oct_recompute)mode);
            oct_threads_set(mode + 1);
            lab_train_again(&l, loss, expected);
        }
        oct_free(expected);
        oct_plan_destroy(c.plan);
        lab_close(&l);
    }
    oct_threads_set(before);
}

/* Experts alone keep within some per cent; with the linears too, errors of latent attention's four
 * products in a row come on top. */
static void given_8_bit_experts_gradients_stay_close_to_fp32(void **state) {
    (void)state;
    static const struct {
        const char *linear, *experts;
        double limit;
    } cases[] = {{NULL, "mxfp8", 0.12},
                 {NULL, "hif8", 0.12},
                 {NULL, "mxfp8-32x32", 0.12},
                 {"mxfp8", "hif8", 0.5},
                 {"hif8", "mxfp8", 0.5}};
    oct_model_args args = moe_args(OCT_MODEL_DEEPSEEK_V3);
    args.moe_force_load_balance = true; /* else a rounding may change a choice */
    lab exact;
    lab_open(&exact, &args, OCT_F32);
    lab_train(&exact);
    for (size_t k = 0; k < OCT_COUNT(cases); k++) {
        conversion c = {0};
        lab l;
        lab_open(&l, &args, OCT_BF16);
        lab_convert(&l, cases[k].linear, cases[k].experts, &c);
        expect_near(&l, &exact, cases[k].experts, 0.005, cases[k].limit, 0.02);
        oct_plan_destroy(c.plan);
        lab_close(&l);
    }
    lab_close(&exact);
}

static void given_training_passes_alone_tokens_are_counted_once_each(void **state) {
    (void)state;
    oct_model_args args = moe_args(OCT_MODEL_DEEPSEEK_V3);
    lab l;
    lab_open(&l, &args, OCT_F32);
    oct_model_set_recompute(l.model, OCT_RECOMPUTE_FULL);
    assert_null(oct_model_moe(l.model, 0)); /* the dense layer */
    lab_train(&l);
    lab_train(&l);
    lab_loss(&l);
    for (int64_t layer = 1; layer < 3; layer++) {
        int64_t total = 0;
        for (int e = 0; e < 8; e++)
            total += oct_model_moe(l.model, layer)->tokens_per_expert[e];
        assert_int_equal(total, 2 * B * S * 2);
    }
    oct_expert_load load = oct_model_expert_load(l.model);
    assert_int_equal(load.n_experts, 16);
    assert_true(load.largest_over_mean >= 1.0 && load.largest_over_mean <= 4.0);
    oct_model_update_routing(l.model);
    bool moved = false;
    for (int e = 0; e < 8; e++) {
        moved |= oct_model_moe(l.model, 1)->expert_bias[e] != 0;
        assert_int_equal(oct_model_moe(l.model, 1)->tokens_per_expert[e], 0);
    }
    assert_true(moved);
    oct_model_init(l.model, 3);
    assert_true(oct_model_moe(l.model, 1)->expert_bias[0] == 0);
    lab_close(&l);
}

static void given_a_forced_balance_the_load_is_even(void **state) {
    (void)state;
    oct_model_args args = moe_args(OCT_MODEL_QWEN3);
    args.num_experts = 7; /* 3 sequences of 21 tokens, 2 choices each: 18 an expert */
    args.moe_force_load_balance = true;
    lab l;
    lab_open(&l, &args, OCT_F32);
    lab_train(&l);
    oct_expert_load load = oct_model_expert_load(l.model);
    assert_true(load.largest_over_mean == 1.0);
    assert_true(load.idle_share == 0.0);
    lab_close(&l);
}

static void given_a_cache_generation_of_models_with_experts_equals_the_forward(void **state) {
    (void)state;
    static const int64_t pieces[] = {6, 1, 14}; /* S = 21 in all */
    for (size_t f = 0; f < 2; f++) {
        oct_model_args args = moe_args(families[f]);
        lab l;
        lab_open(&l, &args, OCT_F32);
        lab_generate(&l, OCT_F32, pieces, OCT_COUNT(pieces));
        lab_close(&l);
    }
}

/* ---- plans and dimensions ---- */

static void given_a_plan_experts_have_rows_and_histories_of_their_own(void **state) {
    (void)state;
    oct_model_args args = moe_args(OCT_MODEL_DEEPSEEK_V3);
    conversion c = {0};
    lab l;
    lab_open(&l, &args, OCT_BF16);
    lab_convert(&l, "mxfp8", "delayed_per_tensor_HiF8_HiF8_HiF8", &c);
    lab_train(&l);
    oct_plan_end_step(c.plan);
    int n_experts = 0;
    for (int64_t i = 0; i < c.plan->n_rows; i++) {
        const oct_plan_row *row = &c.plan->rows[i];
        oct_tensor history = oct_plan_row_history(row);
        if (!row->is_experts) {
            assert_null(history.data);
            continue;
        }
        n_experts++;
        assert_non_null(strstr(row->name, ".moe.experts"));
        assert_int_equal(row->shape[0], 8);
        assert_int_equal(row->bytes_dense, 3 * 2 * 8 * 24 * 32);
        assert_int_equal(row->bytes_quantized, 3 * 8 * (24 * 32 + 4));
        assert_true(row->grouped);
        assert_int_equal(history.shape[0], 9);
        const float *h = history.data;
        /* Inputs of w1 (for w3 too) and w2; the weights and the gradients of all three. */
        for (int64_t slot = 0; slot < 9; slot++) {
            bool used = slot != OCT_EXPERT_W3 * OCT_N_ROLES + OCT_ROLE_INPUT;
            assert_true((h[slot * history.shape[1]] > 0) == used);
        }
    }
    assert_int_equal(n_experts, 2);
    assert_int_equal(
        oct_linear_from(oct_module_find(oct_model_root(l.model), "layers.1.moe.router.gate"))
                ->base.ops == &oct_linear_ops,
        1);
    oct_plan_destroy(c.plan);
    lab_close(&l);
}

static void expect_refused(const oct_model_args *given, const char *message) {
    oct_model_args args = *given;
    oct_error err = {0};
    assert_int_equal(oct_model_args_resolve(&args, &err), OCT_INVALID);
    if (!strstr(err.message, message) || strchr(err.message, '\n'))
        fail_msg("got \"%s\", expected \"%s\"", err.message, message);
}

static void given_dimensions_that_cannot_be_one_line_says_which(void **state) {
    (void)state;
    const oct_model_args good = moe_args(OCT_MODEL_DEEPSEEK_V3);
    oct_model_args args = good;
    args.top_k = 9;
    expect_refused(&args, "top_k: impossible number of active experts; expected 1 to num_experts "
                          "(8); got 9");
    args = good;
    args.num_expert_groups = 3;
    expect_refused(&args, "num_expert_groups: doesn't divide num_experts; expected a divisor of 8; "
                          "got 3");
    args = good;
    args.num_limited_groups = 5;
    expect_refused(&args, "num_limited_groups: impossible value; expected 1 to num_expert_groups "
                          "(4); got 5");
    args = good;
    args.num_limited_groups = 1;
    args.top_k = 3;
    expect_refused(&args, "top_k: more active experts than the groups of a token have; expected at "
                          "most 2");
    args = good;
    args.num_experts = 0;
    expect_refused(&args, "num_experts: no experts to choose from, but top_k is 2 and "
                          "num_shared_experts 1; expected at least 2, or 0 for all three; got 0");
    args.top_k = 0;
    expect_refused(&args, "num_experts: no experts to choose from, but top_k is 0 and "
                          "num_shared_experts 1; expected at least 1, or 0 for all three; got 0");
    args = good;
    args.moe_inter_dim = 0;
    expect_refused(&args, "moe_inter_dim: impossible value");
    args = good;
    args.kv_lora_rank = 0;
    expect_refused(&args, "kv_lora_rank: impossible value; expected at least 1; got 0");
    args = good;
    args.qk_rope_head_dim = 5;
    expect_refused(&args, "qk_rope_head_dim: rotary positions turn pairs");
    assert_int_equal(oct_model_args_flavor("llama3", "demo", &args, NULL), OCT_OK);
    args.num_experts = 4;
    args.top_k = 2;
    args.moe_inter_dim = 8;
    expect_refused(&args, "num_experts: llama3 has no experts");
}

static void given_a_score_function_by_name_it_is_set_or_refused(void **state) {
    (void)state;
    oct_model_args args = moe_args(OCT_MODEL_DEEPSEEK_V3);
    oct_arg value = {.type = OCT_ARG_TEXT, .text = "softmax"};
    oct_error err = {0};
    assert_int_equal(oct_model_args_set(&args, "score_func", value, &err), OCT_OK);
    assert_int_equal(args.score_func, OCT_SCORE_SOFTMAX);
    value.text = "relu";
    assert_int_equal(oct_model_args_set(&args, "score_func", value, &err), OCT_INVALID);
    assert_string_equal(err.message, "score_func: impossible value; expected \"softmax\" or "
                                     "\"sigmoid\"; got \"relu\"");
    assert_int_equal(oct_model_args_set(&args, "top_k", value, &err), OCT_INVALID);
    value = (oct_arg){.type = OCT_ARG_INT, .i = 2};
    assert_int_equal(oct_model_args_set(&args, "n_expert_groups", value, &err), OCT_OK);
    assert_int_equal(args.num_expert_groups, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_mixture_gradients_match_finite_differences),
        cmocka_unit_test(given_limited_groups_and_a_bias_gradients_match_finite_differences),
        cmocka_unit_test(given_latent_attention_gradients_match_finite_differences),
        cmocka_unit_test(given_counts_the_bias_moves_by_their_signs_and_its_mean_stays),
        cmocka_unit_test(given_models_with_experts_gradients_match_finite_differences),
        cmocka_unit_test(given_a_loop_or_grouped_products_a_model_gets_the_same_bits),
        cmocka_unit_test(given_recompute_and_threads_models_with_experts_keep_their_bits),
        cmocka_unit_test(given_8_bit_experts_gradients_stay_close_to_fp32),
        cmocka_unit_test(given_training_passes_alone_tokens_are_counted_once_each),
        cmocka_unit_test(given_a_forced_balance_the_load_is_even),
        cmocka_unit_test(given_a_cache_generation_of_models_with_experts_equals_the_forward),
        cmocka_unit_test(given_a_plan_experts_have_rows_and_histories_of_their_own),
        cmocka_unit_test(given_dimensions_that_cannot_be_one_line_says_which),
        cmocka_unit_test(given_a_score_function_by_name_it_is_set_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
