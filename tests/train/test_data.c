/* What the ranks of a run read: the same windows, held-out part and losses as one process alone,
 * whatever their number. */
#include "train_support.h"

#include <math.h>

#include "data/dataset.h"
#include "train/trainer_state.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { S = 32, GLOBAL = 12, STEPS = 20, VALIDATION_BATCHES = 3, VALIDATION_B = 2, SEED = 5 };

static oct_comm *world;

static int open_world(void **state) {
    (void)state;
    return oct_comm_create_world(&world, NULL) == OCT_OK ? 0 : -1;
}
static int close_world(void **state) {
    (void)state;
    oct_comm_destroy(world);
    return 0;
}

/* The first rank makes the folder; all read its files. */
static void open_shared(workshop *w) {
    if (oct_comm_rank(world) == 0)
        workshop_open(w, 4000);
    assert_int_equal(oct_comm_broadcast(world, 0, w, sizeof *w), OCT_OK);
}
static void close_shared(workshop *w) {
    assert_int_equal(oct_comm_barrier(world), OCT_OK);
    if (oct_comm_rank(world) == 0)
        workshop_close(w);
}

static oct_trainer *make(const oct_job *job, oct_comm *comm) {
    oct_error err = {0};
    oct_trainer *t = NULL;
    const oct_trainer_options options = {.world = comm};
    if (oct_trainer_create(job, &options, &t, &err) != OCT_OK)
        fail_msg("%s", err.message);
    return t;
}

/* The job on all ranks, and the same alone, in a folder of this rank's own. */
static void load_both(const workshop *w, int B, oct_job *together, oct_job *alone) {
    char dump[160], batch[64];
    snprintf(dump, sizeof dump, "--job.dump_folder=%s/alone-%d", w->folder, oct_comm_rank(world));
    snprintf(batch, sizeof batch, "--training.local_batch_size=%d", B);
#define SAME                                                                                       \
    batch, "--training.global_batch_size=12", "--training.mixed_precision_param=float32",          \
        "--validation.enable", "--validation.steps=3", "--validation.local_batch_size=2",          \
        "--validation.seq_len=32", "--training.steps=20"
    load_job(w, together, LIST(SAME));
    load_job(w, alone, LIST(SAME, dump));
}

static oct_dataset *open_reference(const oct_job *job) {
    oct_tokenizer *tokenizer = NULL;
    oct_dataset *d = NULL;
    const oct_dataset_options options = {.seq_len = S,
                                         .part = OCT_DATASET_TRAIN,
                                         .held_out_tokens =
                                             (int64_t)VALIDATION_BATCHES * VALIDATION_B * S + 1};
    assert_int_equal(oct_tokenizer_load(job->model.tokenizer_path, &tokenizer, NULL), OCT_OK);
    assert_int_equal(oct_dataset_open(job->training.dataset_path, tokenizer, &options, &d, NULL),
                     OCT_OK);
    oct_tokenizer_free(tokenizer);
    return d;
}

/* Micro-batch m of a step holds the windows at the B positions from m B on, in that order. */
static void check_windows(const oct_trainer *t, const oct_dataset *d, int step, int B) {
    int32_t window[S + 1];
    int n_ranks = oct_comm_size(world), rank = oct_comm_rank(world), own = 0;
    for (int m = 0; m < GLOBAL / B; m++) {
        if (m % n_ranks != rank)
            continue;
        for (int k = 0; k < B; k++, own++) {
            int64_t position = (int64_t)step * GLOBAL + m * B + k;
            int64_t index = oct_dataset_shuffled_index(d, SEED, position);
            assert_int_equal(oct_dataset_sequence(d, index, window, NULL), OCT_OK);
            assert_memory_equal(t->tokens + own * S, window, S * sizeof *window);
            assert_memory_equal(t->targets + own * S, window + 1, S * sizeof *window);
        }
    }
    assert_int_equal(own * n_ranks, GLOBAL);
}

static void check_validation(oct_trainer *together, oct_trainer *alone) {
    oct_validation x, y;
    oct_error err = {0};
    if (oct_trainer_validate(together, &x, &err) != OCT_OK ||
        oct_trainer_validate(alone, &y, &err) != OCT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(x.n_tokens, VALIDATION_BATCHES * VALIDATION_B * S);
    assert_int_equal(y.n_tokens, x.n_tokens);
    assert_true(fabs(x.loss - y.loss) < 1e-5);
}

static void check_run(int B) {
    workshop w;
    oct_job job, own;
    open_shared(&w);
    load_both(&w, B, &job, &own);
    oct_dataset *d = open_reference(&job);
    oct_trainer *together = make(&job, world), *alone = make(&own, NULL);
    assert_int_equal(oct_dataset_n_tokens(together->train), oct_dataset_n_tokens(d));
    for (int step = 0; step < STEPS; step++) {
        oct_step_result x = step_once(together), y = step_once(alone);
        check_windows(together, d, step, B);
        assert_int_equal(x.n_tokens, GLOBAL * S);
        assert_true(fabs(x.loss - y.loss) < 1e-5);
        assert_true(fabs(x.grad_norm - y.grad_norm) < 1e-4 * y.grad_norm);
        if (step % 5 == 0)
            check_validation(together, alone);
    }
    check_validation(together, alone);
    oct_trainer_destroy(together);
    oct_trainer_destroy(alone);
    oct_dataset_close(d);
    oct_job_free(&job);
    oct_job_free(&own);
    close_shared(&w);
}

static void given_single_sequences_windows_and_losses_are_those_of_one_process(void **state) {
    (void)state;
    check_run(1);
}

/* 2 divides the 12 sequences on any of 1 to 3 ranks, 3 on 4. */
static void given_micro_batches_each_has_the_same_windows_on_any_number_of_ranks(void **state) {
    (void)state;
    check_run(GLOBAL % (2 * oct_comm_size(world)) == 0 ? 2 : 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_single_sequences_windows_and_losses_are_those_of_one_process),
        cmocka_unit_test(given_micro_batches_each_has_the_same_windows_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
