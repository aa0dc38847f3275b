/* octet eval: loss and perplexity of a trained model on a text. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli.h"
#include "options.h"
#include "terminal.h"
#include "train/inference.h"
#include "train/validate.h"

typedef struct eval_options {
    const char *recipe, *tokenizer;
    int64_t seq_len, batch, limit;
    bool json;
} eval_options;

static oct_status print_json(const oct_inference *inference, const char *path, bool of_training,
                             const oct_loss_sum *total, oct_error *err) {
    double loss = oct_loss_sum_mean(total);
    json_t *result = json_pack("{s:s, s:s, s:b, s:I, s:I, s:f, s:f}", "checkpoint",
                               inference->source->path, "text", path, "validation_data",
                               of_training, "step", (json_int_t)inference->steps_done, "tokens",
                               (json_int_t)total->count, "loss", loss, "perplexity", exp(loss));
    if (!result) /* a name that isn't UTF-8, or no memory */
        return oct_fail(err, OCT_FAILED, "--json: the result can't be written as JSON");
    json_dumpf(result, stdout, JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(result);
    return OCT_OK;
}

static oct_status print_result(const eval_options *options, const oct_inference *inference,
                               const char *path, bool of_training, const oct_loss_sum *total,
                               oct_error *err) {
    double loss = oct_loss_sum_mean(total);
    if (!isfinite(loss))
        return oct_fail(err, OCT_FAILED, "the loss is not finite");
    if (options->json)
        return print_json(inference, path, of_training, total, err);
    if (of_training && strcmp(path, inference->source->job.training.dataset_path) == 0)
        printf("text: the end of %s, which its training held out\n", path);
    else if (of_training)
        printf("text: %s, the validation data of its training\n", path);
    printf("step: %lld  tokens: %lld  loss: %.5f  perplexity: %.3f\n",
           (long long)inference->steps_done, (long long)total->count, loss, exp(loss));
    return OCT_OK;
}

static oct_status eval(const cli_args *args, const eval_options *options, oct_error *err) {
    oct_inference *inference = NULL;
    oct_loss_sum total;
    const char *path = NULL;
    const oct_inference_options open = {.recipe = options->recipe,
                                        .tokenizer_path = options->tokenizer,
                                        .max_len = options->seq_len};
    const oct_inference_data data = {.path = args->n_operands > 1 ? args->operands[1] : NULL,
                                     .seq_len = options->seq_len,
                                     .batch_size = options->batch,
                                     .max_tokens = options->limit,
                                     .progress = cli_progress};
    if (data.path && oct_path_is_folder(data.path) && oct_path_exists(args->operands[0]) &&
        !oct_path_is_folder(args->operands[0]))
        return oct_fail(err, OCT_INVALID,
                        "%s: expected the checkpoint before the text; did you mean octet eval %s "
                        "%s?",
                        args->operands[0], data.path, args->operands[0]);
    oct_status status = oct_inference_open(args->operands[0], &open, &inference, err);
    if (status != OCT_OK)
        return status;
    status = oct_inference_evaluate(inference, &data, &path, &total, err);
    cli_progress_end();
    if (status == OCT_OK)
        status = print_result(options, inference, path, !data.path, &total, err);
    oct_inference_close(inference);
    return status;
}

oct_status cli_eval(int argc, char **argv, oct_error *err) {
    eval_options values = {0};
    const cli_option options[] = {
        {"limit", CLI_INTEGER, &values.limit, "N",
         "the text's first N tokens at most, in whole sequences; default: all", 1, 9e15},
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "bf16, fp32, mxfp8, hif8, ...; default: the one it was trained with, or a folder's dtype",
         0, 0},
        {"seq-len", CLI_INTEGER, &values.seq_len, "N", "tokens a sequence; default: training's", 1,
         1 << 24},
        {"batch", CLI_INTEGER, &values.batch, "N",
         "sequences at a time; default: 8; without a TEXT, validation.local_batch_size", 1,
         1 << 20},
        {"tokenizer", CLI_NAME, &values.tokenizer, "PATH",
         "default: the one of the training, or the folder's", 0, 0},
        {"json", CLI_FLAG, &values.json, NULL, "print JSON", 0, 0}};
    const cli_spec spec = {
        .usage = "octet eval MODEL [TEXT] [options]",
        .summary =
            "Loss (nats a token) and perplexity of a model on a text, JSONL or packed "
            "file or a folder\nof them; without TEXT on what its training held out "
            "([validation] of the job). MODEL is a\ncheckpoint (a step-N folder, a folder of "
            "them or a run's dump folder) or a Hugging Face folder.",
        .examples = "eval outputs/demo\n"
                    "eval outputs/demo/compare/mxfp8 --limit 16384\n"
                    "eval outputs/demo other.txt --recipe bf16\n"
                    "eval data/SmolLM2-135M other.txt --seq-len 1024\n",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .min_operands = 1,
        .max_operands = 2};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        cli_log_warnings_only();
        status = eval(&args, &values, err);
    }
    cli_args_free(&args);
    return status;
}
