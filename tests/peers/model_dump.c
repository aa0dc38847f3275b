/* usage: model_dump FOLDER MODEL FLAVOR KEY=VALUE...
 *
 * Builds the flavor of MODEL with the dimensions given, draws weights, tokens and targets, takes
 * one training step in fp32 and writes FOLDER/weights.safetensors (torchtitan's names),
 * FOLDER/hf.safetensors (Hugging Face's names and layout) and FOLDER/step.safetensors (tokens,
 * targets, loss, and "grad." + name of every gradient). Routers get biases that are not zero; of
 * each, the step file has "tokens." + name, the tokens of each expert, and "moved." + name, the
 * bias after the step. With attn_mask_type=block_causal some tokens end documents. model_torch.py
 * reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/rng.h"
#include "model/hf_names.h"
#include "model/model.h"
#include "tensors/safetensors.h"

enum { B = 2, S = 33, END = 3 };

/* With attn_mask_type block_causal: where END stands in the first sequence, so that documents begin
 * and end at its first and last place and behind each other; the second is in one long document. */
static const int ends[] = {0, 9, 10, 20, S - 1};

static oct_arg read_value(const char *text) {
    char *end;
    oct_arg value = {.type = OCT_ARG_INT, .i = strtoll(text, &end, 10)};
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return (oct_arg){.type = OCT_ARG_BOOL, .b = text[0] == 't'};
    if (*end == '.')
        return (oct_arg){.type = OCT_ARG_DOUBLE, .d = strtod(text, NULL)};
    if (*end)
        return (oct_arg){.type = OCT_ARG_TEXT, .text = text};
    return value;
}

static oct_status read_args(int argc, char **argv, oct_model_args *args, oct_error *err) {
    oct_status status = oct_model_args_flavor(argv[2], argv[3], args, err);
    for (int i = 4; !status && i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            return oct_fail(err, OCT_INVALID, "%s: expected KEY=VALUE", argv[i]);
        *equals = '\0';
        status = oct_model_args_set(args, argv[i], read_value(equals + 1), err);
    }
    return status;
}

/* Writes and frees the writer. */
static oct_status commit(oct_safetensors_writer *writer, oct_status status, oct_error *err) {
    if (!status)
        status = oct_safetensors_writer_commit(writer, NULL, err);
    oct_safetensors_writer_destroy(writer);
    return status;
}

static oct_status add(oct_safetensors_writer *writer, const char *name, const oct_param *param,
                      const float *data, oct_error *err) {
    oct_safetensors_item item = {
        .name = name, .dtype = OCT_F32, .n_dims = param->n_dims, .data = data};
    memcpy(item.shape, param->shape, sizeof param->shape);
    return oct_safetensors_writer_add(writer, &item, err);
}

/* Of each layer with experts the buffer as it is now, under `prefix` and its name: copies in
 * `keep`, which lives until commit. */
static oct_status add_buffers(oct_safetensors_writer *writer, const oct_model *model,
                              const char *prefix, oct_arena *keep, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(model);
    oct_status status = OCT_OK;
    for (int64_t i = 0; !status && i < args->n_layers; i++) {
        const oct_moe *moe = oct_model_moe(model, i);
        size_t size = strlen(prefix) + 96;
        char *name = oct_arena_alloc(keep, size);
        if (!name)
            return oct_fail_memory(err);
        if (!moe)
            continue;
        bool counts = strcmp(prefix, "tokens.") == 0;
        size_t n_bytes = (size_t)args->num_experts * (counts ? sizeof(int64_t) : sizeof(float));
        void *copy = oct_arena_alloc(keep, n_bytes);
        if (!copy)
            return oct_fail_memory(err);
        memcpy(copy, counts ? (const void *)moe->tokens_per_expert : moe->expert_bias, n_bytes);
        snprintf(name, size, "%s%s.expert_bias", prefix, moe->base.name);
        const oct_safetensors_item item = {.name = name,
                                           .dtype = counts ? OCT_I64 : OCT_F32,
                                           .n_dims = 1,
                                           .shape = {args->num_experts},
                                           .data = copy};
        status = oct_safetensors_writer_add(writer, &item, err);
    }
    return status;
}

static oct_status write_weights(const oct_model *model, const char *path, oct_error *err) {
    oct_safetensors_writer *writer;
    oct_status status = oct_safetensors_writer_create(path, &writer, err);
    if (status)
        return status;
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_arena *keep = oct_arena_create();
    if (!keep)
        status = oct_fail_memory(err);
    for (int64_t i = 0; !status && i < n; i++)
        status = add(writer, params[i]->name, params[i], params[i]->value, err);
    if (!status)
        status = add_buffers(writer, model, "", keep, err);
    status = commit(writer, status, err);
    oct_arena_destroy(keep);
    return status;
}

/* Experts: one tensor each there. */
static oct_status add_hf_experts(oct_safetensors_writer *writer, const oct_model *model,
                                 const oct_param *param, oct_arena *keep, oct_error *err) {
    oct_status status = OCT_OK;
    for (int64_t e = 0; !status && e < param->shape[0]; e++) {
        char *name = oct_arena_alloc(keep, OCT_HF_MODULE_NAME_SIZE);
        if (!name)
            return oct_fail_memory(err);
        if (!oct_hf_expert_name(oct_model_get_args(model)->family, param->name, e, name))
            return oct_fail(err, OCT_FAILED, "%s: has no Hugging Face name", param->name);
        const oct_safetensors_item item = {.name = name,
                                           .dtype = OCT_F32,
                                           .n_dims = 2,
                                           .shape = {param->shape[1], param->shape[2]},
                                           .data = param->value +
                                                   e * param->shape[1] * param->shape[2]};
        status = oct_safetensors_writer_add(writer, &item, err);
    }
    return status;
}

/* Names and permuted copies must live until commit: *keep is an arena of theirs. */
static oct_status add_hf(oct_safetensors_writer *writer, const oct_model *model,
                         const oct_param *param, oct_arena *keep, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(model);
    if (param->n_dims == 3)
        return add_hf_experts(writer, model, param, keep, err);
    char *name = oct_arena_alloc(keep, OCT_HF_MODULE_NAME_SIZE);
    if (!name)
        return oct_fail_memory(err);
    if (!oct_hf_name(args->family, param->name, name))
        return oct_fail(err, OCT_FAILED, "%s: has no Hugging Face name", param->name);
    int64_t n_heads = oct_hf_permuted_heads(args, param->name);
    const float *data = param->value;
    if (n_heads) {
        float *copy = oct_arena_alloc_array(keep, (size_t)oct_param_elements(param), sizeof *copy);
        if (!copy)
            return oct_fail_memory(err);
        oct_hf_permute_rows(OCT_TO_HF, n_heads, args->head_dim,
                            (size_t)param->shape[1] * sizeof *copy, data, copy);
        data = copy;
    }
    return add(writer, name, param, data, err);
}

static oct_status write_hf(const oct_model *model, const char *path, oct_error *err) {
    oct_safetensors_writer *writer;
    oct_status status = oct_safetensors_writer_create(path, &writer, err);
    if (status)
        return status;
    oct_arena *keep = oct_arena_create();
    if (!keep)
        status = oct_fail_memory(err);
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; !status && i < n; i++)
        status = add_hf(writer, model, params[i], keep, err);
    status = commit(writer, status, err);
    oct_arena_destroy(keep);
    return status;
}

static oct_status write_step(oct_model *model, const char *path, const int32_t *tokens,
                             const int32_t *targets, double loss, oct_error *err) {
    oct_safetensors_writer *writer;
    oct_status status = oct_safetensors_writer_create(path, &writer, err);
    if (status)
        return status;
    oct_arena *keep = oct_arena_create();
    if (!keep)
        status = oct_fail_memory(err);
    const oct_safetensors_item items[] = {
        {.name = "tokens", .dtype = OCT_I32, .n_dims = 2, .shape = {B, S}, .data = tokens},
        {.name = "targets", .dtype = OCT_I32, .n_dims = 2, .shape = {B, S}, .data = targets},
        {.name = "loss", .dtype = OCT_F64, .data = &loss}};
    for (size_t i = 0; !status && i < OCT_COUNT(items); i++)
        status = oct_safetensors_writer_add(writer, &items[i], err);
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; !status && i < n; i++) {
        size_t size = strlen(params[i]->name) + sizeof "grad.";
        char *name = oct_arena_alloc(keep, size);
        if (!name) {
            status = oct_fail_memory(err);
            break;
        }
        snprintf(name, size, "grad.%s", params[i]->name);
        status = add(writer, name, params[i], params[i]->grad, err);
    }
    if (!status)
        status = add_buffers(writer, model, "tokens.", keep, err);
    oct_model_update_routing(model);
    if (!status)
        status = add_buffers(writer, model, "moved.", keep, err);
    status = commit(writer, status, err);
    oct_arena_destroy(keep);
    return status;
}

static oct_status train(oct_model *model, const int32_t *tokens, const int32_t *targets,
                        double *loss) {
    oct_weights *weights = NULL;
    oct_step *step = NULL;
    double sum;
    int64_t n = 0;
    oct_status status = oct_weights_create(&weights);
    if (!status && !(status = oct_step_create(weights, OCT_F32, &step)) &&
        !(status = oct_model_enable_training(model)))
        status = oct_model_train(model, step, B, S, tokens, targets, 1.0f / (B * S - B), &sum, &n);
    if (!status)
        *loss = sum / (double)n;
    oct_step_destroy(step);
    oct_weights_destroy(weights);
    return status;
}

static oct_status dump(oct_model *model, const char *folder, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(model);
    int32_t tokens[B * S], targets[B * S];
    for (uint64_t i = 0; i < B * S; i++)
        tokens[i] = (int32_t)oct_rng_below(2, 1, i, (uint64_t)args->vocab_size);
    if (args->attn_mask_type == OCT_ATTN_BLOCK_CAUSAL) {
        for (int i = 0; i < B * S; i++)
            tokens[i] += tokens[i] == END;
        for (size_t i = 0; i < OCT_COUNT(ends); i++)
            tokens[ends[i]] = END;
        oct_model_set_document_end(model, END);
    }
    for (int i = 0; i < B * S; i++)
        targets[i] = i % S == S - 1 ? OCT_IGNORE_LABEL : tokens[i + 1];
    oct_model_init(model, 1);
    for (int64_t i = 0; i < args->n_layers; i++)
        for (int64_t e = 0; oct_model_moe(model, i) && e < args->num_experts; e++)
            oct_model_moe(model, i)->expert_bias[e] = 0.02f * (float)((7 * e + i) % 5);
    double loss;
    oct_status status = train(model, tokens, targets, &loss);
    if (status)
        return oct_fail(err, status, "the training step failed");
    char *weights = oct_path_join(folder, "weights.safetensors");
    char *hf = oct_path_join(folder, "hf.safetensors");
    char *step = oct_path_join(folder, "step.safetensors");
    if (!weights || !hf || !step)
        status = oct_fail_memory(err);
    else if (!(status = write_weights(model, weights, err)) && !(status = write_hf(model, hf, err)))
        status = write_step(model, step, tokens, targets, loss, err);
    oct_free(weights);
    oct_free(hf);
    oct_free(step);
    return status;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    oct_model_args args;
    oct_model *model = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: model_dump FOLDER MODEL FLAVOR KEY=VALUE...\n");
        return 2;
    }
    oct_status status = read_args(argc, argv, &args, &err);
    if (!status && !(status = oct_model_create(&args, OCT_PARAMS_ALLOCATED, &model, &err)))
        status = dump(model, argv[1], &err);
    if (status)
        fprintf(stderr, "model_dump: %s\n", err.message);
    oct_model_destroy(model);
    return oct_status_exit_code(status);
}
