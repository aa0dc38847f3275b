/* Routing of tokens to experts: see routing.h. */
#include "op/routing.h"

#include <string.h>

#include "op/common.h"

/* torchtitan's guard of the division by a token's sum of weights. */
static const float SUM_EPS = 1e-20f;

enum { TOKENS_PER_TASK = 64 };

typedef struct route_run {
    const oct_elementwise_kernels *kernels;
    const oct_routing_rule *rule;
    int64_t T;
    float *scores;
    const float *bias;
    int32_t *chosen;
    float *weights;
} route_run;

static bool rule_fits(const oct_routing_rule *rule) {
    int64_t E = rule->n_experts, groups = rule->n_groups, limited = rule->n_limited_groups;
    return E >= 1 && E <= OCT_MAX_EXPERTS && rule->n_active >= 1 && groups >= 1 && limited >= 1 &&
           limited <= groups && E % groups == 0 && rule->n_active <= E / groups * limited &&
           rule->route_scale > 0;
}

static bool scores_fit(const oct_routing_rule *rule, const oct_tensor *scores) {
    return rule_fits(rule) && scores->dtype == OCT_F32 &&
           oct_tensor_cols(scores) == rule->n_experts &&
           oct_tensor_rows(scores) <= INT32_MAX / rule->n_active;
}

/* Logits to scores, in place. */
static void score(const route_run *run, float *x) {
    int64_t E = run->rule->n_experts;
    if (run->rule->score_func == OCT_SCORE_SIGMOID) {
        for (int64_t e = 0; e < E; e++)
            x[e] = -x[e];
        run->kernels->exp(x, E, x);
        for (int64_t e = 0; e < E; e++)
            x[e] = 1.0f / (1.0f + x[e]);
        return;
    }
    float max = run->kernels->max((oct_source){x, OCT_F32}, E), sum = 0.0f;
    for (int64_t e = 0; e < E; e++)
        x[e] -= max;
    run->kernels->exp(x, E, x);
    for (int64_t e = 0; e < E; e++)
        sum += x[e];
    for (int64_t e = 0; e < E; e++)
        x[e] /= sum;
}

/* The largest of the n that isn't taken, the first of equal ones. Takes it. Whatever the values,
 * NaN too, each call gives another one. */
static int64_t take_largest(const float *x, uint8_t *taken, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best]))
            best = i;
    taken[best] = 1;
    return best;
}

/* A task's workspace. */
typedef struct choice_work {
    float keys[OCT_MAX_EXPERTS], sums[OCT_MAX_EXPERTS];
    uint8_t taken[OCT_MAX_EXPERTS], used[OCT_MAX_EXPERTS], seen[OCT_MAX_EXPERTS];
} choice_work;

/* Marks the experts outside a token's groups as taken. */
static void limit_groups(const oct_routing_rule *rule, choice_work *work) {
    const float *keys = work->keys;
    float *sums = work->sums;
    uint8_t *seen = work->seen;
    int64_t n = rule->n_experts / rule->n_groups;
    memset(work->used, 0, (size_t)rule->n_groups);
    for (int64_t g = 0; g < rule->n_groups; g++) {
        memset(seen, 0, (size_t)n);
        sums[g] = keys[g * n + take_largest(keys + g * n, seen, n)];
        if (n > 1)
            sums[g] += keys[g * n + take_largest(keys + g * n, seen, n)];
    }
    for (int64_t i = 0; i < rule->n_limited_groups; i++)
        take_largest(sums, work->used, rule->n_groups);
    for (int64_t g = 0; g < rule->n_groups; g++)
        memset(work->taken + g * n, !work->used[g], (size_t)n);
}

static void choose(const route_run *run, const float *scores, int64_t t, choice_work *work,
                   int32_t *chosen) {
    const oct_routing_rule *rule = run->rule;
    int64_t E = rule->n_experts, A = rule->n_active;
    if (rule->assignment == OCT_ASSIGN_IN_TURN) {
        for (int64_t j = 0; j < A; j++)
            chosen[j] = (int32_t)((t * A + j) % E);
        return;
    }
    for (int64_t e = 0; e < E; e++)
        work->keys[e] = run->bias ? scores[e] + run->bias[e] : scores[e];
    memset(work->taken, 0, (size_t)E);
    if (rule->n_groups > 1)
        limit_groups(rule, work);
    for (int64_t j = 0; j < A; j++)
        chosen[j] = (int32_t)take_largest(work->keys, work->taken, E);
}

static float sum_of_chosen(const float *scores, const int32_t *chosen, int64_t A) {
    float sum = 0.0f;
    for (int64_t j = 0; j < A; j++)
        sum += scores[chosen[j]];
    return sum + SUM_EPS;
}

static void weigh(const oct_routing_rule *rule, const float *scores, const int32_t *chosen,
                  float *weights) {
    float sum = rule->normalize ? sum_of_chosen(scores, chosen, rule->n_active) : 1.0f;
    for (int64_t j = 0; j < rule->n_active; j++)
        weights[j] = scores[chosen[j]] / sum * rule->route_scale;
}

static void route_task(void *context, int64_t task, int thread) {
    (void)thread;
    const route_run *run = context;
    int64_t E = run->rule->n_experts, A = run->rule->n_active;
    int64_t end = oct_min_i64((task + 1) * TOKENS_PER_TASK, run->T);
    choice_work work = {0};
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        float *scores = run->scores + t * E;
        score(run, scores);
        choose(run, scores, t, &work, run->chosen + t * A);
        weigh(run->rule, scores, run->chosen + t * A, run->weights + t * A);
    }
}

oct_status oct_route_forward(const oct_routing_rule *rule, oct_tensor *scores, const float *bias,
                             int32_t *chosen, float *weights) {
    if (!scores_fit(rule, scores))
        return OCT_INVALID;
    route_run run = {.kernels = oct_op_kernels(),
                     .rule = rule,
                     .T = oct_tensor_rows(scores),
                     .scores = scores->data,
                     .bias = bias,
                     .chosen = chosen,
                     .weights = weights};
    oct_parallel(oct_ceil_div(run.T, TOKENS_PER_TASK), route_task, &run);
    return OCT_OK;
}

typedef struct route_gradient {
    const oct_routing_rule *rule;
    int64_t T;
    const float *scores;
    const int32_t *chosen;
    const float *dweights;
    float *dlogits;
} route_gradient;

/* d: zeros, and becomes the gradient of the scores. With w = s / sum s: ds_j = (dw_j - sum_i dw_i
 * w_i) / sum s. */
static void scores_gradient(const oct_routing_rule *rule, const float *scores,
                            const int32_t *chosen, const float *dweights, float *d) {
    float sum = 1.0f, mean = 0.0f;
    if (rule->normalize) {
        sum = sum_of_chosen(scores, chosen, rule->n_active);
        for (int64_t j = 0; j < rule->n_active; j++)
            mean += dweights[j] * (scores[chosen[j]] / sum);
    }
    for (int64_t j = 0; j < rule->n_active; j++)
        d[chosen[j]] += rule->route_scale * (dweights[j] - mean) / sum;
}

/* Gradient of the scores to that of the logits, in place. */
static void logits_gradient(const oct_routing_rule *rule, const float *scores, float *d) {
    float mean = 0.0f;
    if (rule->score_func == OCT_SCORE_SIGMOID) {
        for (int64_t e = 0; e < rule->n_experts; e++)
            d[e] *= scores[e] * (1.0f - scores[e]);
        return;
    }
    for (int64_t e = 0; e < rule->n_experts; e++)
        mean += d[e] * scores[e];
    for (int64_t e = 0; e < rule->n_experts; e++)
        d[e] = scores[e] * (d[e] - mean);
}

static void gradient_task(void *context, int64_t task, int thread) {
    (void)thread;
    const route_gradient *run = context;
    int64_t E = run->rule->n_experts, A = run->rule->n_active;
    int64_t end = oct_min_i64((task + 1) * TOKENS_PER_TASK, run->T);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        float *d = run->dlogits + t * E;
        memset(d, 0, (size_t)E * sizeof *d);
        scores_gradient(run->rule, run->scores + t * E, run->chosen + t * A, run->dweights + t * A,
                        d);
        logits_gradient(run->rule, run->scores + t * E, d);
    }
}

oct_status oct_route_backward(const oct_routing_rule *rule, const oct_tensor *scores,
                              const int32_t *chosen, const float *dweights, oct_tensor *dlogits) {
    int64_t T = oct_tensor_rows(scores);
    if (!scores_fit(rule, scores) || !scores_fit(rule, dlogits) || oct_tensor_rows(dlogits) != T)
        return OCT_INVALID;
    route_gradient run = {rule, T, scores->data, chosen, dweights, dlogits->data};
    oct_parallel(oct_ceil_div(T, TOKENS_PER_TASK), gradient_task, &run);
    return OCT_OK;
}

void oct_route_sort(const int32_t *chosen, int64_t n, int64_t E, int64_t *offsets,
                    int32_t *choice_at, int32_t *place_of) {
    memset(offsets, 0, (size_t)(E + 1) * sizeof *offsets);
    for (int64_t i = 0; i < n; i++)
        offsets[chosen[i] + 1]++;
    for (int64_t e = 0; e < E; e++)
        offsets[e + 1] += offsets[e];
    /* Each expert's offset serves as its next free place; the loop ends with all shifted by one. */
    for (int64_t i = 0; i < n; i++) {
        int64_t place = offsets[chosen[i]]++;
        choice_at[place] = (int32_t)i;
        place_of[i] = (int32_t)place;
    }
    memmove(offsets + 1, offsets, (size_t)E * sizeof *offsets);
    offsets[0] = 0;
}

typedef struct rows_run {
    const oct_elementwise_kernels *kernels;
    int64_t n, D, A, rows_per_task;
    oct_source x, routed; /* x: (T,D); data NULL: none */
    oct_target y;
    const int32_t *index; /* choice_at or place_of */
    const float *weights;
    float *sums; /* two rows a thread */
    float *dots;
} rows_run;

static rows_run new_run(const oct_tensor *like, int64_t n, int64_t A, const int32_t *index) {
    rows_run run = {
        .kernels = oct_op_kernels(), .n = n, .D = oct_tensor_cols(like), .A = A, .index = index};
    run.rows_per_task = oct_op_task_rows(run.D);
    return run;
}

static int64_t n_row_tasks(const rows_run *run) {
    return oct_ceil_div(run->n, run->rows_per_task);
}

/* Whether `tokens` is (T,D) and `routed` (T*A, D). */
static bool rows_fit(const oct_tensor *tokens, const oct_tensor *routed, int64_t A) {
    return oct_op_is_dense(tokens) && oct_op_is_dense(routed) && A >= 1 &&
           oct_tensor_cols(tokens) == oct_tensor_cols(routed) && oct_tensor_rows(routed) % A == 0 &&
           oct_tensor_rows(tokens) == oct_tensor_rows(routed) / A;
}

static void dispatch_task(void *context, int64_t task, int thread) {
    (void)thread;
    const rows_run *run = context;
    int64_t first = task * run->rows_per_task;
    int64_t end = oct_min_i64(first + run->rows_per_task, run->n);
    for (int64_t place = first; place < end; place++) {
        int64_t choice = run->index[place];
        oct_source x = oct_source_at(run->x, choice / run->A * run->D);
        oct_target y = oct_target_at(run->y, place * run->D);
        if (run->weights)
            run->kernels->scale(x, run->weights[choice], run->D, y);
        else
            run->kernels->cast(x, run->D, y);
    }
}

oct_status oct_dispatch_rows(const oct_tensor *x, const int32_t *choice_at, int64_t n_active,
                             const float *weights, oct_tensor *y) {
    if (!rows_fit(x, y, n_active))
        return OCT_INVALID;
    rows_run run = new_run(x, oct_tensor_rows(y), n_active, choice_at);
    run.x = oct_op_source(x);
    run.y = oct_op_target(y);
    run.weights = weights;
    oct_parallel(n_row_tasks(&run), dispatch_task, &run);
    return OCT_OK;
}

/* sum = the weighted rows of token t; `row` is workspace. */
static void add_choices(const rows_run *run, int64_t t, oct_target sum, oct_target row) {
    for (int64_t j = 0; j < run->A; j++) {
        int64_t choice = t * run->A + j;
        oct_source routed = oct_source_at(run->routed, run->index[choice] * run->D);
        oct_target to = j == 0 ? sum : row;
        if (run->weights)
            run->kernels->scale(routed, run->weights[choice], run->D, to);
        else
            run->kernels->cast(routed, run->D, to);
        if (j > 0)
            run->kernels->add(oct_source_of(sum), oct_source_of(row), run->D, sum);
    }
}

static void combine_task(void *context, int64_t task, int thread) {
    const rows_run *run = context;
    oct_target sum = {run->sums + 2 * thread * run->D, OCT_F32};
    oct_target row = {run->sums + (2 * thread + 1) * run->D, OCT_F32};
    int64_t first = task * run->rows_per_task;
    int64_t end = oct_min_i64(first + run->rows_per_task, run->n);
    for (int64_t t = first; t < end; t++) {
        oct_target y = oct_target_at(run->y, t * run->D);
        add_choices(run, t, sum, row);
        if (run->x.data)
            run->kernels->add(oct_source_at(run->x, t * run->D), oct_source_of(sum), run->D, y);
        else
            run->kernels->cast(oct_source_of(sum), run->D, y);
    }
}

oct_status oct_combine_rows(const oct_tensor *routed, const int32_t *place_of, int64_t n_active,
                            const float *weights, const oct_tensor *base, oct_tensor *y,
                            oct_arena *scratch) {
    if (!rows_fit(y, routed, n_active) || (base && !rows_fit(base, routed, n_active)))
        return OCT_INVALID;
    rows_run run = new_run(y, oct_tensor_rows(y), n_active, place_of);
    run.routed = oct_op_source(routed);
    run.y = oct_op_target(y);
    run.weights = weights;
    if (base)
        run.x = oct_op_source(base);
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    run.sums =
        oct_arena_alloc_array(scratch, 2 * (size_t)oct_threads() * (size_t)run.D, sizeof *run.sums);
    if (!run.sums)
        return OCT_NO_MEMORY;
    oct_parallel(n_row_tasks(&run), combine_task, &run);
    oct_arena_release(scratch, mark);
    return OCT_OK;
}

static void dot_task(void *context, int64_t task, int thread) {
    (void)thread;
    const rows_run *run = context;
    int64_t first = task * run->rows_per_task;
    int64_t end = oct_min_i64(first + run->rows_per_task, run->n);
    for (int64_t choice = first; choice < end; choice++)
        run->dots[choice] =
            run->kernels->dot(oct_source_at(run->x, choice / run->A * run->D),
                              oct_source_at(run->routed, run->index[choice] * run->D), run->D);
}

oct_status oct_dot_rows(const oct_tensor *x, const oct_tensor *routed, const int32_t *place_of,
                        int64_t n_active, float *dots) {
    if (!rows_fit(x, routed, n_active))
        return OCT_INVALID;
    rows_run run = new_run(x, oct_tensor_rows(routed), n_active, place_of);
    run.x = oct_op_source(x);
    run.routed = oct_op_source(routed);
    run.dots = dots;
    oct_parallel(n_row_tasks(&run), dot_task, &run);
    return OCT_OK;
}
