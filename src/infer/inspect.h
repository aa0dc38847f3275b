/* What 8 bits do to a model's stored weights: each module that can be converted, worst first. */
#ifndef OCT_INFER_INSPECT_H
#define OCT_INFER_INSPECT_H

#include "convert/plan.h"
#include "model/model.h"
#include "quant/stats.h"

typedef struct oct_inspected {
    const oct_plan_row
        *row; /* borrowed: a linear, or the experts of a layer, all weights together */
    oct_quant_stats
        along[2]; /* in the recipe, for contraction over either dimension (dgrad, forward)
                   */
    double error; /* mean relative error of the worse direction; what is ranked by */
    double trials[OCT_N_QUANT_TRIALS]; /* the same in other formats and rules (quant/stats.h) */
    bool stands_out; /* its error is above the median module's, by more than chance explains */
} oct_inspected;

/* Modules of one kind are within 1 % of one another; a mean over n elements, whose errors deviate
 * by some 0.6 of it, deviates by 0.6 / sqrt(n). */
#define OCT_STANDS_OUT 1.015
#define OCT_STANDS_OUT_CHANCE 1.8

/* The rows of the plan of a model whose parameters are filled, none of them sharded, as `recipe`
 * quantizes weights; *out is an array of plan->n_rows (oct_free). Plan and model outlive it. */
oct_status oct_inspect_weights(const oct_plan *plan, const oct_recipe *recipe, oct_inspected **out,
                               oct_error *err);

#endif
