/* A model's parameters from a Hugging Face folder: see hf_model.h. Rows of heads that Hugging Face
 * rotates another way are permuted (model/hf_names.h). */
#include "job/hf_model.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/log.h"
#include "file/json.h"
#include "hf/hf_decode.h"
#include "hf/hf_folder.h"
#include "job/local_part.h"
#include "job/tensor_list.h"
#include "model/hf_names.h"

/* A tensor that the model needs. */
typedef struct wanted {
    char name[OCT_HF_MODULE_NAME_SIZE]; /* there */
    int n_dims;
    const int64_t *shape;
} wanted;

typedef struct source {
    const oct_hf_model *hf;
    const char *folder; /* it is in */
    const oct_model_args *args;
    oct_hf_quantization quantization;
    int64_t block_rows, block_cols;
    int64_t n_further; /* layers that predict further tokens */
    bool has_config;   /* quantization is what config.json says, not a guess */
} source;

/* ---- scales ---- */

/* The tensor of a weight's scales: "...weight" and a suffix. */
static void scale_name(const source *from, const char *weight, char out[OCT_HF_MODULE_NAME_SIZE]) {
    bool inverse = from->quantization == OCT_HF_FP8_BLOCKS || from->quantization == OCT_HF_MXFP8;
    snprintf(out, OCT_HF_MODULE_NAME_SIZE, "%.*s%s", OCT_HF_MODULE_NAME_SIZE - 16, weight,
             inverse ? "_scale_inv" : "_scale");
}

static bool is_quantized(const oct_safetensors_tensor *tensor) {
    return tensor->dtype == OCT_E4M3;
}

/* ---- what fits and what doesn't ---- */

enum { LIST_BYTES = 320, ABOUT_BYTES = 160 };

typedef struct fit {
    const source *from;
    bool *used; /* by tensor of the files */
    int64_t n_quantized;
    oct_tensor_list missing, surplus, misshapen, unreadable;
} fit;

/* " (3072, 1024)", of as many dimensions as a message has room for. */
static void put_shape(char *about, int n_dims, const int64_t *shape) {
    enum { MOST = 12 };
    size_t used = strlen(about);
    for (int i = 0; i < n_dims && i < MOST && used < ABOUT_BYTES; i++)
        used += (size_t)snprintf(about + used, ABOUT_BYTES - used, "%s%" PRId64, i ? ", " : " (",
                                 shape[i]);
    if (used < ABOUT_BYTES)
        snprintf(about + used, ABOUT_BYTES - used, "%s",
                 n_dims == 0     ? " ()"
                 : n_dims > MOST ? ", ...)"
                                 : ")");
}

static void list_tensor(oct_tensor_list *l, const char *name, int n_dims, const int64_t *shape) {
    char about[ABOUT_BYTES] = "";
    put_shape(about, n_dims, shape);
    oct_tensor_list_add(l, name, about);
}

static void list_misshapen(oct_tensor_list *l, const char *name, int n_dims, const int64_t *shape,
                           const oct_safetensors_tensor *got) {
    char about[ABOUT_BYTES] = ": expected";
    put_shape(about, n_dims, shape);
    size_t used = strlen(about);
    snprintf(about + used, sizeof about - used, ", got");
    put_shape(about, got->n_dims, got->shape);
    oct_tensor_list_add(l, name, about);
}

static void list_unreadable(oct_tensor_list *l, const char *name, const char *expected,
                            const oct_safetensors_tensor *got) {
    char about[ABOUT_BYTES];
    snprintf(about, sizeof about, ": expected %s, got %.8s", expected,
             oct_show(got->dtype_name).text);
    oct_tensor_list_add(l, name, about);
}

static bool same_shape(const oct_safetensors_tensor *tensor, int n_dims, const int64_t *shape) {
    if (tensor->n_dims != n_dims)
        return false;
    for (int i = 0; i < n_dims; i++)
        if (tensor->shape[i] != shape[i])
            return false;
    return true;
}

/* The tensor of that name and shape, marked as used; else NULL, and listed. */
static const oct_safetensors_tensor *find_fitting(fit *f, const char *name, int n_dims,
                                                  const int64_t *shape) {
    int64_t index = oct_hf_model_index(f->from->hf, name);
    if (index < 0) {
        list_tensor(&f->missing, name, n_dims, shape);
        return NULL;
    }
    const oct_safetensors_tensor *tensor = oct_hf_model_get(f->from->hf, index);
    f->used[index] = true;
    if (same_shape(tensor, n_dims, shape))
        return tensor;
    list_misshapen(&f->misshapen, name, n_dims, shape, tensor);
    return NULL;
}

static void fit_scale(fit *f, const wanted *w) {
    char name[OCT_HF_MODULE_NAME_SIZE];
    const source *from = f->from;
    bool blocks = from->quantization == OCT_HF_FP8_BLOCKS;
    const int64_t shape[2] = {oct_ceil_div(w->shape[0], from->block_rows),
                              oct_ceil_div(w->shape[1], from->block_cols)};
    scale_name(from, w->name, name);
    const oct_safetensors_tensor *scale = find_fitting(f, name, 2, shape);
    if (scale && !oct_hf_is_scale(scale->dtype, !blocks))
        list_unreadable(&f->unreadable, name,
                        blocks ? "F32, BF16, F16 or F8_E8M0" : "U8 or F8_E8M0", scale);
    f->n_quantized++;
}

static void fit_tensor(fit *f, const wanted *w) {
    const oct_safetensors_tensor *tensor = find_fitting(f, w->name, w->n_dims, w->shape);
    if (!tensor || oct_hf_is_high_precision(tensor->dtype))
        return;
    if (!is_quantized(tensor) || w->n_dims != 2)
        list_unreadable(&f->unreadable, w->name, "F32, BF16 or F16", tensor);
    else if (f->from->quantization == OCT_HF_HIGH_PRECISION)
        list_unreadable(&f->unreadable, w->name,
                        "F32, BF16 or F16, as config.json has no quantization_config", tensor);
    else
        fit_scale(f, w);
}

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* The number of the layer that a tensor is of, -1: none. */
static int64_t layer_of(const char *name) {
    static const char prefix[] = "model.layers.";
    size_t n = sizeof prefix - 1;
    if (strncmp(name, prefix, n) != 0 || !isdigit((unsigned char)name[n]))
        return -1;
    return strtoll(name + n, NULL, 10);
}

/* Whether the table and a tied head's own copy of it are the same bytes. */
static bool is_tied_copy(const source *from, const oct_safetensors_tensor *tensor) {
    const oct_safetensors_tensor *table = oct_hf_model_find(from->hf, "model.embed_tokens.weight");
    return from->args->enable_weight_tying && strcmp(tensor->name, "lm_head.weight") == 0 &&
           table && table->dtype == tensor->dtype && table->n_bytes == tensor->n_bytes &&
           memcmp(table->data, tensor->data, table->n_bytes) == 0;
}

/* Lists what nobody wanted; *n_further counts tensors of layers behind the model. */
static void fit_rest(fit *f, int64_t *n_further) {
    const source *from = f->from;
    int64_t n_layers = from->args->n_layers;
    *n_further = 0;
    for (int64_t i = 0; i < oct_hf_model_count(from->hf); i++) {
        const oct_safetensors_tensor *tensor = oct_hf_model_get(from->hf, i);
        int64_t layer = layer_of(tensor->name);
        bool further = layer >= n_layers && layer < n_layers + from->n_further;
        if (f->used[i] || ends_with(tensor->name, ".rotary_emb.inv_freq"))
            continue;
        if (further)
            ++*n_further;
        else if (!is_tied_copy(from, tensor))
            list_tensor(&f->surplus, tensor->name, tensor->n_dims, tensor->shape);
    }
}

static oct_status report(const fit *f, oct_hf_weights weights, oct_error *err) {
    const char *folder = f->from->folder;
    oct_strbuf all = {0};
    oct_status status = OCT_OK;
    oct_tensor_list_put(&f->missing, "missing", LIST_BYTES, &all);
    oct_tensor_list_put(&f->surplus, "surplus", LIST_BYTES, &all);
    oct_tensor_list_put(&f->misshapen, "of another shape", LIST_BYTES, &all);
    oct_tensor_list_put(&f->unreadable, "of another type", LIST_BYTES, &all);
    if (all.failed)
        status = oct_fail_memory(err);
    else if (all.length)
        status = oct_fail(err, OCT_INVALID, "%s: the tensors aren't those of the model: %s", folder,
                          all.text);
    else if (f->n_quantized > 0 && weights == OCT_HF_HIGH_WEIGHTS)
        status = oct_fail(err, OCT_INVALID,
                          "%s: %" PRId64 " weights are in 8 bits; expected "
                          "checkpoint.initial_load_in_hf_quantized = true, which dequantizes them",
                          folder, f->n_quantized);
    else if (f->n_quantized == 0 && weights == OCT_HF_QUANTIZED_WEIGHTS)
        status = oct_fail(err, OCT_INVALID,
                          "%s: expected weights in 8 bits, as "
                          "checkpoint.initial_load_in_hf_quantized says; none is",
                          folder);
    else if (f->n_quantized == 0 && f->from->has_config &&
             f->from->quantization != OCT_HF_HIGH_PRECISION)
        status = oct_fail(err, OCT_INVALID,
                          "%s: quantization_config: expected weights in F8_E4M3; none is", folder);
    oct_strbuf_free(&all);
    return status;
}

/* ---- what is wanted ---- */

typedef void (*visitor)(fit *f, const wanted *w);

/* Calls `visit` for the tensors of one parameter. */
static oct_status visit_param(fit *f, const oct_param *param, visitor visit, oct_error *err) {
    oct_model_family family = f->from->args->family;
    bool experts = param->n_dims == 3;
    wanted w = {.n_dims = experts ? 2 : param->n_dims,
                .shape = experts ? param->shape + 1 : param->shape};
    for (int64_t e = 0; e < (experts ? param->shape[0] : 1); e++) {
        bool named = experts ? oct_hf_expert_name(family, param->name, e, w.name)
                             : oct_hf_name(family, param->name, w.name);
        if (!named)
            return oct_fail(err, OCT_INVALID, "%s: %s has no name there", f->from->folder,
                            param->name);
        visit(f, &w);
    }
    return OCT_OK;
}

/* The name there of a layer's router bias, if the family has one. */
static bool bias_name(const source *from, const oct_moe *moe, char out[OCT_HF_MODULE_NAME_SIZE]) {
    char ours[OCT_MOE_BIAS_NAME_SIZE];
    oct_moe_bias_name(moe, ours);
    return oct_hf_name(from->args->family, ours, out);
}

/* Choices by softmax know no bias, so that files may have none. */
static void visit_biases(fit *f, const oct_model *model, visitor visit) {
    const oct_model_args *args = f->from->args;
    for (int64_t i = 0; i < args->n_layers; i++) {
        wanted w = {.n_dims = 1, .shape = &args->num_experts};
        const oct_moe *moe = oct_model_moe(model, i);
        if (!moe || !bias_name(f->from, moe, w.name))
            continue;
        if (args->score_func == OCT_SCORE_SIGMOID || oct_hf_model_find(f->from->hf, w.name))
            visit(f, &w);
    }
}

static oct_status check_tensors(const source *from, const oct_model *model, oct_hf_weights weights,
                                oct_error *err) {
    int64_t n, n_further;
    oct_param *const *params = oct_model_params(model, &n);
    oct_status status = OCT_OK;
    fit f = {.from = from,
             .used = oct_calloc_array((size_t)oct_hf_model_count(from->hf) + 1, sizeof(bool))};
    if (!f.used)
        return oct_fail_memory(err);
    for (int64_t i = 0; i < n && !status; i++)
        status = visit_param(&f, params[i], fit_tensor, err);
    visit_biases(&f, model, fit_tensor);
    fit_rest(&f, &n_further);
    if (!status)
        status = report(&f, weights, err);
    if (!status && n_further > 0)
        oct_log_info("%s: %" PRId64 " tensors of the %" PRId64
                     " layers that predict further tokens aren't used",
                     from->folder, n_further, from->n_further);
    oct_free(f.used);
    oct_tensor_list_free(&f.missing);
    oct_tensor_list_free(&f.surplus);
    oct_tensor_list_free(&f.misshapen);
    oct_tensor_list_free(&f.unreadable);
    return status;
}

/* ---- reading ---- */

/* The tensor fits: check_tensors has seen it. */
static void read_tensor(const source *from, const char *name, int64_t n, float *to) {
    char scale[OCT_HF_MODULE_NAME_SIZE];
    const oct_safetensors_tensor *tensor = oct_hf_model_find(from->hf, name);
    if (!is_quantized(tensor)) {
        oct_hf_decode(tensor, n, to);
        return;
    }
    scale_name(from, name, scale);
    oct_hf_dequantize(tensor, oct_hf_model_find(from->hf, scale), from->block_rows,
                      from->block_cols, to);
}

static oct_status permute(const oct_model_args *args, const oct_param *param) {
    int64_t heads = oct_hf_permuted_heads(args, param->name);
    if (heads == 0)
        return OCT_OK;
    size_t n = (size_t)oct_param_elements(param);
    float *copy = oct_malloc_array(n, sizeof *copy);
    if (!copy)
        return OCT_NO_MEMORY;
    memcpy(copy, param->value, n * sizeof *copy);
    size_t row_bytes = n / (size_t)param->shape[0] * sizeof *copy;
    oct_hf_permute_rows(OCT_FROM_HF, heads, param->shape[0] / heads, row_bytes, copy, param->value);
    oct_free(copy);
    return OCT_OK;
}

static oct_status read_param(const void *context, oct_param *param, oct_error *err) {
    const source *from = context;
    char name[OCT_HF_MODULE_NAME_SIZE];
    int64_t slices = param->n_dims == 3 ? param->shape[0] : 1;
    int64_t n = oct_param_elements(param) / slices;
    for (int64_t e = 0; e < slices; e++) {
        if (param->n_dims == 3)
            oct_hf_expert_name(from->args->family, param->name, e, name);
        else
            oct_hf_name(from->args->family, param->name, name);
        read_tensor(from, name, n, param->value + e * n);
    }
    return permute(from->args, param) == OCT_OK ? OCT_OK : oct_fail_memory(err);
}

/* Models without start at zero. */
static oct_status read_bias(const void *context, const char *ours, int64_t n, float *values,
                            oct_error *err) {
    const source *from = context;
    char name[OCT_HF_MODULE_NAME_SIZE];
    (void)err;
    if (oct_hf_name(from->args->family, ours, name) && oct_hf_model_find(from->hf, name))
        read_tensor(from, name, n, values);
    return OCT_OK;
}

/* Fills in what config.json says of the tensors. */
static oct_status read_config(source *from, oct_error *err) {
    oct_hf_config config;
    char *path = oct_path_join(from->folder, "config.json");
    if (!path)
        return oct_fail_memory(err);
    bool exists = oct_path_exists(path);
    oct_free(path);
    if (!exists) {
        from->quantization = OCT_HF_FP8_BLOCKS;
        from->block_rows = from->block_cols = 128;
        return OCT_OK;
    }
    oct_status status = oct_hf_config_read(from->folder, &config, err);
    if (status)
        return status;
    from->has_config = true;
    from->quantization = config.quantization;
    from->block_rows = config.block_rows;
    from->block_cols = config.block_cols;
    from->n_further = config.num_nextn_predict_layers;
    return OCT_OK;
}

/* What transformers makes of a model in another way than this one's arguments say. */
static void warn_of_transformers(const source *from) {
    if (from->args->family == OCT_MODEL_DEEPSEEK_V3 && from->args->num_experts > 0 &&
        from->args->score_func != OCT_SCORE_SIGMOID)
        oct_log_warning(
            "%s: scoring_func is softmax, and experts are chosen so; transformers' "
            "DeepSeek-V3 has the sigmoid alone, whatever it says: its logits are others",
            from->folder);
}

/* Opens the folder for a model that it fits. The caller closes from->hf whatever the status. */
static oct_status open_source(const char *folder, oct_hf_weights weights, const oct_model *model,
                              source *from, oct_error *err) {
    oct_hf_model *hf = NULL;
    *from = (source){.folder = folder, .args = oct_model_get_args(model)};
    oct_status status = read_config(from, err);
    if (!status)
        status = oct_hf_model_open(folder, &hf, err);
    from->hf = hf;
    if (!status)
        status = check_tensors(from, model, weights, err);
    if (!status)
        warn_of_transformers(from);
    return status;
}

oct_status oct_setup_check_hf_tensors(const char *folder, const oct_model *model, oct_error *err) {
    source from;
    oct_status status = open_source(folder, OCT_HF_ANY_WEIGHTS, model, &from, err);
    oct_hf_model_close((oct_hf_model *)(uintptr_t)from.hf);
    return status;
}

oct_status oct_setup_parameters_from_hf(const char *folder, oct_hf_weights weights,
                                        oct_model *model, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    source from;
    oct_status status = open_source(folder, weights, model, &from, err);
    for (int64_t i = 0; i < n && !status; i++)
        status = oct_local_read(params[i], read_param, &from, err);
    if (!status)
        status = oct_local_read_biases(model, read_bias, &from, err);
    oct_hf_model_close((oct_hf_model *)(uintptr_t)from.hf);
    if (!status)
        oct_model_changed(model);
    return status;
}

static oct_status visit_values(const source *from, const oct_param *param, oct_hf_visit visit,
                               void *user, oct_error *err) {
    oct_param copy = *param;
    copy.value = oct_malloc_array((size_t)oct_param_elements(param), sizeof *copy.value);
    oct_status status = copy.value ? read_param(from, &copy, err) : oct_fail_memory(err);
    if (!status)
        status = visit(user, param, -1, copy.value, err);
    oct_free(copy.value);
    return status;
}

static oct_status visit_bias(const source *from, const oct_moe *moe, int64_t layer,
                             oct_hf_visit visit, void *user, oct_error *err) {
    char name[OCT_HF_MODULE_NAME_SIZE];
    int64_t n = from->args->num_experts;
    float *values = oct_calloc_array((size_t)n, sizeof *values);
    if (!values)
        return oct_fail_memory(err);
    if (bias_name(from, moe, name) && oct_hf_model_find(from->hf, name))
        read_tensor(from, name, n, values);
    oct_status status = visit(user, NULL, layer, values, err);
    oct_free(values);
    return status;
}

oct_status oct_setup_visit_hf(const char *folder, const oct_model *model, oct_hf_visit visit,
                              void *user, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    source from;
    oct_status status = open_source(folder, OCT_HF_ANY_WEIGHTS, model, &from, err);
    for (int64_t i = 0; i < n && !status; i++)
        status = visit_values(&from, params[i], visit, user, err);
    for (int64_t i = 0; i < from.args->n_layers && !status; i++)
        if (oct_model_moe(model, i))
            status = visit_bias(&from, oct_model_moe(model, i), i, visit, user, err);
    oct_hf_model_close((oct_hf_model *)(uintptr_t)from.hf);
    return status;
}
