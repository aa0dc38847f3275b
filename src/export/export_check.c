/* An export as octet itself reads it: see export_check.h. */
#include "export/export_check.h"

#include <inttypes.h>
#include <octet/format.h>

#include "format/f16.h"
#include "format/fp32.h"
#include "format/fp8.h"
#include "job/hf_model.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "nn/weights.h"

typedef struct checker {
    const oct_export *e;
    const char *folder;
    oct_weights *weights; /* of training's products */
} checker;

static bool same_bits(float a, float b) {
    return oct_f32_bits(a) == oct_f32_bits(b);
}

/* Whether it is what `value` became in one of the dtypes of tensors in high precision. */
static bool is_rounded(float got, float value, bool exact) {
    return same_bits(got, value) ||
           (!exact && (same_bits(got, oct_bf16_decode(oct_bf16_encode(value))) ||
                       same_bits(got, oct_f16_decode(oct_f16_encode(value)))));
}

static oct_status fail_at(const checker *c, const char *name, int64_t i, oct_error *err) {
    return oct_fail(err, OCT_FAILED,
                    "%s: element %" PRId64 " of %s is read back as another than was written",
                    c->folder, i, name);
}

/* The recipe in which an export may hold a parameter; NULL: in none. */
static const oct_recipe *recipe_of(const oct_export *e, const oct_param *param) {
    for (int64_t r = 0; r < e->plan->n_rows && e->format != OCT_EXPORT_HF; r++) {
        const oct_plan_row *row = &e->plan->rows[r];
        const oct_linear *linear = oct_linear_from(row->module);
        const oct_experts *experts = oct_experts_from(row->module);
        if (linear && linear->weight == param)
            return row->recipe;
        for (int i = 0; experts && i < OCT_N_EXPERT_WEIGHTS; i++)
            if (experts->w[i] == param)
                return row->recipe;
    }
    return NULL;
}

static float meant(const oct_qmatrix *q, int64_t row, int64_t col) {
    const uint8_t *scales = q->scales;
    return oct_fp8_value(q->format, q->codes[row * q->cols + col]) *
           oct_e8m0_decode(scales[row / q->block_rows * q->ld_scales + col / OCT_MX_BLOCK]);
}

/* Against what training's products have. */
static oct_status check_quantized(const checker *c, const oct_param *param,
                                  const oct_recipe *recipe, const float *values, oct_error *err) {
    int64_t slices = param->n_dims == 3 ? param->shape[0] : 1;
    int64_t n = oct_param_elements(param) / slices;
    for (int64_t x = 0; x < slices; x++) {
        oct_quantized q;
        if (oct_weights_quantized(c->weights, param, x, recipe, OCT_ALONG_1, NULL, &q))
            return oct_fail_memory(err);
        const oct_qmatrix *m = &q.along[1];
        for (int64_t i = 0; i < n; i++)
            if (values[x * n + i] != meant(m, i / m->cols, i % m->cols))
                return fail_at(c, param->name, x * n + i, err);
    }
    return OCT_OK;
}

static oct_status check_values(void *user, const oct_param *param, int64_t layer,
                               const float *values, oct_error *err) {
    const checker *c = user;
    const oct_recipe *recipe = param ? recipe_of(c->e, param) : NULL;
    const oct_moe *moe = param ? NULL : oct_model_moe(c->e->model, layer);
    const float *ours = param ? param->value : moe->expert_bias;
    int64_t n = param ? oct_param_elements(param) : oct_model_get_args(c->e->model)->num_experts;
    bool exact = c->e->dtype == OCT_F32 && !c->e->like;
    if (recipe && param->shape[param->n_dims - 1] % OCT_MX_BLOCK == 0)
        return check_quantized(c, param, recipe, values, err);
    for (int64_t i = 0; i < n; i++)
        if (!is_rounded(values[i], ours[i], exact))
            return fail_at(c, param ? param->name : moe->base.name, i, err);
    return OCT_OK;
}

oct_status oct_export_check_folder(const oct_export *e, const char *folder, oct_error *err) {
    checker c = {.e = e, .folder = folder};
    oct_status status = oct_weights_create(&c.weights)
                            ? oct_fail_memory(err)
                            : oct_setup_visit_hf(folder, e->model, check_values, &c, err);
    oct_weights_destroy(c.weights);
    return status;
}
