/* A model's parameters from a folder of torch.distributed.checkpoint: see dcp_model.h. */
#include "job/dcp_model.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/log.h"
#include "file/json.h"
#include "hf/hf_decode.h"
#include "job/local_part.h"
#include "tensors/dcp.h"

typedef struct source {
    const char *folder;
    const oct_dcp *dcp;
} source;

static oct_status find(const source *from, const char *name, int n_dims, const int64_t *shape,
                       const oct_dcp_tensor **found, oct_error *err) {
    const oct_dcp_tensor *t = *found = oct_dcp_find(from->dcp, name);
    if (!t)
        return oct_fail(err, OCT_INVALID, "%s: %s is missing", from->folder, name);
    bool same = t->n_dims == n_dims;
    for (int d = 0; d < n_dims && same; d++)
        same = t->shape[d] == shape[d];
    return same ? OCT_OK
                : oct_fail(err, OCT_INVALID, "%s: %s has another shape than the job's model",
                           from->folder, name);
}

static oct_status read(const source *from, const char *name, int n_dims, const int64_t *shape,
                       float *to, oct_error *err) {
    const oct_dcp_tensor *t;
    int64_t n = 1;
    oct_status status = find(from, name, n_dims, shape, &t, err);
    if (status)
        return status;
    for (int d = 0; d < n_dims; d++)
        n *= shape[d];
    void *raw = oct_malloc_array((size_t)n, sizeof *to);
    status = raw ? oct_dcp_read(from->dcp, t, raw, err) : oct_fail_memory(err);
    if (!status)
        oct_hf_decode(&(oct_safetensors_tensor){.dtype = t->dtype, .data = raw}, n, to);
    oct_free(raw);
    return status;
}

static oct_status read_param(const void *from, oct_param *param, oct_error *err) {
    return read(from, param->name, param->n_dims, param->shape, param->value, err);
}

/* torchtitan has none without load_balance_coeff. */
static oct_status read_bias(const void *context, const char *name, int64_t n, float *values,
                            oct_error *err) {
    const source *from = context;
    return oct_dcp_find(from->dcp, name) ? read(from, name, 1, &n, values, err) : OCT_OK;
}

/* ---- what is left over ---- */

static bool is_bias(const oct_model *model, const char *name) {
    for (int64_t i = 0; i < oct_model_get_args(model)->n_layers; i++) {
        const oct_moe *moe = oct_model_moe(model, i);
        char own[OCT_MOE_BIAS_NAME_SIZE] = "";
        if (moe)
            oct_moe_bias_name(moe, own);
        if (moe && strcmp(name, own) == 0)
            return true;
    }
    return false;
}

static bool is_of_a_run(const char *name) {
    static const char *const starts[] = {"optimizer", "lr_scheduler", "dataloader", "train_state"};
    for (size_t i = 0; i < OCT_COUNT(starts); i++) {
        size_t n = strlen(starts[i]);
        if (strncmp(name, starts[i], n) == 0 && (name[n] == '.' || !name[n]))
            return true;
    }
    return false;
}

static oct_status check_rest(const source *from, const oct_model *model, oct_error *err) {
    bool tied = oct_model_get_args(model)->enable_weight_tying;
    int64_t n_left = 0;
    for (size_t i = 0; i < oct_dcp_count(from->dcp); i++) {
        const char *name = oct_dcp_get(from->dcp, i)->name;
        if (oct_model_find_param(model, name) || is_bias(model, name) ||
            (tied && strcmp(name, "output.weight") == 0))
            continue;
        if (!is_of_a_run(name))
            return oct_fail(err, OCT_INVALID, "%s: the job's model has no %s", from->folder,
                            oct_show(name).text);
        n_left++;
    }
    if (n_left > 0)
        oct_log_info("%s: %" PRId64 " tensors of the optimizer and of the run aren't used",
                     from->folder, n_left);
    return OCT_OK;
}

oct_status oct_setup_parameters_from_dcp(const char *folder, oct_model *model, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_dcp *dcp = NULL;
    oct_status status = oct_dcp_open(folder, &dcp, err);
    const source from = {folder, dcp};
    if (!status)
        status = check_rest(&from, model, err);
    for (int64_t i = 0; i < n && !status; i++)
        status = oct_local_read(params[i], read_param, &from, err);
    if (!status)
        status = oct_local_read_biases(model, read_bias, &from, err);
    oct_dcp_close(dcp);
    if (!status)
        oct_model_changed(model);
    return status;
}
