/* A small training job in a folder of its own: text, tokenizer, job file. */
#ifndef OCT_TESTS_TRAIN_SUPPORT_H
#define OCT_TESTS_TRAIN_SUPPORT_H

#include "story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "config/job.h"
#include "text/tokenizer.h"
#include "train/trainer.h"

typedef struct workshop {
    char folder[64];
    char job_path[128];
} workshop;

/* Words in an order that a model can learn a little of. */
void write_words(const char *path, int n_words);
void workshop_path(const workshop *w, const char *name, char out[128]);
void workshop_open(workshop *w, int n_words);
void workshop_close(workshop *w);

/* The job with overrides, NULL-terminated. */
void load_job(const workshop *w, oct_job *job, const char *const *overrides);
oct_trainer *make_trainer(const oct_job *job);
oct_step_result step_once(oct_trainer *t);

/* All parameters of a model, one after the other (oct_free). */
float *copy_parameters(oct_trainer *t, int64_t *n_floats);

#endif
