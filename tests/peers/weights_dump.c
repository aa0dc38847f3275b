/* usage: weights_dump CHECKPOINT OUT
 *
 * Writes to OUT, a safetensors file in fp32 under octet's names, what the products of training
 * multiply by: each weight that its plan has in 8 bits, as its codes and scales mean it.
 * export_peers.py compares them with what other programs make of an export. */
#include <octet/format.h>
#include <stdio.h>

#include "base/alloc.h"
#include "format/fp8.h"
#include "job/conversion.h"
#include "job/model_source.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "nn/weights.h"
#include "tensors/safetensors.h"

typedef struct dump {
    oct_safetensors_writer *writer;
    oct_weights *weights;
    float *values[4096];
    int n;
} dump;

static void decode(const oct_qmatrix *q, float *to) {
    const uint8_t *scales = q->scales;
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t c = 0; c < q->cols; c++)
            to[r * q->cols + c] =
                oct_fp8_value(q->format, q->codes[r * q->cols + c]) *
                oct_e8m0_decode(scales[r / q->block_rows * q->ld_scales + c / OCT_MX_BLOCK]);
}

static oct_status add(dump *d, const oct_param *param, const oct_recipe *recipe, oct_error *err) {
    int64_t slices = param->n_dims == 3 ? param->shape[0] : 1, n = oct_param_elements(param);
    float *values = d->values[d->n++] = oct_malloc_array((size_t)n, sizeof *values);
    oct_tensor t = {.dtype = OCT_F32, .n_dims = param->n_dims, .data = values};
    for (int k = 0; k < param->n_dims; k++)
        t.shape[k] = param->shape[k];
    for (int64_t e = 0; e < slices; e++) {
        oct_quantized q;
        oct_status status =
            oct_weights_quantized(d->weights, param, e, recipe, OCT_ALONG_1, NULL, &q);
        if (status)
            return oct_fail(err, status, "%s can't be quantized", param->name);
        decode(&q.along[1], values + e * (n / slices));
    }
    oct_safetensors_item item = oct_safetensors_item_of(param->name, &t);
    return oct_safetensors_writer_add(d->writer, &item, err);
}

static oct_status dump_all(dump *d, const oct_plan *plan, oct_error *err) {
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < plan->n_rows && !status; i++) {
        const oct_plan_row *row = &plan->rows[i];
        const oct_linear *linear = oct_linear_from(row->module);
        const oct_experts *experts = oct_experts_from(row->module);
        if (row->recipe && linear)
            status = add(d, linear->weight, row->recipe, err);
        for (int w = 0; row->recipe && experts && w < OCT_N_EXPERT_WEIGHTS && !status; w++)
            status = add(d, experts->w[w], row->recipe, err);
    }
    return status ? status : oct_safetensors_writer_commit(d->writer, NULL, err);
}

int main(int argc, char **argv) {
    static dump d;
    oct_error err = {0};
    oct_model_source *source = NULL;
    oct_model *model = NULL;
    oct_conversion *conversion = NULL;
    const oct_model_use use = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: weights_dump CHECKPOINT OUT\n");
        return 2;
    }
    oct_status status = oct_model_source_open(argv[1], &use, &source, &err);
    if (!status)
        status = oct_model_create(&source->args, OCT_PARAMS_ALLOCATED, &model, &err);
    if (!status)
        status = oct_model_source_read(source, model, &err);
    if (!status)
        status = oct_conversion_create(&source->job, model, &conversion, &err);
    if (!status)
        status = oct_safetensors_writer_create(argv[2], &d.writer, &err);
    if (!status && !(status = oct_weights_create(&d.weights)))
        status = dump_all(&d, oct_conversion_plan(conversion), &err);
    if (status)
        fprintf(stderr, "weights_dump: %s\n", err.message);
    oct_safetensors_writer_destroy(d.writer);
    for (int i = 0; i < d.n; i++)
        oct_free(d.values[i]);
    oct_weights_destroy(d.weights);
    oct_model_destroy(model);
    oct_conversion_destroy(conversion);
    oct_model_source_close(source);
    return oct_status_exit_code(status);
}
