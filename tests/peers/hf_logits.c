/* usage: hf_logits FOLDER TOKENS OUT
 *
 * Opens a Hugging Face model folder, or a checkpoint, and writes to OUT, as fp32: the logits (S,V)
 * of the S tokens (int32) in TOKENS, and those of the last token when the sequence goes through a
 * cache, half of it at once and then token by token. hf_peers.py compares them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "job/hf_model.h"
#include "job/model_source.h"

static oct_status open_checkpoint(const char *path, oct_model **model, oct_error *err) {
    oct_model_source *source = NULL;
    const oct_model_use use = {.recipe = "fp32"};
    oct_status status = oct_model_source_open(path, &use, &source, err);
    if (!status)
        status = oct_model_create(&source->args, OCT_PARAMS_ALLOCATED, model, err);
    if (!status)
        status = oct_model_source_read(source, *model, err);
    oct_model_source_close(source);
    return status;
}

static oct_status open_model(const char *folder, oct_model **model, oct_error *err) {
    oct_model_args args;
    if (!oct_path_is_hf_folder(folder))
        return open_checkpoint(folder, model, err);
    oct_status status = oct_setup_model_args_from_hf(folder, &args, err);
    if (!status)
        status = oct_model_create(&args, OCT_PARAMS_ALLOCATED, model, err);
    return status ? status : oct_setup_parameters_from_hf(folder, OCT_HF_ANY_WEIGHTS, *model, err);
}

static oct_status run_cached(oct_model *model, oct_step *step, const int32_t *tokens, int64_t S,
                             float *last) {
    oct_kv_cache *cache = NULL;
    oct_status status = oct_model_create_cache(model, OCT_F32, 1, S, &cache);
    for (int64_t done = 0, n = S / 2; !status && done < S; done += n, n = 1)
        status = oct_model_generate(model, step, cache, n, tokens + done, last);
    oct_kv_cache_destroy(cache);
    return status;
}

static oct_status run(oct_model *model, const int32_t *tokens, int64_t S, float *logits) {
    oct_weights *weights = NULL;
    oct_step *step = NULL;
    int64_t V = oct_model_get_args(model)->vocab_size;
    oct_tensor out = oct_tensor_2d(OCT_F32, S, V, logits);
    oct_status status = oct_weights_create(&weights);
    if (!status && !(status = oct_step_create(weights, OCT_F32, &step)) &&
        !(status = oct_model_forward(model, step, 1, S, tokens, OCT_SAVE_NOTHING, &out)))
        status = run_cached(model, step, tokens, S, logits + S * V);
    oct_step_destroy(step);
    oct_weights_destroy(weights);
    return status;
}

static oct_status compute(oct_model *model, const char *tokens_path, const char *out_path,
                          oct_error *err) {
    char *bytes = NULL;
    size_t n_bytes;
    oct_status status = oct_file_read(tokens_path, 1 << 20, &bytes, &n_bytes, err);
    if (status)
        return status;
    int64_t S = (int64_t)(n_bytes / sizeof(int32_t)), V = oct_model_get_args(model)->vocab_size;
    int32_t *tokens = oct_malloc_array((size_t)S, sizeof *tokens);
    float *logits = oct_malloc_array((size_t)((S + 1) * V), sizeof *logits);
    if (!tokens || !logits) {
        status = oct_fail_memory(err);
    } else {
        memcpy(tokens, bytes, (size_t)S * sizeof *tokens);
        status = run(model, tokens, S, logits);
        status =
            status ? oct_fail(err, status, "the model refused the tokens")
                   : oct_file_write(out_path, logits, (size_t)((S + 1) * V) * sizeof *logits, err);
    }
    oct_free(tokens);
    oct_free(logits);
    oct_free(bytes);
    return status;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    oct_model *model = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: hf_logits FOLDER TOKENS OUT\n");
        return 2;
    }
    oct_status status = open_model(argv[1], &model, &err);
    if (!status)
        status = compute(model, argv[2], argv[3], &err);
    if (status)
        fprintf(stderr, "hf_logits: %s\n", err.message);
    oct_model_destroy(model);
    return oct_status_exit_code(status);
}
