/* Attention that stays inside documents, in whole models: each document of a window comes out as if
 * it were alone, forward and backward. Rotary attention knows distances only, so that a document's
 * logits don't depend on where in the window it lies. */
#include "gradient_support.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/thread.h"

enum { END = 7, N_KINDS = 3 };

/* Ends at a window's first and last place, two in a row, and a document longer than the window. */
static const int ends[B][S] = {
    [0] = {[0] = 1, [6] = 1, [12] = 1, [20] = 1}, [2] = {[4] = 1, [5] = 1, [13] = 1}};

/* llama3; qwen3 with a window in one layer; latent attention. */
static oct_model_args args_of(int kind, oct_attn_mask mask) {
    static const oct_model_family families[N_KINDS] = {OCT_MODEL_LLAMA3, OCT_MODEL_QWEN3,
                                                       OCT_MODEL_DEEPSEEK_V3};
    oct_model_args args = small_args(families[kind]);
    args.attn_mask_type = mask;
    if (kind == 1) {
        args.window = 5;
        oct_layer_set_add(&args.windowed, 1);
    }
    if (kind == 2) {
        args.kv_lora_rank = 12;
        args.qk_nope_head_dim = 6;
        args.qk_rope_head_dim = 4;
        args.v_head_dim = 5;
        args.num_experts = args.top_k = args.num_shared_experts = 0;
    }
    return args;
}

static void open_documents(lab *l, const oct_model_args *args, oct_dtype activation) {
    lab_open(l, args, activation);
    for (int i = 0; i < B * S; i++)
        l->tokens[i] = ends[i / S][i % S] ? END : l->tokens[i] == END ? END + 1 : l->tokens[i];
    oct_model_set_document_end(l->model, END);
}

/* (n, V), the caller frees it. */
static float *logits_of(lab *l, int64_t n_seq, int64_t n, const int32_t *tokens) {
    float *data = oct_malloc_array((size_t)(n_seq * n * V), sizeof *data);
    oct_tensor logits = oct_tensor_2d(OCT_F32, n_seq * n, V, data);
    assert_int_equal(
        oct_model_forward(l->model, l->step, n_seq, n, tokens, OCT_SAVE_NOTHING, &logits), OCT_OK);
    return data;
}

static int64_t document_length(int b, int64_t first) {
    int64_t end = first;
    while (end < S - 1 && !ends[b][end])
        end++;
    return end + 1 - first;
}

static void given_documents_in_a_window_gradients_match_finite_differences(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        oct_model_args args = args_of(kind, OCT_ATTN_BLOCK_CAUSAL);
        lab l;
        open_documents(&l, &args, OCT_F32);
        lab_check_gradients(&l, 1e-3);
        lab_close(&l);
    }
}

static void given_a_document_its_logits_are_those_it_has_alone(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        oct_model_args args = args_of(kind, OCT_ATTN_BLOCK_CAUSAL);
        lab l;
        open_documents(&l, &args, OCT_F32);
        float *all = logits_of(&l, B, S, l.tokens);
        for (int b = 0; b < B; b++)
            for (int64_t first = 0, n; first < S; first += n) {
                n = document_length(b, first);
                float *alone = logits_of(&l, 1, n, l.tokens + b * S + first);
                double error = relative_error(all + (b * S + first) * V, alone, n * V);
                if (!(error < 1e-5))
                    fail_msg("kind %d, sequence %d: document at %d differs by %g", kind, b,
                             (int)first, error);
                oct_free(alone);
            }
        oct_free(all);
        lab_close(&l);
    }
}

static void given_other_tokens_in_a_document_the_others_keep_their_bits(void **state) {
    (void)state;
    const size_t row = V * sizeof(float);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int mask = 0; mask < 2; mask++) {
            oct_model_args args = args_of(kind, (oct_attn_mask)mask);
            lab l;
            open_documents(&l, &args, OCT_F32);
            float *before = logits_of(&l, B, S, l.tokens);
            for (int s = 1; s < 6; s++) /* all of the second document of sequence 0 but its end */
                l.tokens[s] = 49 - l.tokens[s] == END ? 1 : 49 - l.tokens[s];
            float *after = logits_of(&l, B, S, l.tokens);
            for (int s = 0; s < B * S; s++)
                if (s < 1 || s >= 7)
                    assert_int_equal(memcmp(before + s * V, after + s * V, row) == 0,
                                     mask == OCT_ATTN_BLOCK_CAUSAL || s < 1 || s >= S);
            assert_memory_not_equal(before + 6 * V, after + 6 * V, row);
            oct_free(before);
            oct_free(after);
            lab_close(&l);
        }
}

static void given_any_recompute_mode_and_threads_gradients_are_the_same_bits(void **state) {
    (void)state;
    int threads = oct_threads();
    for (int kind = 0; kind < N_KINDS; kind++) {
        oct_model_args args = args_of(kind, OCT_ATTN_BLOCK_CAUSAL);
        lab l;
        open_documents(&l, &args, kind == 1 ? OCT_BF16 : OCT_F32);
        lab_train(&l);
        float *expected = gradients(&l);
        double loss = l.loss;
        for (int mode = 1; mode < 3; mode++) {
            oct_model_set_recompute(l.model, (oct_recompute)mode);
            oct_threads_set(mode + 1);
            lab_train_again(&l, loss, expected);
        }
        oct_threads_set(threads);
        oct_free(expected);
        lab_close(&l);
    }
}

static void given_no_end_in_the_windows_the_bits_are_those_of_a_causal_model(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        oct_model_args causal = args_of(kind, OCT_ATTN_CAUSAL);
        oct_model_args block = args_of(kind, OCT_ATTN_BLOCK_CAUSAL);
        lab a, b;
        open_documents(&a, &causal, OCT_F32);
        open_documents(&b, &block, OCT_F32);
        lab_train(&a);
        float *expected = gradients(&a);
        lab_train(&b);
        assert_true(a.loss != b.loss);
        oct_model_set_document_end(b.model, V); /* no token */
        lab_train_again(&b, a.loss, expected);
        oct_free(expected);
        lab_close(&a);
        lab_close(&b);
    }
}

static void given_logits_forward_and_backward_apart_equal_training(void **state) {
    (void)state;
    oct_model_args args = args_of(0, OCT_ATTN_BLOCK_CAUSAL);
    lab l;
    open_documents(&l, &args, OCT_F32);
    lab_train(&l);
    float *expected = gradients(&l), *data = oct_malloc_array(B * S * V, sizeof *data);
    oct_tensor logits = oct_tensor_2d(OCT_F32, B * S, V, data);
    oct_loss_sum sum;
    oct_model_zero_gradients(l.model);
    assert_int_equal(
        oct_model_forward(l.model, l.step, B, S, l.tokens, OCT_SAVE_FOR_BACKWARD, &logits), OCT_OK);
    assert_int_equal(oct_cross_entropy_gradient(&logits, l.targets, 1.0f / (float)n_valid_targets(),
                                                &sum, l.step->scratch),
                     OCT_OK);
    assert_int_equal(oct_model_backward(l.model, l.step, &logits), OCT_OK);
    float *got = gradients(&l);
    assert_true(relative_error(got, expected, n_gradients(&l)) < 1e-6);
    assert_int_equal(oct_arena_used_bytes(l.step->saved), 0);
    oct_free(got);
    oct_free(expected);
    oct_free(data);
    lab_close(&l);
}

/* The documents of a cache go on from piece to piece. */
static void given_a_cache_generation_equals_the_full_forward(void **state) {
    (void)state;
    static const int64_t pieces[] = {1, 5, 1, 1, 6, 1, 6};
    for (int kind = 0; kind < N_KINDS; kind++) {
        oct_model_args args = args_of(kind, OCT_ATTN_BLOCK_CAUSAL);
        lab l;
        open_documents(&l, &args, OCT_F32);
        lab_generate(&l, OCT_F32, pieces, OCT_COUNT(pieces));
        lab_close(&l);
    }
}

static void given_no_end_token_a_model_of_documents_runs_nothing(void **state) {
    (void)state;
    oct_model_args args = args_of(0, OCT_ATTN_BLOCK_CAUSAL);
    double sum;
    int64_t n;
    lab l;
    lab_open(&l, &args, OCT_F32);
    assert_int_equal(oct_model_document_end(l.model), -1);
    assert_int_equal(oct_model_evaluate(l.model, l.step, B, S, l.tokens, l.targets, &sum, &n),
                     OCT_INVALID);
    assert_int_equal(oct_model_train(l.model, l.step, B, S, l.tokens, l.targets, 1.0f, &sum, &n),
                     OCT_INVALID);
    assert_int_equal(oct_arena_used_bytes(l.step->saved), 0);
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_documents_in_a_window_gradients_match_finite_differences),
        cmocka_unit_test(given_a_document_its_logits_are_those_it_has_alone),
        cmocka_unit_test(given_other_tokens_in_a_document_the_others_keep_their_bits),
        cmocka_unit_test(given_any_recompute_mode_and_threads_gradients_are_the_same_bits),
        cmocka_unit_test(given_no_end_in_the_windows_the_bits_are_those_of_a_causal_model),
        cmocka_unit_test(given_logits_forward_and_backward_apart_equal_training),
        cmocka_unit_test(given_a_cache_generation_equals_the_full_forward),
        cmocka_unit_test(given_no_end_token_a_model_of_documents_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
