/* The trainer's inside, shared by trainer.c (steps), loop.c (the loop), snapshot.c (saving) and
 * resume.c (going on).
 *
 * A checkpoint's state.json holds {"version": 1, "steps_done", "n_consumed", "n_tokens_seen",
 * "seed": decimal text, "model_only", "model": the arguments (model_record.h), "tokenizer": the
 * name of its file in the checkpoint, or null, "data_tokens": of the training data, "data_hash",
 * "validation_hash", "tokenizer_hash": 16 digits or null, "overrides": the command line's, of which
 * the last "recipe_overrides" are a recipe's, "rules": their name}. Older ones have no model and no
 * hashes, and an absolute path of the tokenizer. Invariants: what is read
 * back is all that the next step depends on, so a resumed run computes the same bits; and nothing
 * of it is a path outside of the checkpoint, so that it may be moved. */
#ifndef OCT_TRAIN_TRAINER_STATE_H
#define OCT_TRAIN_TRAINER_STATE_H

#include "base/claim.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "job/build.h"
#include "job/portable.h"
#include "job/ranks.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/trainer.h"

enum { OCT_N_MEASURED = 3 };
extern const char *const oct_measured_names[OCT_N_MEASURED]; /* as metrics.jsonl has them */

struct oct_trainer {
    const oct_job *job; /* `own`: the caller's with the rules that a checkpoint goes on by */
    oct_job own;        /* which only borrows: never freed */
    oct_trainer_options options;
    oct_claim folder;            /* the first rank's: the dump folder */
    oct_claim checkpoint_folder; /* and that of the checkpoints, if it saves any */
    char *config_text; /* the job file as it was at the start, for checkpoints; NULL: none */
    oct_ranks ranks;   /* each reads sequences of its own and keeps a shard of the model */

    oct_job_parts parts; /* the model and what runs it */
    oct_optimizer *optimizer;
    oct_schedule schedule;
    oct_arena *scratch;

    oct_tokenizer *tokenizer; /* NULL: packed data */
    oct_portable files;       /* the first rank's: what each checkpoint carries beside numbers */
    oct_dataset *train, *validation;

    int64_t B, S, n_micro; /* sequences a micro-batch, tokens a sequence, micro-batches a step */
    int32_t *window;       /* (S + 1) */
    int32_t *tokens, *targets; /* (n_micro, B, S) of this rank's step */

    /* The state of a run: together with parameters and optimizer this is what a checkpoint holds.
     */
    uint64_t seed;
    int64_t steps_done;
    int64_t n_consumed;    /* sequences, of all ranks */
    int64_t n_tokens_seen; /* valid ones, of all ranks */

    /* What the last of these steps measured, by which a run knows its own metrics.jsonl again. */
    double measured[OCT_N_MEASURED];
    bool has_measured;

    struct oct_run_stats *stats; /* quantize.stats_freq; NULL: off */

    int stop_reason;                /* 0: none */
    bool spoilt;                    /* an update went wrong: the state is of no step */
    oct_validation last_validation; /* n_tokens 0: none since the last step */
    int64_t last_saved;             /* step of the newest checkpoint; -1: none */
    oct_checkpoint *start;          /* owned until it is read; NULL: none */
    bool resumed_own;               /* from a checkpoint of its own folder */
};

/* The folder of the run's checkpoints (oct_free); NULL when memory is refused. */
char *oct_trainer_checkpoint_folder(const oct_trainer *t);

/* Collective: whether the caller wants the run to stop; the reason is kept in stop_reason. */
oct_status oct_trainer_ask_to_stop(void *trainer, bool *stop, oct_error *err);

/* OCT_FAILED with the words for a number that isn't finite: "step 3: the loss is not finite (nan);
 * ..." and which checkpoint stays. */
oct_status oct_trainer_fail_number(const oct_trainer *t, int64_t step, const char *what,
                                   double value, oct_error *err);
/* What a trainer whose last update went wrong says to all that is asked of it. */
oct_status oct_trainer_fail_spoilt(oct_error *err);

enum { OCT_STATE_VERSION = 1 };
/* The products' mode, "exact" or "fast". */
const char *oct_trainer_gemm_name(const oct_job *job);
/* What a step depends on beside the parameters: two moments a parameter that trains, and the amaxes
 * of modules with a delayed recipe. In `arena`; NULL when memory is refused. The items show the
 * live memory, so that loading may write to where saving reads. */
oct_safetensors_item *oct_trainer_optimizer_items(const oct_trainer *t, oct_arena *arena,
                                                  int64_t *n);

/* Opens `start`, the checkpoint to go on from: the run's own; without one,
 * checkpoint.initial_load_path if the job takes all of it and not the weights alone; without either
 * it stays NULL. It waits in memory, so that all that is taken from it is of the same one. Call it
 * while the folders are claimed. */
oct_status oct_trainer_find_start(oct_trainer *t, oct_error *err);
/* Continues from `start`, if there is one, and closes it. OCT_INVALID: its model is another than
 * the job's. What else is other than it was, and decides numbers, is warned of. */
oct_status oct_trainer_resume(oct_trainer *t, oct_error *err);
/* The first rank's, once all have resumed: checkpoints of later steps than the run goes on from are
 * moved aside, with a copy of metrics.jsonl, so that nobody takes them for its own. */
oct_status oct_trainer_leave_behind(const oct_trainer *t, oct_error *err);

#endif
