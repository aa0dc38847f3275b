/* The experts of a layer: see experts.h. Products are lists of gemm problems, one a group. */
#include "nn/experts.h"

#include <string.h>

#include "base/alloc.h"
#include "op/elementwise.h"
#include "quant/delayed.h"

/* What forward leaves for backward. */
typedef struct kept {
    int64_t *offsets;
    oct_tensor x, gate, up, product; /* x, product: where the products keep their input */
    oct_group_operands x_groups, product_groups; /* along[0], where they don't */
} kept;

/* ---- operands in high precision: views ---- */

static oct_operand view_of(const oct_tensor *x, int64_t first_row, int64_t cols, int dim) {
    const char *data = x->data;
    return (oct_operand){.dtype = x->dtype,
                         .layout = dim == 1 ? OCT_K_CONTIGUOUS : OCT_K_STRIDED,
                         .data = data + (size_t)(first_row * cols) * oct_dtype_bytes(x->dtype),
                         .ld = cols};
}

static oct_status dense_rows(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                             oct_role role, oct_along which, const oct_tensor *x,
                             const int64_t *offsets, oct_arena *const arenas[2],
                             oct_group_operands *out) {
    (void)step, (void)weight, (void)role;
    *out = (oct_group_operands){{NULL, NULL}};
    for (int dim = 0; dim < 2; dim++) {
        if (!(which & (dim == 0 ? OCT_ALONG_0 : OCT_ALONG_1)))
            continue;
        oct_operand *operands =
            oct_arena_alloc_array(arenas[dim], (size_t)experts->n_experts, sizeof *operands);
        if (!operands)
            return OCT_NO_MEMORY;
        for (int64_t e = 0; e < experts->n_experts; e++)
            operands[e] = view_of(x, offsets[e], oct_tensor_cols(x), dim);
        out->along[dim] = operands;
    }
    return OCT_OK;
}

static oct_status dense_weights(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                                int dim, oct_operand *out) {
    const oct_param *param = experts->w[weight];
    oct_tensor dense;
    oct_status status = oct_weights_dense(step->weights, param, step->activation, &dense);
    for (int64_t e = 0; !status && e < experts->n_experts; e++)
        out[e] = view_of(&dense, e * param->shape[1], param->shape[2], dim);
    return status;
}

/* The default. */
static const oct_expert_products expert_loop = {.type_name = "Experts",
                                                .at_once = false,
                                                .keeps_input = true,
                                                .rows = dense_rows,
                                                .weights = dense_weights};
const oct_expert_products oct_expert_grouped = {.type_name = "GroupedExperts",
                                                .at_once = true,
                                                .keeps_input = true,
                                                .rows = dense_rows,
                                                .weights = dense_weights};

/* ---- products ---- */

static oct_status run(const oct_experts *experts, oct_step *step, const oct_gemm_problem *problems,
                      int64_t n) {
    oct_gemm_mode mode = experts->recipe ? experts->recipe->gemm : OCT_GEMM_EXACT;
    int64_t n_at_once = experts->products->at_once ? n : 1;
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    for (int64_t i = 0; i < n; i += n_at_once) {
        size_t n_bytes = oct_gemm_workspace(problems + i, n_at_once, mode);
        void *workspace = oct_arena_alloc(step->scratch, n_bytes);
        if (!workspace)
            return OCT_NO_MEMORY;
        oct_gemm(problems + i, n_at_once, mode, workspace);
        oct_arena_release(step->scratch, mark);
    }
    return OCT_OK;
}

static void *row_of(const oct_tensor *x, int64_t row) {
    return (char *)x->data + (size_t)(row * oct_tensor_cols(x)) * oct_dtype_bytes(x->dtype);
}

/* Of each group, y = [y +] x W^T (dim 1: forward) or x W (dim 0: dgrad); `x` along their features.
 */
static oct_status multiply(oct_experts *experts, oct_step *step, oct_expert_weight weight, int dim,
                           const oct_operand *x, const int64_t *offsets, oct_tensor *y,
                           oct_accumulate accumulate) {
    size_t E = (size_t)experts->n_experts;
    const oct_param *param = experts->w[weight];
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    oct_operand *w = oct_arena_alloc_array(step->scratch, E, sizeof *w);
    oct_gemm_problem *problems = oct_arena_alloc_array(step->scratch, E, sizeof *problems);
    oct_status status = w && problems ? OCT_OK : OCT_NO_MEMORY;
    if (!status)
        status = experts->products->weights(experts, step, weight, dim, w);
    int64_t n = 0;
    for (size_t e = 0; !status && e < E; e++) {
        if (offsets[e + 1] == offsets[e])
            continue;
        problems[n++] = (oct_gemm_problem){.M = offsets[e + 1] - offsets[e],
                                           .N = param->shape[dim == 1 ? 1 : 2],
                                           .K = param->shape[dim == 1 ? 2 : 1],
                                           .a = x[e],
                                           .b = w[e],
                                           .c = row_of(y, offsets[e]),
                                           .c_dtype = y->dtype,
                                           .ld_c = oct_tensor_cols(y),
                                           .accumulate = accumulate};
    }
    if (!status)
        status = run(experts, step, problems, n);
    oct_arena_release(step->scratch, mark);
    return status;
}

/* Of each group, dW += dy^T x; both along their tokens. Empty groups leave theirs alone. */
static oct_status weight_gradient(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                                  const oct_operand *dy, const oct_operand *x,
                                  const int64_t *offsets) {
    const oct_param *param = experts->w[weight];
    int64_t N = param->shape[1], K = param->shape[2], n = 0;
    if (!param->grad)
        return OCT_OK;
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    oct_gemm_problem *problems =
        oct_arena_alloc_array(step->scratch, (size_t)experts->n_experts, sizeof *problems);
    if (!problems)
        return OCT_NO_MEMORY;
    for (int64_t e = 0; e < experts->n_experts; e++) {
        if (offsets[e + 1] == offsets[e])
            continue;
        problems[n++] = (oct_gemm_problem){.M = N,
                                           .N = K,
                                           .K = offsets[e + 1] - offsets[e],
                                           .a = dy[e],
                                           .b = x[e],
                                           .c = param->grad + e * N * K,
                                           .c_dtype = OCT_F32,
                                           .ld_c = K,
                                           .accumulate = OCT_ADD_TO_OUTPUT,
                                           .sum_dtype = step->gradient};
    }
    oct_status status = run(experts, step, problems, n);
    oct_arena_release(step->scratch, mark);
    return status;
}

/* ---- forward ---- */

static oct_status input_groups(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                               const oct_tensor *x, const int64_t *offsets,
                               oct_group_operands *out) {
    bool saving = step->save == OCT_SAVE_FOR_BACKWARD && !experts->products->keeps_input;
    oct_arena *const arenas[2] = {saving ? step->saved : step->scratch, step->scratch};
    return experts->products->rows(experts, step, weight, OCT_ROLE_INPUT,
                                   saving ? OCT_ALONG_BOTH : OCT_ALONG_1, x, offsets, arenas, out);
}

static oct_status allocate(const oct_experts *experts, oct_step *step, int64_t T, kept *k) {
    bool keep = experts->products->keeps_input && experts->product == OCT_PRODUCT_KEPT;
    k->gate = oct_step_tensor(step, step->activation, T, experts->hidden, true);
    k->up = oct_step_tensor(step, step->activation, T, experts->hidden, true);
    k->product = oct_step_tensor(step, step->activation, T, experts->hidden, keep);
    return k->gate.data && k->up.data && k->product.data ? OCT_OK : OCT_NO_MEMORY;
}

static oct_status run_forward(oct_experts *experts, oct_step *step, const int64_t *offsets, kept *k,
                              oct_tensor *y) {
    oct_status status = allocate(experts, step, oct_tensor_rows(&k->x), k);
    if (!status)
        status = input_groups(experts, step, OCT_EXPERT_W1, &k->x, offsets, &k->x_groups);
    if (!status)
        status = multiply(experts, step, OCT_EXPERT_W1, 1, k->x_groups.along[1], offsets, &k->gate,
                          OCT_OVERWRITE);
    if (!status)
        status = multiply(experts, step, OCT_EXPERT_W3, 1, k->x_groups.along[1], offsets, &k->up,
                          OCT_OVERWRITE);
    if (!status)
        status = oct_swiglu_forward(&k->gate, &k->up, &k->product);
    if (!status)
        status =
            input_groups(experts, step, OCT_EXPERT_W2, &k->product, offsets, &k->product_groups);
    if (status || !y->data)
        return status;
    return multiply(experts, step, OCT_EXPERT_W2, 1, k->product_groups.along[1], offsets, y,
                    OCT_OVERWRITE);
}

oct_status oct_experts_forward(oct_experts *experts, oct_step *step, const oct_tensor *x,
                               const int64_t *offsets, oct_tensor *y) {
    kept local = {0}, *k = &local;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        size_t n_bytes = (size_t)(experts->n_experts + 1) * sizeof *offsets;
        k = oct_step_keep(step, sizeof *k);
        int64_t *own = oct_step_keep(step, n_bytes);
        if (!k || !own)
            return OCT_NO_MEMORY;
        memcpy(own, offsets, n_bytes);
        k->offsets = own;
        experts->base.saved = k;
    }
    k->x = *x;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_forward(experts, step, offsets, k, y);
    oct_step_leave(step, mark);
    return status;
}

/* ---- backward ---- */

static oct_status gradient_groups(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                                  const oct_tensor *dy, const int64_t *offsets,
                                  oct_group_operands *out) {
    oct_along which = experts->w[weight]->grad ? OCT_ALONG_BOTH : OCT_ALONG_1;
    oct_arena *const arenas[2] = {step->scratch, step->scratch};
    return experts->products->rows(experts, step, weight, OCT_ROLE_GRAD, which, dy, offsets, arenas,
                                   out);
}

/* One weight's share: its gradient, and dx. `x_groups`: its input along the tokens. */
static oct_status product_backward(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                                   const oct_tensor *dy, const oct_group_operands *x_groups,
                                   oct_tensor *dx, oct_accumulate accumulate) {
    const kept *k = experts->base.saved;
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    oct_group_operands groups;
    oct_status status = gradient_groups(experts, step, weight, dy, k->offsets, &groups);
    if (!status)
        status =
            weight_gradient(experts, step, weight, groups.along[0], x_groups->along[0], k->offsets);
    if (!status)
        status = multiply(experts, step, weight, 0, groups.along[1], k->offsets, dx, accumulate);
    oct_arena_release(step->scratch, mark);
    return status;
}

/* Views of what was kept whole, computed again where it wasn't. */
static oct_status restore_inputs(oct_experts *experts, oct_step *step, kept *k) {
    oct_arena *const arenas[2] = {step->scratch, step->scratch};
    if (!experts->products->keeps_input)
        return OCT_OK;
    if (experts->product == OCT_PRODUCT_RECOMPUTED) {
        k->product = oct_step_scratch(step, k->gate.dtype, k->gate.shape[0], k->gate.shape[1]);
        oct_status status =
            k->product.data ? oct_swiglu_forward(&k->gate, &k->up, &k->product) : OCT_NO_MEMORY;
        if (status)
            return status;
    }
    oct_status status =
        experts->products->rows(experts, step, OCT_EXPERT_W1, OCT_ROLE_INPUT, OCT_ALONG_0, &k->x,
                                k->offsets, arenas, &k->x_groups);
    if (status)
        return status;
    return experts->products->rows(experts, step, OCT_EXPERT_W2, OCT_ROLE_INPUT, OCT_ALONG_0,
                                   &k->product, k->offsets, arenas, &k->product_groups);
}

static oct_status run_backward(oct_experts *experts, oct_step *step, const oct_tensor *dy,
                               oct_tensor *dx) {
    kept *k = experts->base.saved;
    oct_tensor dproduct = oct_step_scratch(step, k->gate.dtype, k->gate.shape[0], k->gate.shape[1]);
    if (!dproduct.data)
        return OCT_NO_MEMORY;
    oct_status status = restore_inputs(experts, step, k);
    if (!status)
        status = product_backward(experts, step, OCT_EXPERT_W2, dy, &k->product_groups, &dproduct,
                                  OCT_OVERWRITE);
    if (status)
        return status;
    /* gate and up are read here for the last time: their gradients take their place. */
    oct_tensor dgate = k->gate, dup = k->up;
    status = oct_swiglu_backward(&dproduct, &k->gate, &k->up, &dgate, &dup);
    if (!status)
        status =
            product_backward(experts, step, OCT_EXPERT_W1, &dgate, &k->x_groups, dx, OCT_OVERWRITE);
    if (status)
        return status;
    return product_backward(experts, step, OCT_EXPERT_W3, &dup, &k->x_groups, dx,
                            OCT_ADD_TO_OUTPUT);
}

oct_status oct_experts_backward(oct_experts *experts, oct_step *step, const oct_tensor *dy,
                                oct_tensor *dx) {
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_backward(experts, step, dy, dx);
    oct_step_leave(step, mark);
    return status;
}

void oct_experts_replace_input(oct_experts *experts, const oct_tensor *x) {
    ((kept *)experts->base.saved)->x = *x;
}

/* ---- the module ---- */

static void destroy(oct_module *m) {
    oct_delayed_destroy(((oct_experts *)m)->delayed);
}

/* Its forward needs the groups too: oct_experts_forward. */
static const oct_module_ops ops = {.type_name = "GroupedExperts", .destroy = destroy};

oct_status oct_experts_create(oct_module *parent, const char *component, int64_t E, int64_t D,
                              int64_t F, oct_init w1_init, oct_init w2_w3_init, oct_experts **out) {
    oct_experts *experts =
        oct_module_create(sizeof *experts, OCT_MODULE_EXPERTS, &ops, parent, component);
    if (!experts)
        return OCT_NO_MEMORY;
    experts->n_experts = E;
    experts->dim = D;
    experts->hidden = F;
    experts->products = &expert_loop;
    *out = experts;
    const int64_t into[3] = {E, F, D}, back[3] = {E, D, F};
    oct_module *m = &experts->base;
    oct_status status;
    status = oct_module_add_param(m, "w1", 3, into, w1_init, &experts->w[OCT_EXPERT_W1]);
    if (!status)
        status = oct_module_add_param(m, "w2", 3, back, w2_w3_init, &experts->w[OCT_EXPERT_W2]);
    if (status)
        return status;
    return oct_module_add_param(m, "w3", 3, into, w2_w3_init, &experts->w[OCT_EXPERT_W3]);
}

oct_experts *oct_experts_from(oct_module *m) {
    return m->kind == OCT_MODULE_EXPERTS ? (oct_experts *)m : NULL;
}
