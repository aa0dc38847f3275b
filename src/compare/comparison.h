/* A comparison's inside, shared by prepare.c (before the runs), compare.c (the runs), table.c and
 * report.c. Internal to the room. */
#ifndef OCT_COMPARE_COMPARISON_H
#define OCT_COMPARE_COMPARISON_H

#include "base/claim.h"
#include "compare/compare.h"
#include "compare/recipe_run.h"
#include "config/job.h"
#include "report/recorded_run.h"

enum {
    MAX_RECIPES = 32,
    N_COLUMNS = OCT_COMPARISON_COLUMNS,
    CELL_SIZE = 64,
    TAIL = 20 /* steps that the final training loss is the mean of */
};

struct oct_comparison {
    oct_compare_options options;
    char *list; /* the recipes' text, cut into words */
    oct_recipe_run runs[MAX_RECIPES];
    char *folders[MAX_RECIPES]; /* <dump_folder>/compare/<recipe> */
    oct_run recorded[MAX_RECIPES];
    int n, n_begun;
    char *root, *cache; /* <dump_folder>/compare, <dump_folder>/cache */
    oct_job job;        /* as the user gave it */
    oct_claim claim;    /* on the root, as long as this process lives */
    const char *report;
    char *default_report;
    char cells[MAX_RECIPES + 1][N_COLUMNS][CELL_SIZE];
};

/* Finds all that is wrong before a run begins, names the folders and claims them. */
oct_status oct_comparison_prepare(oct_comparison *c, oct_error *err);
/* The table's cells, from the runs. */
void oct_comparison_fill_table(oct_comparison *c);

#endif
