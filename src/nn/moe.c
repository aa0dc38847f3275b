/* Mixture of experts: see moe.h. */
#include "nn/moe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* What forward leaves for backward. */
typedef struct kept {
    oct_tensor x, scores, sorted, routed; /* (T,D), (T,E), (T*A,D): into and out of the experts */
    oct_tensor arrived;                   /* what experts here read, where tokens travel */
    oct_token_route route;
    int32_t *chosen, *choice_at, *place_of; /* (T*A) */
    float *weights;                         /* (T,A) */
    int64_t *offsets;                       /* (E+1) */
} kept;

static bool keeps_sorted(const oct_moe *moe) {
    return moe->experts->products->keeps_input && moe->sorted == OCT_PRODUCT_KEPT && !moe->exchange;
}

/* Whether backward sorts again. What arrived is kept instead: to send it twice costs more. */
static bool sorts_again(const oct_moe *moe) {
    return moe->experts->products->keeps_input && moe->sorted != OCT_PRODUCT_KEPT && !moe->exchange;
}

static oct_status allocate(const oct_moe *moe, oct_step *step, kept *k) {
    bool saving = step->save == OCT_SAVE_FOR_BACKWARD;
    int64_t T = oct_tensor_rows(&k->x), E = moe->config.rule.n_experts;
    int64_t n = T * moe->config.rule.n_active;
    oct_arena *arena = saving ? step->saved : step->scratch;
    k->scores = oct_step_tensor(step, OCT_F32, T, E, true);
    k->chosen = oct_arena_alloc_array(arena, (size_t)n, sizeof *k->chosen);
    k->choice_at = oct_arena_alloc_array(arena, (size_t)n, sizeof *k->choice_at);
    k->place_of = oct_arena_alloc_array(arena, (size_t)n, sizeof *k->place_of);
    k->weights = oct_arena_alloc_array(arena, (size_t)n, sizeof *k->weights);
    k->offsets = oct_arena_alloc_array(arena, (size_t)E + 1, sizeof *k->offsets);
    k->sorted = oct_step_tensor(step, step->activation, n, moe->config.dim, keeps_sorted(moe));
    k->routed = oct_step_tensor(step, step->activation, n, moe->config.dim,
                                !moe->config.score_before_experts);
    bool all = k->scores.data && k->chosen && k->choice_at && k->place_of && k->weights &&
               k->offsets && k->sorted.data && k->routed.data;
    return all ? OCT_OK : OCT_NO_MEMORY;
}

/* Scores, choices and the sort. */
static oct_status route(oct_moe *moe, oct_step *step, kept *k) {
    const oct_routing_rule *rule = &moe->config.rule;
    oct_status status = oct_forward(&moe->gate->base, step, &k->x, &k->scores);
    if (!status)
        status = oct_route_forward(rule, &k->scores, moe->expert_bias, k->chosen, k->weights);
    if (status)
        return status;
    oct_route_sort(k->chosen, oct_tensor_rows(&k->sorted), rule->n_experts, k->offsets,
                   k->choice_at, k->place_of);
    for (int64_t e = 0; step->save == OCT_SAVE_FOR_BACKWARD && e < rule->n_experts; e++)
        moe->tokens_per_expert[e] += k->offsets[e + 1] - k->offsets[e];
    return OCT_OK;
}

static oct_status sort_tokens(const oct_moe *moe, const kept *k, oct_tensor *sorted) {
    const float *weights = moe->config.score_before_experts ? k->weights : NULL;
    return oct_dispatch_rows(&k->x, k->choice_at, moe->config.rule.n_active, weights, sorted);
}

/* sorted (T*A,D) through the experts, wherever they are; routed->data NULL: not wanted. */
static oct_status run_experts(oct_moe *moe, oct_step *step, kept *k, oct_tensor *routed) {
    oct_arena *arena = step->save == OCT_SAVE_FOR_BACKWARD ? step->saved : step->scratch;
    int64_t E = moe->config.rule.n_experts, D = moe->config.dim;
    if (!moe->exchange)
        return oct_experts_forward(moe->experts, step, &k->sorted, k->offsets, routed);
    oct_status status = oct_token_route_agree(moe->exchange, k->offsets, E, arena, &k->route);
    if (status)
        return status;
    int64_t n = oct_token_route_rows(&k->route);
    k->arrived = oct_step_tensor(step, step->activation, n, D, moe->experts->products->keeps_input);
    oct_tensor done = oct_tensor_2d(step->activation, n, D, NULL);
    if (routed->data)
        done = oct_step_scratch(step, step->activation, n, D);
    if (!k->arrived.data || (routed->data && !done.data))
        return OCT_NO_MEMORY;
    status = oct_tokens_to_experts(&k->route, &k->sorted, step->scratch, &k->arrived);
    if (!status)
        status = oct_experts_forward(moe->experts, step, &k->arrived, k->route.offsets, &done);
    if (status || !routed->data)
        return status;
    return oct_tokens_from_experts(&k->route, &done, step->scratch, routed);
}

static oct_status run_forward(oct_moe *moe, oct_step *step, kept *k, oct_tensor *y) {
    bool before = moe->config.score_before_experts;
    oct_status status = allocate(moe, step, k);
    if (!status)
        status = route(moe, step, k);
    if (!status)
        status = sort_tokens(moe, k, &k->sorted);
    if (status)
        return status;
    oct_tensor routed = k->routed;
    if (!y->data && before)
        routed.data = NULL; /* nobody reads it */
    status = run_experts(moe, step, k, &routed);
    if (status)
        return status;
    if (moe->shared_experts)
        status = oct_forward(&moe->shared_experts->base, step, &k->x, y);
    if (status)
        return status;
    if (!y->data)
        return OCT_OK;
    return oct_combine_rows(&routed, k->place_of, moe->config.rule.n_active,
                            before ? NULL : k->weights, moe->shared_experts ? y : NULL, y,
                            step->scratch);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    kept local = {0}, *k = &local;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        k = oct_step_keep(step, sizeof *k);
        if (!k)
            return OCT_NO_MEMORY;
        m->saved = k;
    }
    k->x = *x;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_forward((oct_moe *)m, step, k, y);
    oct_step_leave(step, mark);
    return status;
}

/* The gradient of what experts gave to that of what they read, both (T*A,D), wherever they are. */
static oct_status run_experts_backward(oct_moe *moe, oct_step *step, const oct_tensor *drouted,
                                       oct_tensor *dsorted) {
    const kept *k = moe->base.saved;
    if (!moe->exchange)
        return oct_experts_backward(moe->experts, step, drouted, dsorted);
    int64_t n = oct_token_route_rows(&k->route), D = moe->config.dim;
    oct_tensor dy = oct_step_scratch(step, drouted->dtype, n, D);
    oct_tensor dx = oct_step_scratch(step, drouted->dtype, n, D);
    oct_status status = dy.data && dx.data ? OCT_OK : OCT_NO_MEMORY;
    if (!status)
        status = oct_tokens_to_experts(&k->route, drouted, step->scratch, &dy);
    if (!status)
        status = oct_experts_backward(moe->experts, step, &dy, &dx);
    if (status)
        return status;
    return oct_tokens_from_experts(&k->route, &dx, step->scratch, dsorted);
}

/* Through the experts: dsorted, and the gradient of the weights. */
static oct_status experts_backward(oct_moe *moe, oct_step *step, const oct_tensor *dy,
                                   oct_tensor *dsorted, float *dweights) {
    const kept *k = moe->base.saved;
    bool before = moe->config.score_before_experts;
    int64_t A = moe->config.rule.n_active;
    oct_tensor drouted =
        oct_step_scratch(step, dsorted->dtype, dsorted->shape[0], dsorted->shape[1]);
    oct_status status = drouted.data ? OCT_OK : OCT_NO_MEMORY;
    if (!status && sorts_again(moe)) {
        oct_tensor sorted =
            oct_step_scratch(step, dsorted->dtype, dsorted->shape[0], dsorted->shape[1]);
        status = sorted.data ? sort_tokens(moe, k, &sorted) : OCT_NO_MEMORY;
        oct_experts_replace_input(moe->experts, &sorted);
    }
    if (!status && !before)
        status = oct_dot_rows(dy, &k->routed, k->place_of, A, dweights);
    if (!status)
        status = oct_dispatch_rows(dy, k->choice_at, A, before ? NULL : k->weights, &drouted);
    if (!status)
        status = run_experts_backward(moe, step, &drouted, dsorted);
    if (status || !before)
        return status;
    return oct_dot_rows(&k->x, dsorted, k->place_of, A, dweights);
}

static oct_status router_backward(oct_moe *moe, oct_step *step, const float *dweights,
                                  oct_tensor *dx) {
    const kept *k = moe->base.saved;
    oct_tensor dlogits = oct_step_scratch(step, OCT_F32, k->scores.shape[0], k->scores.shape[1]);
    if (!dlogits.data)
        return OCT_NO_MEMORY;
    oct_status status =
        oct_route_backward(&moe->config.rule, &k->scores, k->chosen, dweights, &dlogits);
    if (status)
        return status;
    return oct_backward(&moe->gate->base, step, &dlogits, dx, OCT_ADD_TO_OUTPUT);
}

static oct_status run_backward(oct_moe *moe, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                               oct_accumulate accumulate) {
    const kept *k = moe->base.saved;
    int64_t n = oct_tensor_rows(&k->sorted), A = moe->config.rule.n_active;
    oct_tensor dsorted = oct_step_scratch(step, dy->dtype, n, moe->config.dim);
    float *dweights = oct_arena_alloc_array(step->scratch, (size_t)n, sizeof *dweights);
    if (!dsorted.data || !dweights)
        return OCT_NO_MEMORY;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = experts_backward(moe, step, dy, &dsorted, dweights);
    oct_step_leave(step, mark);
    if (!status && moe->shared_experts) {
        status = oct_backward(&moe->shared_experts->base, step, dy, dx, accumulate);
        accumulate = OCT_ADD_TO_OUTPUT;
    }
    if (!status)
        status = oct_combine_rows(&dsorted, k->place_of, A,
                                  moe->config.score_before_experts ? k->weights : NULL,
                                  accumulate == OCT_ADD_TO_OUTPUT ? dx : NULL, dx, step->scratch);
    return status ? status : router_backward(moe, step, dweights, dx);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_backward((oct_moe *)m, step, dy, dx, accumulate);
    oct_step_leave(step, mark);
    return status;
}

static bool passes_input(const oct_module *m) {
    const oct_moe *moe = (const oct_moe *)m;
    return oct_module_keeps_input(&moe->gate->base) || moe->config.score_before_experts ||
           sorts_again(moe) ||
           (moe->shared_experts && oct_module_keeps_input(&moe->shared_experts->base));
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    oct_moe *moe = (oct_moe *)m;
    ((kept *)m->saved)->x = *x;
    oct_module_replace_input(&moe->gate->base, x);
    if (moe->shared_experts)
        oct_module_replace_input(&moe->shared_experts->base, x);
}

static void destroy(oct_module *m) {
    oct_moe *moe = (oct_moe *)m;
    oct_free(moe->expert_bias);
    oct_free(moe->tokens_per_expert);
}

static const oct_module_ops ops = {.type_name = "MoE",
                                   .forward = forward,
                                   .backward = backward,
                                   .passes_input = passes_input,
                                   .replace_input = replace_input,
                                   .destroy = destroy};

static const oct_module_ops router_ops = {.type_name = "TokenChoiceTopKRouter"};

static oct_status create_router(oct_moe *moe) {
    const oct_moe_config *c = &moe->config;
    oct_module *router =
        oct_module_create(sizeof *router, OCT_MODULE_CONTAINER, &router_ops, &moe->base, "router");
    if (!router)
        return OCT_NO_MEMORY;
    moe->router = router;
    return oct_linear_create(router, "gate", c->dim, c->rule.n_experts, c->gate_init, NULL,
                             &moe->gate);
}

static oct_status create_children(oct_moe *moe) {
    const oct_moe_config *c = &moe->config;
    size_t E = (size_t)c->rule.n_experts;
    moe->expert_bias = oct_calloc_array(E, sizeof *moe->expert_bias);
    moe->tokens_per_expert = oct_calloc_array(E, sizeof *moe->tokens_per_expert);
    if (!moe->expert_bias || !moe->tokens_per_expert)
        return OCT_NO_MEMORY;
    oct_status status = oct_experts_create(&moe->base, "experts", c->rule.n_experts, c->dim,
                                           c->hidden, c->w1_init, c->w2_w3_init, &moe->experts);
    if (!status)
        status = create_router(moe);
    if (status || c->n_shared == 0)
        return status;
    return oct_feed_forward_create(&moe->base, "shared_experts", c->dim, c->n_shared * c->hidden,
                                   c->w1_init, c->w2_w3_init, false, &moe->shared_experts);
}

oct_status oct_moe_create(oct_module *parent, const char *component, const oct_moe_config *config,
                          oct_moe **out) {
    oct_moe *moe = oct_module_create(sizeof *moe, OCT_MODULE_MOE, &ops, parent, component);
    if (!moe)
        return OCT_NO_MEMORY;
    moe->config = *config;
    *out = moe;
    return create_children(moe);
}

void oct_moe_bias_name(const oct_moe *moe, char name[OCT_MOE_BIAS_NAME_SIZE]) {
    snprintf(name, OCT_MOE_BIAS_NAME_SIZE, "%s.expert_bias", moe->base.name);
}

static int sign_of(double x) {
    return (x > 0) - (x < 0);
}

void oct_moe_update_bias(oct_moe *moe, const int64_t *counts) {
    int64_t E = moe->config.rule.n_experts;
    double mean = 0, mean_sign = 0;
    for (int64_t e = 0; e < E; e++)
        mean += (double)counts[e] / (double)E;
    for (int64_t e = 0; e < E; e++)
        mean_sign += sign_of(mean - (double)counts[e]) / (double)E;
    for (int64_t e = 0; e < E; e++) {
        double move = sign_of(mean - (double)counts[e]) - mean_sign;
        moe->expert_bias[e] += (float)((double)moe->config.load_balance_coeff * move);
    }
    memset(moe->tokens_per_expert, 0, (size_t)E * sizeof *moe->tokens_per_expert);
}

void oct_moe_set_products(oct_moe *moe, oct_keep_product product) {
    moe->sorted = product;
    moe->experts->product = product;
    if (moe->shared_experts)
        moe->shared_experts->product = product;
}

oct_moe *oct_moe_from(oct_module *m) {
    return m->kind == OCT_MODULE_MOE ? (oct_moe *)m : NULL;
}
