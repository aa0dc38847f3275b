/* The table of what each recipe costs, and what the gate says of it: see compare.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "compare/comparison.h"

enum { MAX_SEEDS = OCT_COMPARE_MAX_SEEDS };

oct_gap oct_comparison_gap(const oct_comparison *c, int arm) {
    double differences[MAX_SEEDS];
    int64_t n = 0;
    for (int64_t seed = 0; seed < c->n_seeds; seed++) {
        const oct_recipe_run *first = &oct_comparison_run_of(c, 0, seed)->run,
                             *own = &oct_comparison_run_of(c, arm, seed)->run;
        if (first->status == OCT_OK && own->status == OCT_OK)
            differences[n++] = own->result.validation_loss - first->result.validation_loss;
    }
    return oct_gap_of(differences, n);
}

/* Means over the seeds that the arm was trained with to the end. */
typedef struct means {
    double train_loss, validation_loss, tokens_per_s, peak_bytes;
    int64_t n;
} means;

static means means_of(const oct_comparison *c, int arm) {
    means m = {0};
    for (int64_t seed = 0; seed < c->n_seeds; seed++) {
        const oct_arm_run *r = oct_comparison_run_of(c, arm, seed);
        if (r->run.status != OCT_OK)
            continue;
        m.n++;
        m.train_loss += oct_series_tail_mean(&r->recorded.loss, TAIL);
        m.validation_loss += r->run.result.validation_loss;
        m.tokens_per_s +=
            r->recorded.duration_s > 0 ? r->recorded.n_tokens / r->recorded.duration_s : NAN;
        m.peak_bytes = fmax(m.peak_bytes, r->run.result.peak_bytes);
    }
    m.train_loss /= (double)m.n;
    m.validation_loss /= (double)m.n;
    m.tokens_per_s /= (double)m.n;
    return m;
}

static bool was_stopped(const oct_comparison *c, int arm) {
    bool stopped = true;
    for (int64_t seed = 0; seed < c->n_seeds; seed++)
        stopped = stopped && oct_comparison_run_of(c, arm, seed)->run.stopped;
    return stopped;
}

static void put_speed(char cell[][CELL_SIZE], const means *m) {
    if (isfinite(m->tokens_per_s))
        snprintf(cell[0], CELL_SIZE, "%.0f", m->tokens_per_s);
    snprintf(cell[1], CELL_SIZE, "%.0f MiB", m->peak_bytes / (1024.0 * 1024.0));
}

/* One seed: the losses themselves. */
static void fill_plain(oct_comparison *c, int arm, const means *m) {
    char(*cell)[CELL_SIZE] = c->cells[arm + 1];
    snprintf(cell[1], CELL_SIZE, "%.4f", m->train_loss);
    snprintf(cell[2], CELL_SIZE, "%.4f", m->validation_loss);
    const oct_gap gap = oct_comparison_gap(c, arm);
    if (gap.n > 0) {
        const double base = oct_comparison_run_of(c, 0, 0)->run.result.validation_loss;
        snprintf(cell[3], CELL_SIZE, "%+.4f", gap.mean);
        snprintf(cell[4], CELL_SIZE, "%+.2f%%", 100 * gap.mean / base);
    }
    put_speed(cell + 5, m);
}

/* Several: means, and how sure the gap is. */
static void fill_seeds(oct_comparison *c, int arm, const means *m) {
    char(*cell)[CELL_SIZE] = c->cells[arm + 1];
    const oct_gap gap = oct_comparison_gap(c, arm);
    const means first = means_of(c, 0);
    snprintf(cell[1], CELL_SIZE, "%" PRId64, m->n);
    snprintf(cell[2], CELL_SIZE, "%.4f", m->train_loss);
    snprintf(cell[3], CELL_SIZE, "%.4f", m->validation_loss);
    if (arm > 0 && gap.n > 1) {
        const double percent = 100 / first.validation_loss;
        snprintf(cell[4], CELL_SIZE, "%+.4f ± %.4f", gap.mean, gap.se);
        snprintf(cell[5], CELL_SIZE, "%+.4f .. %+.4f", gap.low, gap.high);
        snprintf(cell[6], CELL_SIZE, "%+.3f%% ± %.3f", percent * gap.mean, percent * gap.se);
    } else if (arm > 0 && gap.n == 1)
        snprintf(cell[4], CELL_SIZE, "%+.4f", gap.mean);
    put_speed(cell + 7, m);
}

static void fill_row(oct_comparison *c, int arm) {
    char(*cell)[CELL_SIZE] = c->cells[arm + 1];
    const means m = means_of(c, arm);
    snprintf(cell[0], CELL_SIZE, "%s", c->arms.items[arm].name);
    for (int k = 1; k < c->n_columns; k++)
        snprintf(cell[k], CELL_SIZE, "-");
    if (m.n == 0)
        snprintf(cell[1], CELL_SIZE, "%s", was_stopped(c, arm) ? "stopped" : "failed");
    else if (oct_comparison_keeps_runs(c))
        fill_seeds(c, arm, &m);
    else
        fill_plain(c, arm, &m);
}

void oct_comparison_fill_table(oct_comparison *c) {
    static const char *const plain[] = {"recipe",  "train loss", "validation loss", "gap (nats)",
                                        "gap (%)", "tokens/s",   "peak memory"};
    static const char *const seeds[] = {"recipe",          "seeds",      "train loss",
                                        "validation loss", "gap (nats)", "95 % interval",
                                        "gap (%)",         "tokens/s",   "peak memory"};
    const bool several = oct_comparison_keeps_runs(c);
    c->n_columns = several ? OCT_COUNT(seeds) : OCT_COUNT(plain);
    for (int k = 0; k < c->n_columns; k++)
        snprintf(c->cells[0][k], CELL_SIZE, "%s", several ? seeds[k] : plain[k]);
    for (int i = 0; i < c->arms.n; i++)
        fill_row(c, i);
}

int oct_comparison_n_rows(const oct_comparison *c) {
    return c->arms.n + 1;
}

int oct_comparison_n_columns(const oct_comparison *c) {
    return c->n_columns;
}

const char *oct_comparison_cell(const oct_comparison *c, int row, int column) {
    return c->cells[row][column];
}

void oct_comparison_describe(const oct_comparison *c, char *text, size_t size) {
    for (int i = 0; i < c->n_runs; i++) {
        const oct_recipe_run *run = &c->runs[i].run;
        if (run->status != OCT_OK)
            continue;
        snprintf(text, size,
                 "%" PRId64 " steps; validation on %" PRId64
                 " held-out tokens, whose unigram entropy is %.4f nats; train loss is the mean of "
                 "the last %d steps; gaps are to %s%s",
                 run->result.steps, run->result.validation_tokens, run->result.unigram_entropy,
                 TAIL, c->arms.items[0].name,
                 oct_comparison_keeps_runs(c)
                     ? " with the same seed, ± the standard error of their mean"
                     : "; one seed can't tell a gap from luck: --seeds 8");
        return;
    }
    snprintf(text, size, "no run was completed");
}

/* ---- verdicts ---- */

static bool is_judged(const oct_comparison *c, int arm) {
    return arm > 0 && !c->arms.items[arm].other_order && c->options.gate > 0;
}

static void say_how_many_more(const oct_gap *gap, double gate, char *text, size_t size) {
    const int64_t more = oct_gap_seeds_to_decide(gap, gate);
    if (gap->n == 0)
        snprintf(text, size, "no seed was trained to its end in both");
    else if (gap->n == 1)
        snprintf(text, size, "one run a recipe can't tell");
    else if (more < 0)
        snprintf(text, size, "more than a thousand seeds more would not decide");
    else
        snprintf(text, size, "about %" PRId64 " more seed%s", more, more == 1 ? "" : "s");
}

void oct_comparison_verdict_text(const oct_comparison *c, int arm, char *text, size_t size) {
    char more[64];
    *text = '\0';
    if (!is_judged(c, arm))
        return;
    const oct_gap gap = oct_comparison_gap(c, arm);
    const double gate = c->options.gate, percent = 100 / means_of(c, 0).validation_loss;
    const char *name = c->arms.items[arm].name;
    switch (oct_gap_verdict(&gap, gate)) {
    case OCT_VERDICT_EQUIVALENT:
        snprintf(text, size, "%s: %s %s within %g nats: %+.2f %% ± %.2f", name,
                 gap.low < -gate ? "no worse than" : "equivalent to", c->arms.items[0].name, gate,
                 percent * gap.mean, percent * gap.se);
        return;
    case OCT_VERDICT_WORSE:
        snprintf(text, size, "%s: worse than %s by %.2f %% ± %.2f, more than %g nats", name,
                 c->arms.items[0].name, percent * gap.mean, percent * gap.se, gate);
        return;
    case OCT_VERDICT_UNRESOLVED:
        say_how_many_more(&gap, gate, more, sizeof more);
        snprintf(text, size, "%s: unresolved at %g nats (%s)", name, gate, more);
    }
}

oct_verdict oct_comparison_verdict(const oct_comparison *c) {
    oct_verdict gravest = OCT_VERDICT_EQUIVALENT;
    for (int arm = 1; arm < c->arms.n; arm++) {
        if (!is_judged(c, arm))
            continue;
        const oct_gap gap = oct_comparison_gap(c, arm);
        const oct_verdict verdict = oct_gap_verdict(&gap, c->options.gate);
        if (verdict == OCT_VERDICT_WORSE)
            return verdict;
        if (verdict == OCT_VERDICT_UNRESOLVED)
            gravest = verdict;
    }
    return gravest;
}
