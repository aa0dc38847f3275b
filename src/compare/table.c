/* The table of what each recipe costs: see compare.h. */
#include <stdio.h>

#include "compare/comparison.h"

static void fill_row(oct_comparison *c, int i) {
    char(*cell)[CELL_SIZE] = c->cells[i + 1];
    const oct_recipe_run *t = &c->runs[i], *first = &c->runs[0];
    const oct_run *run = &c->recorded[i];
    snprintf(cell[0], CELL_SIZE, "%s", t->recipe);
    for (int k = 1; k < N_COLUMNS; k++)
        snprintf(cell[k], CELL_SIZE, "-");
    if (t->status != OCT_OK) {
        snprintf(cell[1], CELL_SIZE, "%s", t->stopped ? "stopped" : "failed");
        return;
    }
    snprintf(cell[1], CELL_SIZE, "%.4f", oct_series_tail_mean(&run->loss, TAIL));
    snprintf(cell[2], CELL_SIZE, "%.4f", t->validation_loss);
    if (first->status == OCT_OK) {
        double gap = t->validation_loss - first->validation_loss;
        snprintf(cell[3], CELL_SIZE, "%+.4f", gap);
        snprintf(cell[4], CELL_SIZE, "%+.2f%%", 100 * gap / first->validation_loss);
    }
    if (run->duration_s > 0)
        snprintf(cell[5], CELL_SIZE, "%.0f", run->n_tokens / run->duration_s);
    snprintf(cell[6], CELL_SIZE, "%.0f MiB", t->peak_bytes / (1024.0 * 1024.0));
}

void oct_comparison_fill_table(oct_comparison *c) {
    static const char *const header[N_COLUMNS] = {"recipe",     "train loss", "validation loss",
                                                  "gap (nats)", "gap (%)",    "tokens/s",
                                                  "peak memory"};
    for (int k = 0; k < N_COLUMNS; k++)
        snprintf(c->cells[0][k], CELL_SIZE, "%s", header[k]);
    for (int i = 0; i < c->n; i++)
        fill_row(c, i);
}

const char *oct_comparison_cell(const oct_comparison *c, int row, int column) {
    return c->cells[row][column];
}

void oct_comparison_describe(const oct_comparison *c, char *text, size_t size) {
    for (int i = 0; i < c->n; i++) {
        const oct_recipe_run *t = &c->runs[i];
        if (t->status != OCT_OK)
            continue;
        snprintf(text, size,
                 "%lld steps; validation on %lld held-out tokens, whose unigram entropy is %.4f "
                 "nats; train loss is the mean of the last %d steps; gaps are to %s",
                 (long long)t->steps, (long long)t->validation_tokens, t->unigram_entropy, TAIL,
                 c->runs[0].recipe);
        return;
    }
    snprintf(text, size, "no run was completed");
}
