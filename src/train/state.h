/* The trainer's inside, shared by trainer.c (steps), run.c (the loop) and snapshot.c (checkpoints).
 */
#ifndef OCT_TRAIN_STATE_H
#define OCT_TRAIN_STATE_H

#include "base/claim.h"
#include "train/conversion.h"
#include "io/checkpoint.h"
#include "io/dataset.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/ranks.h"
#include "train/schedule.h"
#include "train/trainer.h"

struct oct_trainer {
    const oct_job *job; /* `own`: the caller's with the rules that a checkpoint goes on by */
    oct_job own;        /* which only borrows: never freed */
    oct_trainer_options options;
    oct_claim folder;            /* the first rank's: the dump folder */
    oct_claim checkpoint_folder; /* and that of the checkpoints, where it may lie elsewhere */
    char *config_text; /* the job file as it was at the start, for checkpoints; NULL: none */
    oct_ranks ranks;   /* each reads sequences of its own and keeps a shard of the model */

    oct_model *model;
    oct_conversion *conversion; /* what became 8-bit; outlived by nothing: destroyed after model */
    oct_weights *weights;
    oct_step *step;
    oct_optimizer *optimizer;
    oct_schedule schedule;
    oct_arena *scratch;

    oct_tokenizer *tokenizer; /* NULL: packed data */
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

    bool spoilt;                    /* an update went wrong: the state is of no step */
    oct_validation last_validation; /* n_tokens 0: none since the last step */
    int64_t last_saved;             /* step of the newest checkpoint; -1: none */
};

/* The folder of the run's checkpoints (oct_free); NULL when memory is refused. */
char *oct_trainer_checkpoint_folder(const oct_trainer *t);

/* OCT_FAILED with the words for a number that isn't finite: "step 3: the loss is not finite (nan);
 * ..." and which checkpoint stays. */
oct_status oct_trainer_fail_number(const oct_trainer *t, int64_t step, const char *what,
                                   double value, oct_error *err);
/* What a trainer whose last update went wrong says to all that is asked of it. */
oct_status oct_trainer_fail_spoilt(oct_error *err);

/* Continues from the checkpoint that the job names, if there is one. */
oct_status oct_trainer_resume(oct_trainer *t, oct_error *err);

#endif
