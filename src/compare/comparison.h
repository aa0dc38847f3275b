/* A comparison's inside, shared by prepare.c (before the runs), compare.c (the runs), table.c and
 * report.c. Internal to the room. */
#ifndef OCT_COMPARE_COMPARISON_H
#define OCT_COMPARE_COMPARISON_H

#include "base/claim.h"
#include "compare/arms.h"
#include "compare/compare.h"
#include "compare/gap.h"
#include "compare/recipe_run.h"
#include "config/job.h"
#include "report/recorded_run.h"

enum {
    CELL_SIZE = 64,
    TAIL = 20 /* steps that the final training loss is the mean of */
};

/* One arm with one seed. */
typedef struct oct_arm_run {
    oct_recipe_run run;
    oct_run recorded;
    char *folder;    /* <dump_folder>/compare/<arm>[/seed-<seed>] */
    char own[4][96]; /* overrides that compare adds behind the user's; see list_overrides */
    int n_own;
    char *dump;             /* the one that is as long as a path */
    const char **overrides; /* all */
    oct_strbuf inputs;      /* with --seeds: what the run's record says */
    bool kept;              /* done by an earlier compare */
} oct_arm_run;

struct oct_comparison {
    oct_compare_options options;
    oct_arms arms;
    int64_t n_seeds;
    uint64_t first_seed;
    oct_arm_run *runs; /* (n_seeds, arms.n) */
    int n_runs, n_begun;
    char *root, *cache; /* <dump_folder>/compare, <dump_folder>/cache */
    oct_strbuf files;   /* with --seeds: what all runs read, for their records */
    oct_job job;        /* as the user gave it */
    oct_claim claim;    /* on the root, as long as this process lives */
    const char *report;
    char *default_report;
    char cells[OCT_MAX_ARMS + 1][OCT_COMPARISON_COLUMNS][CELL_SIZE];
    int n_columns;
};

static inline oct_arm_run *oct_comparison_run_of(const oct_comparison *c, int arm, int64_t seed) {
    return &c->runs[seed * c->arms.n + arm];
}
/* With --seeds runs are kept from one compare to the next. */
static inline bool oct_comparison_keeps_runs(const oct_comparison *c) {
    return c->options.seeds > 0;
}

/* Finds all that is wrong before a run begins, names the folders and claims them. */
oct_status oct_comparison_prepare(oct_comparison *c, oct_error *err);
/* The overrides that the run's job is loaded with: the user's, then compare's. */
oct_status oct_comparison_list_overrides(oct_comparison *c, oct_arm_run *run, oct_error *err);
/* The gap of the arm's validation losses to the first one's, over the seeds that both were trained
 * with to the end. */
oct_gap oct_comparison_gap(const oct_comparison *c, int arm);
/* The table's cells, from the runs. */
void oct_comparison_fill_table(oct_comparison *c);

#endif
