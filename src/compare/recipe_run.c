/* One run of `octet compare` in a process of its own: see recipe_run.h. */
#include "compare/recipe_run.h"

#include <inttypes.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "config/job.h"
#include "job/variant.h"

/* What the child tells the parent, as bytes through a pipe. */
typedef struct result {
    oct_status status;
    oct_error err;
    oct_run_result of_run;
    bool stopped;
} result;

/* The measurement is of a whole run or none. */
static oct_status check_stopped(const oct_recipe_run *t, const oct_trainer *trainer,
                                const oct_job *job, result *r) {
    int reason = oct_trainer_stop_reason(trainer);
    r->stopped = reason != 0;
    return r->stopped
               ? oct_fail(&r->err, OCT_FAILED, "stopped by %s after step %" PRId64 " of %" PRId64,
                          t->host->stop_name(reason), oct_trainer_steps_done(trainer),
                          job->training.steps)
               : OCT_OK;
}

static oct_status train(const oct_recipe_run *t, result *r) {
    oct_job job = {0};
    oct_trainer *trainer = NULL;
    oct_validation validation = {0};
    oct_variant_overrides told;
    oct_status status = oct_variant_load_told(t->config, t->overrides, t->n_overrides,
                                              t->arm->recipe, &job, &told, &r->err);
    const oct_trainer_options options = {.start = t->start,
                                         .reverse_sequences = t->arm->other_order,
                                         .cache_folder = t->cache_folder,
                                         .overrides = told.all,
                                         .n_overrides = told.n,
                                         .n_recipe_overrides = told.n_own,
                                         .progress = t->host->progress,
                                         .stop = t->host->stop};
    if (!status)
        status = oct_trainer_create(&job, &options, &trainer, &r->err);
    if (!status && t->ready)
        status = t->ready(t->ready_user, &r->err);
    t->host->stop_at_a_step();
    if (!status)
        status = oct_trainer_run(trainer, &r->err);
    if (!status)
        status = check_stopped(t, trainer, &job, r);
    if (!status)
        status = oct_trainer_last_validation(trainer, &validation, &r->err);
    if (!status)
        status = oct_trainer_unigram_entropy(trainer, &r->of_run.unigram_entropy, &r->err);
    if (!status && !isfinite(validation.loss))
        status = oct_fail(&r->err, OCT_FAILED, "the validation loss is not finite");
    r->of_run.validation_loss = validation.loss;
    r->of_run.validation_tokens = validation.n_tokens;
    if (!status)
        r->of_run.steps = oct_trainer_steps_done(trainer);
    oct_trainer_destroy(trainer);
    oct_job_free(&job);
    oct_variant_overrides_free(&told);
    return status;
}

/* A run that nobody waits for any more must not go on for hours. */
static void end_with(pid_t parent) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (getppid() != parent) /* it ended before that */
        _exit(1);
}

static _Noreturn void be_child(const oct_recipe_run *t, pid_t parent, int to_parent) {
    result r = {0};
    end_with(parent);
    r.status = train(t, &r);
    t->host->progress_end();
    fflush(stdout);
    ssize_t n = write(to_parent, &r, sizeof r); /* fits a pipe's buffer: one write */
    _exit(n == (ssize_t)sizeof r ? 0 : 1);
}

static size_t read_all(int from, void *bytes, size_t n_bytes) {
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n = read(from, (char *)bytes + done, n_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static void be_parent(oct_recipe_run *t, pid_t child, int from_child) {
    result r = {0};
    struct rusage usage = {0};
    int exit_status = 0;
    size_t n = read_all(from_child, &r, sizeof r);
    while (wait4(child, &exit_status, 0, &usage) < 0 && errno == EINTR)
        continue;
    t->host->disown();
    if (WIFSIGNALED(exit_status)) {
        t->status = oct_fail(&t->err, OCT_FAILED, "its process was ended by signal %d (%s)",
                             WTERMSIG(exit_status), strsignal(WTERMSIG(exit_status)));
        return;
    }
    if (n != sizeof r) {
        t->status = oct_fail(&t->err, OCT_FAILED, "its process ended without a result");
        return;
    }
    t->status = r.status;
    t->err = r.err;
    t->result = r.of_run;
    t->result.peak_bytes = (double)usage.ru_maxrss * 1024;
    t->stopped = r.stopped;
}

void oct_recipe_run_train(oct_recipe_run *t) {
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0) {
        t->status = oct_fail(&t->err, OCT_FAILED, "no pipe: %s", strerror(errno));
        return;
    }
    pid_t parent = getpid(), child = t->host->fork();
    if (child == 0) {
        close(ends[0]);
        be_child(t, parent, ends[1]);
    }
    close(ends[1]);
    if (child < 0)
        t->status = oct_fail(&t->err, OCT_FAILED, "no process: %s", strerror(errno));
    else
        be_parent(t, child, ends[0]);
    close(ends[0]);
}
