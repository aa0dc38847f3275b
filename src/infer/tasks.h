/* Multiple choice: which of several texts a model finds likeliest after a question. */
#ifndef OCT_INFER_TASKS_H
#define OCT_INFER_TASKS_H

#include "infer/inference.h"

typedef struct oct_question {
    char *text;            /* what stands before each choice */
    char **choices;        /* each with what stands between: a space, unless a side has one */
    int64_t *n_characters; /* of each choice alone */
    size_t n_choices;
    size_t answer; /* the right one */
} oct_question;

/* Zero-initialise; end with oct_task_free. */
typedef struct oct_task {
    oct_question *questions;
    size_t n, capacity;
} oct_task;

/* A JSONL file of objects with "question" (a text), "choices" (two texts or more, none empty) and
 * "answer" (the index of a choice, from 0, or its text); other members don't matter. OCT_INVALID
 * with FILE:LINE. */
oct_status oct_task_read(const char *path, oct_task *task, oct_error *err);
void oct_task_free(oct_task *task);
/* The longest question with a choice, in bytes. */
size_t oct_task_longest(const oct_task *task);

typedef struct oct_task_score {
    int64_t n_questions;
    int64_t n_right;            /* the choice of the largest summed log-likelihood is the answer */
    int64_t n_right_normalized; /* the same, each divided by the choice's characters */
} oct_task_score;

/* The log-likelihood of a choice is the sum over its tokens, which are those of question and choice
 * as one text behind as many as the question has alone. Of equal ones the first is taken. These are
 * the rules of EleutherAI's lm-evaluation-harness (acc, acc_norm). OCT_FAILED: a likelihood isn't
 * finite. */
oct_status oct_task_score_model(oct_inference *inference, const oct_task *task,
                                oct_progress progress, void *progress_user, oct_task_score *score,
                                oct_error *err);

#endif
