/* The tensors of an export: see tensors.h. */
#include "export/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "export/values.h"
#include "nn/experts.h"
#include "nn/linear.h"

/* ---- what is in 8 bits ---- */

/* Why the dialects can't hold weights of this recipe; NULL: they can. */
static const char *cannot_hold(const oct_recipe *recipe) {
    if (recipe->format[OCT_ROLE_WEIGHT] == OCT_HIF8)
        return "no other program reads weights in HiF8";
    if (recipe->granularity != OCT_MX)
        return "its weights have one scale for a tensor or a row, where the format has one for "
               "each 32 elements";
    if (recipe->format[OCT_ROLE_WEIGHT] != OCT_E4M3)
        return "its weights are E5M2, where the format has E4M3";
    return NULL;
}

static bool row_has(const oct_plan_row *row, const oct_param *param) {
    const oct_linear *linear = oct_linear_from(row->module);
    const oct_experts *experts = oct_experts_from(row->module);
    if (linear)
        return linear->weight == param;
    for (int i = 0; experts && i < OCT_N_EXPERT_WEIGHTS; i++)
        if (experts->w[i] == param)
            return true;
    return false;
}

/* The row whose product is with this parameter; NULL: none. A tied head's is the table's too. */
static const oct_plan_row *row_of(const oct_plan *plan, const oct_param *param) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (row_has(&plan->rows[i], param))
            return &plan->rows[i];
    return NULL;
}

static oct_status check_recipes(const oct_export *e, oct_error *err) {
    int64_t n = 0;
    for (int64_t i = 0; i < e->plan->n_rows; i++) {
        const oct_plan_row *row = &e->plan->rows[i];
        const char *why = row->recipe ? cannot_hold(row->recipe) : NULL;
        if (why)
            return oct_fail(err, OCT_INVALID,
                            "%s: %s, recipe %s: %s; expected MXFP8 weights, or the format hf",
                            oct_export_format_name(e->format), row->name, row->recipe->name, why);
        n += row->recipe != NULL;
    }
    if (n == 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: the model has nothing in 8 bits; expected a model that was trained in "
                        "MXFP8, or a recipe such as mxfp8, or the format hf",
                        oct_export_format_name(e->format));
    return OCT_OK;
}

/* ---- the list ---- */

static oct_dtype dtype_of(const oct_export *e, const char *name, oct_dtype otherwise) {
    const oct_safetensors_tensor *there = e->like ? oct_hf_model_find(e->like, name) : NULL;
    bool high =
        there && (there->dtype == OCT_F32 || there->dtype == OCT_BF16 || there->dtype == OCT_F16);
    return high ? there->dtype : otherwise;
}

static oct_status append(oct_export_tensors *t, const oct_export_tensor *tensor, oct_error *err) {
    oct_export_tensor *grown = oct_grow_array(t->list, t->n, &t->capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    t->list = grown;
    t->list[t->n++] = *tensor;
    t->summary.n_bytes += oct_export_tensor_bytes(tensor);
    t->summary.n_tensors++;
    return OCT_OK;
}

/* The module of a weight: its name without ".weight". */
static oct_status ignore(oct_export_tensors *t, const char *module, int n, oct_error *err) {
    char **grown =
        oct_grow_array(t->ignored, t->n_ignored, &t->ignored_capacity, sizeof *t->ignored);
    if (!grown)
        return oct_fail_memory(err);
    t->ignored = grown;
    t->ignored[t->n_ignored] = oct_strndup(module, (size_t)n);
    return t->ignored[t->n_ignored++] ? OCT_OK : oct_fail_memory(err);
}

static oct_status append_quantized(oct_export_tensors *t, oct_export_tensor *tensor,
                                   oct_error *err) {
    size_t n = strlen(tensor->name);
    tensor->part = OCT_PART_CODES;
    tensor->dtype = OCT_E4M3;
    oct_status status = append(t, tensor, err);
    tensor->part = OCT_PART_SCALES;
    tensor->dtype = OCT_U8;
    tensor->shape[1] /= OCT_MX_BLOCK;
    snprintf(tensor->name + n, sizeof tensor->name - n, "%s",
             oct_dialect_scale_suffix(t->e->format));
    t->summary.n_quantized++;
    return status ? status : append(t, tensor, err);
}

/* One tensor of a parameter that a product may be with in 8 bits. */
static oct_status append_weight(oct_export_tensors *t, const oct_plan_row *row,
                                oct_export_tensor *tensor, oct_error *err) {
    size_t n = strlen(tensor->name) - strlen(".weight");
    bool dialect = t->e->format != OCT_EXPORT_HF;
    if (dialect && row && row->recipe && tensor->shape[1] % OCT_MX_BLOCK == 0) {
        tensor->recipe = row->recipe;
        return append_quantized(t, tensor, err);
    }
    t->summary.n_high += row != NULL;
    tensor->dtype = dtype_of(t->e, tensor->name, t->e->dtype);
    oct_status status = append(t, tensor, err);
    bool table = row && strcmp(tensor->param->name, "tok_embeddings.weight") == 0;
    if (status || !dialect || !row)
        return status;
    return table ? ignore(t, "lm_head", 7, err) : ignore(t, tensor->name, (int)n, err);
}

static oct_status append_param(oct_export_tensors *t, const oct_param *param, oct_error *err) {
    const oct_export *e = t->e;
    oct_model_family family = oct_model_get_args(e->model)->family;
    bool experts = param->n_dims == 3;
    const oct_plan_row *row = param->n_dims > 1 ? row_of(e->plan, param) : NULL;
    oct_status status = OCT_OK;
    if (e->format != OCT_EXPORT_HF && row && row->recipe &&
        strcmp(param->name, "tok_embeddings.weight") == 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: %s is in 8 bits, and its weight is the embedding table's too, which "
                        "no program has in 8 bits; expected filter_fqns to keep \"output\" high",
                        oct_export_format_name(e->format), row->name);
    for (int64_t x = 0; x < (experts ? param->shape[0] : 1) && !status; x++) {
        oct_export_tensor tensor = {.all = t, .param = param, .expert = x};
        tensor.n_dims = experts ? 2 : param->n_dims;
        memcpy(tensor.shape, experts ? param->shape + 1 : param->shape,
               (size_t)tensor.n_dims * sizeof *tensor.shape);
        bool named = experts ? oct_hf_expert_name(family, param->name, x, tensor.name)
                             : oct_hf_name(family, param->name, tensor.name);
        if (!named)
            return oct_fail(err, OCT_INVALID, "%s has no name in Hugging Face's models",
                            param->name);
        status = append_weight(t, row, &tensor, err);
    }
    return status;
}

/* A bias that decides nothing needs no tensor. */
static bool is_zero(const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (values[i] != 0)
            return false;
    return true;
}

static oct_status append_biases(oct_export_tensors *t, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(t->e->model);
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < args->n_layers && !status; i++) {
        const oct_moe *moe = oct_model_moe(t->e->model, i);
        char ours[OCT_MOE_BIAS_NAME_SIZE];
        oct_export_tensor tensor = {.all = t, .dtype = OCT_F32, .n_dims = 1};
        if (!moe)
            continue;
        oct_moe_bias_name(moe, ours);
        tensor.bias = moe->expert_bias;
        tensor.shape[0] = args->num_experts;
        if (oct_hf_name(args->family, ours, tensor.name)) {
            tensor.dtype = dtype_of(t->e, tensor.name, OCT_F32);
            status = append(t, &tensor, err);
        } else if (!is_zero(moe->expert_bias, args->num_experts)) {
            status = oct_fail(err, OCT_INVALID,
                              "%s isn't zero, and Qwen3-MoE's files have no router bias: other "
                              "experts would be chosen there; expected a model trained with "
                              "model.args.load_balance_coeff = 0",
                              ours);
        }
    }
    return status;
}

oct_status oct_export_tensors_list(const oct_export *e, oct_export_tensors *t, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(e->model, &n);
    oct_status status = OCT_OK;
    *t = (oct_export_tensors){.e = e, .arena = oct_arena_create()};
    if (!t->arena)
        return oct_fail_memory(err);
    if (e->format != OCT_EXPORT_HF)
        status = check_recipes(e, err);
    for (int64_t i = 0; i < n && !status; i++)
        status = append_param(t, params[i], err);
    return status ? status : append_biases(t, err);
}

void oct_export_tensors_free(oct_export_tensors *t) {
    for (size_t i = 0; i < t->n_ignored; i++)
        oct_free(t->ignored[i]);
    oct_free(t->ignored);
    oct_free(t->list);
    oct_arena_destroy(t->arena);
    *t = (oct_export_tensors){0};
}

/* ---- their bytes ---- */

static int64_t elements(const oct_export_tensor *tensor) {
    return tensor->n_dims == 2 ? tensor->shape[0] * tensor->shape[1] : tensor->shape[0];
}

size_t oct_export_tensor_bytes(const oct_export_tensor *tensor) {
    return (size_t)elements(tensor) * oct_safetensors_dtype_bytes(tensor->dtype);
}

/* The fp32 values, in octet's order of rows. */
static const float *values_of(const oct_export_tensor *tensor) {
    const oct_param *param = tensor->param;
    if (!param)
        return tensor->bias;
    int64_t slice = param->n_dims == 3 ? param->shape[1] * param->shape[2] : 0;
    return param->value + tensor->expert * slice;
}

/* As the products of training have them: the quantizer's codes, or its scales, one a row also where
 * rows share them. */
static oct_status put_quantized(const oct_export_tensor *tensor, const float *from, uint8_t *to,
                                oct_error *err) {
    oct_arena *arena = tensor->all->arena;
    oct_arena *const arenas[2] = {arena, arena};
    const int64_t *shape = tensor->param->shape + (tensor->param->n_dims == 3);
    const oct_matrix_view view = {from, OCT_F32, shape[0], shape[1], shape[1]};
    oct_arena_mark mark = oct_arena_get_mark(arena);
    oct_quantized q;
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        if (!isfinite(from[i]))
            return oct_fail(err, OCT_INVALID,
                            "%s: element %" PRId64 " is %g; expected a finite weight", tensor->name,
                            i, (double)from[i]);
    if (oct_quantize(&view, tensor->recipe, OCT_ROLE_WEIGHT, OCT_ALONG_1, arenas, NULL, &q))
        return oct_fail_memory(err);
    const oct_qmatrix *m = &q.along[1];
    if (tensor->part == OCT_PART_CODES)
        memcpy(to, m->codes, (size_t)(m->rows * m->cols));
    for (int64_t r = 0; r < m->rows && tensor->part == OCT_PART_SCALES; r++)
        memcpy(to + r * tensor->shape[1],
               (const uint8_t *)m->scales + r / m->block_rows * m->ld_scales,
               (size_t)tensor->shape[1]);
    oct_arena_release(arena, mark);
    return OCT_OK;
}

/* Rows of heads in the order that Hugging Face rotates them in. */
static oct_status permute(const oct_export_tensor *tensor, void *bytes, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(tensor->all->e->model);
    int64_t heads = tensor->param ? oct_hf_permuted_heads(args, tensor->param->name) : 0;
    size_t n_bytes = oct_export_tensor_bytes(tensor);
    if (heads == 0)
        return OCT_OK;
    void *copy = oct_malloc(n_bytes);
    if (!copy)
        return oct_fail_memory(err);
    memcpy(copy, bytes, n_bytes);
    oct_hf_permute_rows(OCT_TO_HF, heads, tensor->shape[0] / heads,
                        n_bytes / (size_t)tensor->shape[0], copy, bytes);
    oct_free(copy);
    return OCT_OK;
}

oct_status oct_export_tensor_make(const oct_export_tensor *tensor, void *to, oct_error *err) {
    const oct_export *e = tensor->all->e;
    const float *values = values_of(tensor);
    oct_status status = OCT_OK;
    if (e->stop && e->stop(e->stop_user))
        return oct_fail(err, OCT_FAILED, "the export was stopped");
    if (tensor->part == OCT_PART_VALUES)
        status =
            oct_export_put_values(tensor->name, values, elements(tensor), tensor->dtype, to, err);
    else
        status = put_quantized(tensor, values, to, err);
    return status ? status : permute(tensor, to, err);
}
