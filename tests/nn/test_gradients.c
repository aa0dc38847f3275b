/* Gradients of every high-precision module and of whole models against finite differences, and what
 * must not change them: recompute, threads, caching.
 *
 * The measure: for a direction v in the space of one tensor, the slope of the loss along v must be
 * <gradient, v>. The slope comes from central differences at h and h/2, combined so that the error
 * is O(h^4) (Richardson); the loss is summed in double. What remains is rounding of the fp32
 * forward, about 2^-24 |loss terms| / h. Tolerances are relative to |gradient| |v| and were set at
 * about ten times the largest error seen, far below what any wrong term would cause. */
#include "gradient_support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/rng.h"
#include "base/thread.h"
#include "convert/mx_linear.h"
#include "model/model.h"
#include "nn/embedding.h"
#include "nn/feed_forward.h"

static void given_a_linear_with_bias_gradients_match_finite_differences(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 2, 19);
    oct_init any = {.kind = OCT_INIT_ZEROS};
    oct_linear *linear;
    assert_int_equal(oct_linear_create(b.root, "linear", 24, 33, any, &any, &linear), OCT_OK);
    bench_finish(&b, &linear->base, 24, 33, 5e-5);
}

static void given_a_norm_over_rows_and_over_heads_gradients_match(void **state) {
    (void)state;
    for (int64_t heads = 1; heads <= 3; heads += 2) {
        bench b;
        bench_open(&b, 3, 11);
        oct_norm *n;
        assert_int_equal(oct_norm_create(b.root, "norm", 20, 1e-5f, &n), OCT_OK);
        bench_set(&b, &n->base, 20 * heads, 20 * heads);
        bench_check(&b, 5e-5);
        bench_close(&b);
    }
}

static void given_a_feed_forward_gradients_match_kept_or_recomputed(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bench b;
        bench_open(&b, 2, 13);
        oct_init any = {.kind = OCT_INIT_ZEROS};
        oct_feed_forward *ff;
        assert_int_equal(oct_feed_forward_create(b.root, "ff", 16, 40, any, any, false, &ff),
                         OCT_OK);
        ff->product = k ? OCT_PRODUCT_RECOMPUTED : OCT_PRODUCT_KEPT;
        bench_finish(&b, &ff->base, 16, 40 - 24, 1e-4);
    }
}

static oct_attention_config attention_config(oct_rotary *rotary, oct_rope_pairs pairs,
                                             bool qk_norm) {
    *rotary = (oct_rotary){.config = {.dims = 8, .theta = 100.0, .pairs = pairs}};
    return (oct_attention_config){.dim = 24,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .head_dim = 8,
                                  .qk_norm = qk_norm,
                                  .norm_eps = 1e-5f,
                                  .rotary = rotary};
}

static void given_attention_of_both_families_gradients_match(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bench b;
        bench_open(&b, 2, 9);
        oct_rotary rotary;
        oct_attention_config config =
            attention_config(&rotary, k ? OCT_ROPE_HALVES : OCT_ROPE_INTERLEAVED, k);
        oct_attention *a;
        assert_int_equal(oct_attention_create(b.root, "attention", &config, &a), OCT_OK);
        bench_finish(&b, &a->base, 24, 24, 2e-4);
        oct_rotary_clear(&rotary);
    }
}

static void given_biases_a_window_and_no_positions_gradients_match(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        bench b;
        bench_open(&b, 2, 9);
        oct_rotary rotary;
        oct_attention_config config = attention_config(&rotary, OCT_ROPE_HALVES, k > 2);
        config.qkv_bias = k == 0 || k == 3; /* unrotated, wk's alone shifts a row's scores evenly */
        config.wo_bias = k == 2;
        config.window = k == 1 ? 3 : 0;
        config.unrotated = k > 1;
        oct_attention *a;
        assert_int_equal(oct_attention_create(b.root, "attention", &config, &a), OCT_OK);
        bench_finish(&b, &a->base, 24, 24, 2e-4);
        oct_rotary_clear(&rotary);
    }
    bench b;
    bench_open(&b, 2, 13);
    oct_init any = {.kind = OCT_INIT_ZEROS};
    oct_feed_forward *ff;
    assert_int_equal(oct_feed_forward_create(b.root, "ff", 16, 40, any, any, true, &ff), OCT_OK);
    bench_finish(&b, &ff->base, 16, 16, 1e-4);
}

static void given_a_block_gradients_match_in_every_recompute_mode(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        bench b;
        bench_open(&b, 2, 9);
        oct_rotary rotary;
        oct_attention_config config = attention_config(&rotary, OCT_ROPE_INTERLEAVED, false);
        oct_init any = {.kind = OCT_INIT_ZEROS};
        oct_block *block;
        oct_attention *a;
        oct_feed_forward *ff;
        assert_int_equal(oct_block_create(b.root, "block", &block), OCT_OK);
        oct_module *m = &block->base;
        assert_int_equal(oct_norm_create(m, "attention_norm", 24, 1e-5f, &block->attention_norm),
                         OCT_OK);
        assert_int_equal(oct_attention_create(m, "attention", &config, &a), OCT_OK);
        assert_int_equal(oct_norm_create(m, "ffn_norm", 24, 1e-5f, &block->ffn_norm), OCT_OK);
        assert_int_equal(oct_feed_forward_create(m, "feed_forward", 24, 32, any, any, false, &ff),
                         OCT_OK);
        block->attention = &a->base;
        block->feed_forward = &ff->base;
        oct_block_set_recompute(block, (oct_recompute)k);
        bench_finish(&b, m, 24, 24, 2e-4);
        oct_rotary_clear(&rotary);
    }
}

static void given_an_embedding_repeated_tokens_add_their_gradients(void **state) {
    (void)state;
    bench b;
    bench_open(&b, 1, 5);
    oct_init any = {.kind = OCT_INIT_ZEROS};
    oct_embedding *e;
    assert_int_equal(oct_embedding_create(b.root, "table", 7, 6, any, &e), OCT_OK);
    bench_set(&b, &e->base, 1, 6);
    const int32_t tokens[5] = {3, 0, 3, 6, 3};
    oct_tensor x = oct_tensor_1d(OCT_I32, 5, (void *)(uintptr_t)tokens);
    oct_tensor y = oct_tensor_2d(OCT_F32, 5, 6, b.y), dy = oct_tensor_2d(OCT_F32, 5, 6, b.r);
    b.step->save = OCT_SAVE_FOR_BACKWARD;
    assert_int_equal(oct_forward(b.m, b.step, &x, &y), OCT_OK);
    assert_int_equal(oct_backward(b.m, b.step, &dy, NULL, OCT_OVERWRITE), OCT_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(b.y[2 * 6 + i] == e->weight->value[3 * 6 + i]);
        float sum = b.r[i] + b.r[12 + i] + b.r[24 + i];
        assert_true(fabsf(e->weight->grad[3 * 6 + i] - sum) < 1e-6f);
        assert_true(e->weight->grad[1 * 6 + i] == 0);
    }
    const int32_t outside[5] = {0, 1, 7, 2, 3}, negative[5] = {0, -1, 0, 2, 3};
    x.data = (void *)(uintptr_t)outside;
    assert_int_equal(oct_forward(b.m, b.step, &x, &y), OCT_INVALID);
    x.data = (void *)(uintptr_t)negative;
    assert_int_equal(oct_forward(b.m, b.step, &x, &y), OCT_INVALID);
    bench_close(&b);
}

/* ---- whole models ---- */

static void given_whole_models_gradients_match_finite_differences(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        for (int tied = 0; tied < 2; tied++) {
            oct_model_args args = small_args((oct_model_family)family);
            args.enable_weight_tying = tied;
            check_model_gradients(&args, 1e-3);
        }
    }
}

static void set_mode(oct_model *model, int mode) {
    if (mode < 3)
        oct_model_set_recompute(model, (oct_recompute)mode);
    else
        oct_model_set_recompute_every(model, 2);
}

static void given_any_recompute_mode_gradients_are_the_same_bits(void **state) {
    (void)state;
    static const char *const recipes[] = {NULL, "mxfp8", "hif8"};
    for (int k = 0; k < 12; k++) {
        oct_model_args args = small_args(k % 2 ? OCT_MODEL_QWEN3 : OCT_MODEL_LLAMA3);
        lab l;
        lab_open(&l, &args, k / 6 ? OCT_BF16 : OCT_F32);
        if (recipes[k % 3])
            lab_quantize(&l, recipes[k % 3]);
        lab_train(&l);
        float *expected = gradients(&l);
        double loss = l.loss;
        for (int mode = 1; mode < 4; mode++) {
            set_mode(l.model, mode);
            lab_train_again(&l, loss, expected);
        }
        oct_free(expected);
        lab_close(&l);
    }
}

static void given_one_two_or_three_threads_gradients_are_the_same_bits(void **state) {
    (void)state;
    int before = oct_threads();
    for (int k = 0; k < 4; k++) {
        oct_model_args args = small_args(k % 2 ? OCT_MODEL_QWEN3 : OCT_MODEL_LLAMA3);
        lab l;
        oct_threads_set(1);
        lab_open(&l, &args, k < 2 ? OCT_F32 : OCT_BF16);
        if (k >= 2)
            lab_quantize(&l, "mxfp8");
        lab_train(&l);
        float *expected = gradients(&l);
        double loss = l.loss;
        for (int n = 2; n <= 3; n++) {
            oct_threads_set(n);
            lab_train_again(&l, loss, expected);
        }
        oct_free(expected);
        lab_close(&l);
    }
    oct_threads_set(before);
}

/* Gradients of two micro-batches, in two steps between which the masters move. */
static void train_two_steps(bool quantized, oct_caching caching, float *sums[2], lab *l) {
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    lab_open(l, &args, OCT_BF16);
    if (quantized)
        lab_quantize(l, "mxfp8");
    oct_model_set_recompute(l->model, OCT_RECOMPUTE_FULL);
    oct_weights_set_caching(l->weights, caching);
    for (int step = 0; step < 2; step++) {
        double sum;
        int64_t n, n_params;
        lab_train(l);
        /* The second batch: the first one's tokens read from another place. */
        assert_int_equal(oct_model_train(l->model, l->step, B - 1, S, l->tokens + S, l->targets + S,
                                         0.01f, &sum, &n),
                         OCT_OK);
        sums[step] = gradients(l);
        oct_param *const *params = oct_model_params(l->model, &n_params);
        for (int64_t i = 0; i < n_params; i++) {
            for (int64_t j = 0; j < oct_param_elements(params[i]); j++)
                params[i]->value[j] -= 0.5f * params[i]->grad[j];
            params[i]->version++;
        }
    }
}

static void given_two_micro_batches_in_two_steps_the_cache_changes_no_bit(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        lab without, with;
        float *expected[2], *got[2];
        train_two_steps(k == 1, OCT_CACHE_OFF, expected, &without);
        train_two_steps(k == 1, OCT_CACHE_ON, got, &with);
        size_t n_bytes = (size_t)n_gradients(&with) * sizeof(float);
        assert_memory_not_equal(expected[0], expected[1], n_bytes);
        for (int step = 0; step < 2; step++) {
            assert_memory_equal(got[step], expected[step], n_bytes);
            oct_free(got[step]);
            oct_free(expected[step]);
        }
        lab_close(&without);
        lab_close(&with);
    }
}

static void given_a_changed_master_the_cached_copies_follow_the_version(void **state) {
    (void)state;
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    lab l;
    lab_open(&l, &args, OCT_BF16);
    lab_quantize(&l, "mxfp8");
    double before = lab_loss(&l);
    size_t n_bytes = oct_weights_bytes(l.weights), live = oct_alloc_live_bytes();
    oct_param *param = oct_model_find_param(l.model, "layers.1.attention.wv.weight");
    fill(param->value, oct_param_elements(param), 77, 0.15f);
    double after = lab_loss(&l); /* grows the versions */
    assert_true(before != after);
    /* The same buffers hold the new copies. */
    assert_int_equal(oct_weights_bytes(l.weights), n_bytes);
    assert_int_equal(oct_alloc_live_bytes(), live);
    lab_close(&l);
}

static void given_bf16_activations_gradients_stay_close_to_fp32(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        oct_model_args args = small_args((oct_model_family)family);
        lab exact, rounded;
        lab_open(&exact, &args, OCT_F32);
        lab_open(&rounded, &args, OCT_BF16);
        lab_train(&exact);
        /* bf16 keeps 8 bits: 2^-9 a rounding, some dozens of roundings in a row. */
        expect_near(&rounded, &exact, "bf16", 0, 0.03, 0.01);
        lab_close(&exact);
        lab_close(&rounded);
    }
}

static void given_a_frozen_parameter_it_gets_no_gradient_and_others_the_same(void **state) {
    (void)state;
    static const char *const frozen[] = {"tok_embeddings.weight", "layers.1.attention.wq.weight",
                                         "layers.0.ffn_norm.weight"};
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    lab l;
    lab_open(&l, &args, OCT_F32);
    lab_train(&l);
    oct_param *watched = oct_model_find_param(l.model, "layers.0.feed_forward.w2.weight");
    int64_t n = oct_param_elements(watched);
    float *expected = oct_malloc_array((size_t)n, sizeof *expected);
    memcpy(expected, watched->grad, (size_t)n * sizeof *expected);
    for (size_t i = 0; i < 3; i++) {
        oct_param *param = oct_model_find_param(l.model, frozen[i]);
        oct_free(param->grad);
        param->grad = NULL;
        param->frozen = true;
    }
    lab_train(&l);
    assert_memory_equal(watched->grad, expected, (size_t)n * sizeof *expected);
    assert_int_equal(oct_model_enable_training(l.model), OCT_OK);
    assert_null(oct_model_find_param(l.model, frozen[1])->grad);
    oct_free(expected);
    lab_close(&l);
}

/* ---- forward and backward apart, generation ---- */

static void given_logits_forward_and_backward_apart_equal_training(void **state) {
    (void)state;
    oct_model_args args = small_args(OCT_MODEL_QWEN3);
    lab l;
    lab_open(&l, &args, OCT_F32);
    lab_train(&l);
    float *expected = gradients(&l), *data = oct_malloc_array(B * S * V, sizeof *data);
    oct_tensor logits = oct_tensor_2d(OCT_F32, B * S, V, data);
    oct_model_zero_gradients(l.model);
    assert_int_equal(
        oct_model_forward(l.model, l.step, B, S, l.tokens, OCT_SAVE_FOR_BACKWARD, &logits), OCT_OK);
    oct_loss_sum sum;
    assert_int_equal(oct_cross_entropy_gradient(&logits, l.targets, 1.0f / (float)n_valid_targets(),
                                                &sum, l.step->scratch),
                     OCT_OK);
    assert_int_equal(oct_model_backward(l.model, l.step, &logits), OCT_OK);
    assert_true(sum.loss / (double)sum.count == l.loss);
    expect_same_bits(&l, expected);
    assert_int_equal(oct_arena_used_bytes(l.step->saved), 0);
    oct_free(expected);
    oct_free(data);
    lab_close(&l);
}

/* With 2^16 tokens in the vocabulary the head runs over slices of 256 rows. */
static void given_a_large_vocabulary_the_sliced_head_equals_the_whole_one(void **state) {
    (void)state;
    enum { LARGE = 65536, LONG = 150, ROWS = 2 * LONG };
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    args.vocab_size = LARGE;
    args.dim = 8;
    args.hidden_dim = 8;
    args.n_layers = 1;
    lab l;
    lab_open(&l, &args, OCT_F32);
    int32_t *tokens = oct_malloc_array(ROWS, sizeof *tokens);
    float *data = oct_malloc_array((size_t)ROWS * LARGE, sizeof *data);
    for (uint64_t i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)oct_rng_below(6, 1, i, LARGE);
    tokens[290] = LARGE - 1;
    double loss;
    int64_t n;
    oct_loss_sum sum;
    assert_int_equal(oct_model_train(l.model, l.step, 2, LONG, tokens, tokens, 0.5f, &loss, &n),
                     OCT_OK);
    float *sliced = gradients(&l);
    oct_model_zero_gradients(l.model);
    oct_tensor logits = oct_tensor_2d(OCT_F32, ROWS, LARGE, data);
    assert_int_equal(
        oct_model_forward(l.model, l.step, 2, LONG, tokens, OCT_SAVE_FOR_BACKWARD, &logits),
        OCT_OK);
    assert_int_equal(oct_cross_entropy_gradient(&logits, tokens, 0.5f, &sum, l.step->scratch),
                     OCT_OK);
    assert_int_equal(oct_model_backward(l.model, l.step, &logits), OCT_OK);
    float *whole = gradients(&l);
    assert_int_equal(n, ROWS);
    assert_true(fabs(loss - sum.loss) < 1e-9 * sum.loss);
    /* The head's weight gradient is added slice by slice: another order, nothing else. */
    assert_true(relative_error(sliced, whole, n_gradients(&l)) < 1e-6);
    oct_free(sliced);
    oct_free(whole);
    oct_free(tokens);
    oct_free(data);
    lab_close(&l);
}

static void given_every_linear_converted_gradients_stay_close_to_fp32(void **state) {
    (void)state;
    static const char *const recipes[] = {"mxfp8", "mxfp8-32x32", "hif8"};
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    lab exact;
    lab_open(&exact, &args, OCT_F32);
    lab_train(&exact);
    for (size_t k = 0; k < OCT_COUNT(recipes); k++) {
        lab l;
        lab_open(&l, &args, OCT_BF16);
        lab_quantize_all(&l, recipes[k]);
        /* Three bits of fraction: about 2.6 % an operand (uniform within a step), through 22
         * products in a row. */
        expect_near(&l, &exact, recipes[k], 0.01, 0.3, 0.02);
        lab_close(&l);
    }
    lab_close(&exact);
}

static void given_a_cache_generation_equals_the_full_forward(void **state) {
    (void)state;
    static const int64_t pieces[] = {6, 1, 1, 9, 1, 3}; /* S = 21 in all */
    for (int k = 0; k < 4; k++) {
        oct_model_args args = small_args(k % 2 ? OCT_MODEL_QWEN3 : OCT_MODEL_LLAMA3);
        oct_dtype dtype = k < 2 ? OCT_F32 : OCT_BF16;
        lab l;
        lab_open(&l, &args, dtype);
        lab_generate(&l, dtype, pieces, OCT_COUNT(pieces));
        lab_close(&l);
    }
}

/* ---- memory ---- */

/* Bytes on the saved stack after a saving forward. */
static size_t saved_bytes(int64_t n_layers, int64_t n_seq, oct_dtype activation, const char *recipe,
                          oct_recompute mode, oct_model_args args) {
    args.n_layers = n_layers;
    lab l;
    lab_open(&l, &args, activation);
    if (recipe)
        lab_quantize(&l, recipe);
    oct_model_set_recompute(l.model, mode);
    int64_t T = n_seq * 64;
    int32_t *tokens = oct_calloc_array((size_t)T, sizeof *tokens);
    float *data = oct_malloc_array((size_t)(T * args.vocab_size), sizeof *data);
    oct_tensor logits = oct_tensor_2d(OCT_F32, T, args.vocab_size, data);
    assert_int_equal(
        oct_model_forward(l.model, l.step, n_seq, 64, tokens, OCT_SAVE_FOR_BACKWARD, &logits),
        OCT_OK);
    size_t n_bytes = oct_arena_used_bytes(l.step->saved);
    assert_int_equal(oct_arena_used_bytes(l.step->scratch), 0);
    assert_int_equal(oct_model_backward(l.model, l.step, &logits), OCT_OK);
    oct_free(tokens);
    oct_free(data);
    lab_close(&l);
    return n_bytes;
}

/* Bytes a token and layer: second differences, so that notes of fixed size drop out. */
static double bytes_per_token(oct_dtype activation, const char *recipe, oct_recompute mode,
                              oct_model_args args) {
    int64_t more = 3, fewer = 1;
    double two = (double)saved_bytes(2, more, activation, recipe, mode, args) -
                 (double)saved_bytes(2, fewer, activation, recipe, mode, args);
    double one = (double)saved_bytes(1, more, activation, recipe, mode, args) -
                 (double)saved_bytes(1, fewer, activation, recipe, mode, args);
    return (two - one) / (double)((more - fewer) * 64);
}

/* In bytes a token: x, x2, O: d each; q, k, v: 3 d; h, h2: d each; w1's and w3's outputs: F each;
 * their product: F; 4 bytes of softmax sum a head, 4 for each norm's row. A converted linear keeps
 * codes and scales (33/32 bytes an element) in place of its input; siblings share theirs. */
static void given_a_layer_what_is_kept_for_backward_is_the_itemised_table(void **state) {
    (void)state;
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    args.dim = 128;
    args.n_heads = args.n_kv_heads = 2;
    args.hidden_dim = 352;
    const double d = 128, F = 352, sums = 4 * 2 + 2 * 4;
    double fp32 = bytes_per_token(OCT_F32, NULL, OCT_RECOMPUTE_NONE, args);
    assert_true(fp32 == 4 * (8 * d + 3 * F) + sums);
    assert_true(fp32 < 64 * d * 1.03 + sums); /* F is 2.75 d here, not 2.67 d */
    double op = bytes_per_token(OCT_F32, NULL, OCT_RECOMPUTE_OP, args);
    assert_true(op == 4 * (6 * d + 2 * F) + sums);
    double full = bytes_per_token(OCT_F32, NULL, OCT_RECOMPUTE_FULL, args);
    assert_true(full == 4 * d);
    double bf16 = bytes_per_token(OCT_BF16, NULL, OCT_RECOMPUTE_NONE, args);
    assert_true(bf16 == 2 * (8 * d + 3 * F) + sums);
    /* Without h, h2 and the product; with codes of h, O, h2 and the product. */
    double mxfp8 = bytes_per_token(OCT_BF16, "mxfp8", OCT_RECOMPUTE_NONE, args);
    assert_true(mxfp8 == 2 * (6 * d + 2 * F) + (3 * d + F) * 33 / 32 + sums);
    assert_true(mxfp8 < 29 * d + sums);
    double hif8 = bytes_per_token(OCT_BF16, "hif8", OCT_RECOMPUTE_NONE, args);
    assert_true(hif8 == 2 * (6 * d + 2 * F) + (3 * d + F) + sums);
}

static void given_refused_memory_a_step_fails_and_the_next_one_works(void **state) {
    (void)state;
    oct_model_args args = small_args(OCT_MODEL_LLAMA3);
    args.n_layers = 1;
    lab l;
    lab_open(&l, &args, OCT_BF16);
    lab_quantize(&l, "mxfp8");
    int64_t n_failures = 0;
    for (int64_t n = 1;; n++, n_failures++) {
        double sum;
        int64_t n_valid;
        oct_alloc_fail_at(n);
        oct_status status =
            oct_model_train(l.model, l.step, B, S, l.tokens, l.targets, 1.0f, &sum, &n_valid);
        oct_alloc_fail_at(0);
        if (!status)
            break;
        assert_int_equal(status, OCT_NO_MEMORY);
        assert_int_equal(oct_arena_used_bytes(l.step->saved), 0);
        assert_int_equal(oct_arena_used_bytes(l.step->scratch), 0);
        assert_int_equal(oct_quant_cache_count(l.step->quant_cache), 0);
    }
    assert_true(n_failures > 5);
    lab_train(&l);
    float *expected = gradients(&l);
    lab fresh;
    lab_open(&fresh, &args, OCT_BF16);
    lab_quantize(&fresh, "mxfp8");
    lab_train(&fresh);
    expect_same_bits(&fresh, expected);
    oct_free(expected);
    lab_close(&l);
    lab_close(&fresh);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_linear_with_bias_gradients_match_finite_differences),
        cmocka_unit_test(given_a_norm_over_rows_and_over_heads_gradients_match),
        cmocka_unit_test(given_a_feed_forward_gradients_match_kept_or_recomputed),
        cmocka_unit_test(given_attention_of_both_families_gradients_match),
        cmocka_unit_test(given_biases_a_window_and_no_positions_gradients_match),
        cmocka_unit_test(given_a_block_gradients_match_in_every_recompute_mode),
        cmocka_unit_test(given_an_embedding_repeated_tokens_add_their_gradients),
        cmocka_unit_test(given_whole_models_gradients_match_finite_differences),
        cmocka_unit_test(given_any_recompute_mode_gradients_are_the_same_bits),
        cmocka_unit_test(given_one_two_or_three_threads_gradients_are_the_same_bits),
        cmocka_unit_test(given_two_micro_batches_in_two_steps_the_cache_changes_no_bit),
        cmocka_unit_test(given_a_changed_master_the_cached_copies_follow_the_version),
        cmocka_unit_test(given_bf16_activations_gradients_stay_close_to_fp32),
        cmocka_unit_test(given_a_frozen_parameter_it_gets_no_gradient_and_others_the_same),
        cmocka_unit_test(given_logits_forward_and_backward_apart_equal_training),
        cmocka_unit_test(given_a_large_vocabulary_the_sliced_head_equals_the_whole_one),
        cmocka_unit_test(given_every_linear_converted_gradients_stay_close_to_fp32),
        cmocka_unit_test(given_a_cache_generation_equals_the_full_forward),
        cmocka_unit_test(given_a_layer_what_is_kept_for_backward_is_the_itemised_table),
        cmocka_unit_test(given_refused_memory_a_step_fails_and_the_next_one_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
