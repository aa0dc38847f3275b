/* The trainer: from a job to a trained model.
 *
 * Order of a start: job, model (drawn from the seed, or read from a checkpoint or a Hugging Face
 * folder), converters, data, the loop. A step is: read the micro-batches, count their valid tokens,
 * forward and backward of each with the loss divided by that count, check, clip, update.
 *
 * Invariants: a non-finite loss or gradient ends the run before the optimizer moves, a weight or a
 * moment that the update makes non-finite ends it after, both before anything is saved; the state
 * after n steps is a pure function of job, data and seed, whether the run was interrupted or not
 * and for any number of threads. A trainer belongs to one thread; several may live in one process,
 * one after the other in use, each with a dump folder of its own.
 *
 * With several processes (options.world) all functions but the getters are collective, and all
 * ranks get the same results. A failure that oct_comm_agreed_to_fail doesn't tell of happened in
 * this process alone, in the middle of a step: end the job with oct_comm_abort. */
#ifndef OCT_TRAIN_TRAINER_H
#define OCT_TRAIN_TRAINER_H

#include <octet/status.h>

#include "comm/comm.h"
#include "config/job.h"
#include "model/model.h"
#include "text/tokenizer.h"

typedef struct oct_trainer oct_trainer;

typedef enum oct_colour { OCT_COLOUR_OFF, OCT_COLOUR_ON } oct_colour;

typedef enum oct_start {
    OCT_START_RESUME, /* as the job's [checkpoint] says */
    OCT_START_FRESH   /* never from a checkpoint of the run's own folder */
} oct_start;

/* Asked on every rank at the end of each step and before each batch of validation: not 0, a reason
 * of the caller's such as a signal's number, ends oct_trainer_run after the step. What one rank is
 * told is for all, the largest reason if there are several. */
typedef int (*oct_stop_query)(void *user);

typedef struct oct_trainer_options {
    oct_comm *world; /* outlives the trainer; NULL: this process alone */
    oct_start start;
    oct_colour colour;            /* of the log's step lines */
    bool reverse_sequences;       /* of a step: the same step, with its sums in another order */
    const char *cache_folder;     /* of tokenized texts; NULL: <dump_folder>/cache */
    const char *const *overrides; /* that the job was loaded with, kept in checkpoints beside the */
    int n_overrides;              /* job file; borrowed for the trainer's life */
    int n_recipe_overrides;       /* so many of the last of them a recipe put in: variant.h */
    oct_progress progress;        /* of tokenizing and of the loop; NULL: none */
    void *progress_user;
    oct_stop_query stop; /* NULL on all ranks: never */
    void *stop_user;
} oct_trainer_options;

typedef struct oct_step_result {
    int64_t step;                /* counts from 1 */
    double loss;                 /* mean over the step's valid tokens, of all ranks, in nats */
    double grad_norm;            /* before clipping */
    double lr;                   /* that the step used */
    int64_t n_tokens;            /* valid ones, of all ranks */
    oct_expert_load expert_load; /* of the step's tokens */
    const struct oct_run_stats *stats; /* of the step, until the next one; NULL: none were taken */
    double data_s;                     /* time spent reading data, seconds */
    double duration_s;                 /* of the whole step */
    int n_ranks;
    int64_t traffic[OCT_N_TRAFFIC]; /* bytes that all ranks received in the step */
    double wire_s[OCT_N_TRAFFIC];   /* that this rank's exchanges took; they overlap with work */
} oct_step_result;

typedef struct oct_validation {
    double loss;      /* summed loss over summed tokens, in nats */
    int64_t n_tokens; /* it was measured on */
    double duration_s;
} oct_validation;

/* The job must outlive the trainer. OCT_INVALID: what the job asks for can't be; the message names
 * the key and its place. */
oct_status oct_trainer_create(const oct_job *job, const oct_trainer_options *options,
                              oct_trainer **trainer, oct_error *err);
void oct_trainer_destroy(oct_trainer *trainer); /* NULL is fine */

/* One optimizer step; logs and saves nothing. OCT_FAILED: the loss or the gradient is not finite,
 * and parameters and optimizer are as they were before; or a number that the update made isn't, and
 * the trainer is of no use any more: it neither steps nor saves. The message names what overflowed
 * first. */
oct_status oct_trainer_step(oct_trainer *trainer, oct_step_result *result, oct_error *err);

/* All steps that are left, with log lines, metrics.jsonl, events, validation and checkpoints as the
 * job says. When options.stop asks for it, it ends after the step that is under way, without the
 * validation that may be due, and saves the step if the job saves at all. */
oct_status oct_trainer_run(oct_trainer *trainer, oct_error *err);
/* The reason for which the run stopped before its end; 0: it didn't. */
int oct_trainer_stop_reason(const oct_trainer *trainer);
/* The step of the newest checkpoint of this run; -1: there is none. */
int64_t oct_trainer_last_saved(const oct_trainer *trainer);

/* The mean loss on validation.steps batches of the held-out data (validation.enable must be on).
 * Changes nothing. A non-finite loss is returned as it is. One that options.stop cut short is of 0
 * tokens. */
oct_status oct_trainer_validate(oct_trainer *trainer, oct_validation *result, oct_error *err);

/* What the last validation of oct_trainer_run found; if it made none, one is made now. */
oct_status oct_trainer_last_validation(oct_trainer *trainer, oct_validation *result,
                                       oct_error *err);

/* Saves a checkpoint of the steps done so far into the job's folder, whatever its interval. */
oct_status oct_trainer_save(oct_trainer *trainer, oct_error *err);

oct_model *oct_trainer_model(oct_trainer *trainer);
int64_t oct_trainer_steps_done(const oct_trainer *trainer);
/* Entropy of the token frequencies of the validation data, in nats: the loss of the best model that
 * ignores context. */
oct_status oct_trainer_unigram_entropy(oct_trainer *trainer, double *nats, oct_error *err);

#endif
