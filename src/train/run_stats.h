/* What 8 bits do to the tensors of a run (quantize.stats_freq): per module, role and direction, of
 * the first micro-batch of a step. An observer of the step's training pass, it adds up what it sees
 * (quant/stats.h) and renders it for metrics.jsonl (docs/statistics.md) and TensorBoard. */
#ifndef OCT_TRAIN_RUN_STATS_H
#define OCT_TRAIN_RUN_STATS_H

#include "base/strbuf.h"
#include "convert/plan.h"
#include "model/model.h"
#include "nn/step.h"
#include "quant/stats.h"
#include "report/event_file.h"

typedef struct oct_run_stats oct_run_stats;

/* For the modules that the plan converts, and the model's mixtures of experts; both outlive it. */
oct_status oct_run_stats_create(const oct_plan *plan, const oct_model *model, oct_run_stats **out);
void oct_run_stats_destroy(oct_run_stats *stats); /* NULL is fine */

/* Whether there is nothing that it could see. */
bool oct_run_stats_is_empty(const oct_run_stats *stats);

/* Forgets the last step; what the observer is then shown counts. */
void oct_run_stats_begin(oct_run_stats *stats);
const oct_quant_observer *oct_run_stats_observer(const oct_run_stats *stats);
/* Takes each layer's tokens an expert, before oct_model_update_routing clears them, and the bias
 * that they were routed by. */
void oct_run_stats_take_routing(oct_run_stats *stats);

/* What was seen so far of a module's tensor for contraction over `dim`; NULL: nothing. `weight` as
 * in oct_quant_sight. */
const oct_quant_stats *oct_run_stats_find(const oct_run_stats *stats, const char *module,
                                          int64_t weight, oct_role role, int dim);

/* The two arrays as JSON: of tensors, and of layers with experts. */
void oct_run_stats_render_tensors(const oct_run_stats *stats, oct_strbuf *json);
void oct_run_stats_render_experts(const oct_run_stats *stats, oct_strbuf *json);
/* One histogram of scales a tensor and direction, and the SQNRs as numbers. */
oct_status oct_run_stats_append_events(const oct_run_stats *stats, int64_t step,
                                       oct_event_file *file, oct_error *err);

#endif
