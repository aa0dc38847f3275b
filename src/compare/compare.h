/* The twin run: the same seed, data and initial weights, one run a recipe, for one seed or several;
 * a table of what each recipe costs, with several seeds its uncertainty and a verdict, and an HTML
 * report. */
#ifndef OCT_COMPARE_COMPARE_H
#define OCT_COMPARE_COMPARE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "compare/gap.h"
#include "train/trainer.h"

/* What the program around it does about signals and its terminal. */
typedef struct oct_compare_host {
    /* Forks, and from there on hands signals on to the child, until disown. */
    pid_t (*fork)(void);
    void (*disown)(void);
    /* Training begins: a signal is answered by `stop` from here on. */
    void (*stop_at_a_step)(void);
    oct_stop_query stop;
    const char *(*stop_name)(int reason);
    oct_progress progress;
    void (*progress_end)(void);
    /* Further lines of the error that is returned; NULL is none. */
    void (*add_errors)(const char *lines);
} oct_compare_host;

enum { OCT_COMPARE_MAX_SEEDS = 256 };

typedef struct oct_compare_options {
    const char *config; /* the job file; NULL: named by an override */
    const char *const *overrides;
    int n_overrides;
    const char *recipes; /* RECIPE[@RULES] with commas between */
    int64_t seeds; /* that each recipe is trained with, from the job's on; their runs are kept,
                    * and not trained again. 0: the job's alone, anew each time */
    double gate;   /* the gap in nats that is as good as none, > 0; 0: no verdicts */
    bool no_noise; /* several seeds without the first recipe in another order of sums */
    const char *machine; /* a label for what results depend on besides the job: program and CPU */
    const char *report;  /* NULL: <dump_folder>/compare/report.html */
    const oct_compare_host *host;
} oct_compare_options;

typedef struct oct_comparison oct_comparison;

/* Reads every variant of the job and claims the folders, so that a mistake shows before the first
 * run. The texts of the options are borrowed. OCT_INVALID: what oct_job_load and oct_job_build
 * refuse of any of them, two recipes of one name, a report that can't be written, ... */
oct_status oct_comparison_open(const oct_compare_options *options, oct_comparison **comparison,
                               oct_error *err);
/* Trains one recipe after the other, each in a process of its own, until the host's `stop` says
 * otherwise. A run that fails shows in the table and in oct_comparison_failure; OCT_INVALID here:
 * what is wrong with the input is wrong for every recipe. */
oct_status oct_comparison_run(oct_comparison *comparison, oct_error *err);
void oct_comparison_close(oct_comparison *comparison); /* NULL is fine */

bool oct_comparison_was_stopped(const oct_comparison *comparison);
int oct_comparison_n_runs(const oct_comparison *comparison);
int oct_comparison_n_whole(const oct_comparison *comparison); /* trained to their end */
/* The first failure of a run, OCT_OK if there is none. */
oct_status oct_comparison_failure(const oct_comparison *comparison, oct_error *err);

/* The table: a row of headings, then one a recipe. Texts live as long as the comparison. */
enum { OCT_COMPARISON_COLUMNS = 9 };
int oct_comparison_n_rows(const oct_comparison *comparison);
int oct_comparison_n_columns(const oct_comparison *comparison);
const char *oct_comparison_cell(const oct_comparison *comparison, int row, int column);
/* What was measured, in one line. */
void oct_comparison_describe(const oct_comparison *comparison, char *text, size_t size);

/* With a gate, one sentence a recipe but the first; an empty text where there is nothing to say of
 * the arm (0 is the first). */
void oct_comparison_verdict_text(const oct_comparison *comparison, int arm, char *text,
                                 size_t size);
int oct_comparison_n_arms(const oct_comparison *comparison);
/* The gravest of all recipes: worse, else unresolved, else equivalent. */
oct_verdict oct_comparison_verdict(const oct_comparison *comparison);

/* The page, and where it goes. */
oct_status oct_comparison_write_report(const oct_comparison *comparison, oct_error *err);
const char *oct_comparison_report(const oct_comparison *comparison);

#endif
