/* octet eval: loss and perplexity of a trained model on a text. */
#include <math.h>
#include <stdio.h>

#include "cli.h"
#include "options.h"
#include "terminal.h"
#include "train/inference.h"
#include "train/validate.h"

typedef struct eval_options {
    const char *recipe, *tokenizer;
    int64_t seq_len, batch;
    bool json;
} eval_options;

static void print_result(const eval_options *options, const oct_inference *inference,
                         const oct_loss_sum *total) {
    double loss = oct_loss_sum_mean(total);
    if (options->json) {
        printf("{\"step\": %lld, \"tokens\": %lld, \"loss\": %.9g, \"perplexity\": %.9g}\n",
               (long long)inference->steps_done, (long long)total->count, loss, exp(loss));
        return;
    }
    printf("step: %lld  tokens: %lld  loss: %.5f  perplexity: %.3f\n",
           (long long)inference->steps_done, (long long)total->count, loss, exp(loss));
}

static oct_status eval(const cli_args *args, const eval_options *options, oct_error *err) {
    oct_inference *inference = NULL;
    oct_loss_sum total;
    const oct_inference_options open = {.recipe = options->recipe,
                                        .tokenizer_path = options->tokenizer,
                                        .max_len = options->seq_len};
    oct_status status = oct_inference_open(args->operands[0], &open, &inference, err);
    if (status != OCT_OK)
        return status;
    int64_t seq_len = options->seq_len ? options->seq_len : inference->job.training.seq_len;
    status = oct_inference_evaluate(inference, args->operands[1], seq_len, options->batch,
                                    cli_progress, NULL, &total, err);
    cli_progress_end();
    if (status == OCT_OK && !isfinite(oct_loss_sum_mean(&total)))
        status = oct_fail(err, OCT_FAILED, "the loss is not finite");
    if (status == OCT_OK)
        print_result(options, inference, &total);
    oct_inference_close(inference);
    return status;
}

oct_status cli_eval(int argc, char **argv, oct_error *err) {
    eval_options values = {.batch = 8};
    const cli_option options[] = {
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "bf16, fp32, mxfp8, hif8, ...; default: the one it was trained with", 0, 0},
        {"seq-len", CLI_INTEGER, &values.seq_len, "N", "tokens a sequence; default: training's", 1,
         1 << 24},
        {"batch", CLI_INTEGER, &values.batch, "N", "sequences at a time; default: 8", 1, 1 << 20},
        {"tokenizer", CLI_NAME, &values.tokenizer, "PATH", "default: the one of the training", 0,
         0},
        {"json", CLI_FLAG, &values.json, NULL, "print JSON", 0, 0}};
    const cli_spec spec = {.usage = "octet eval CKPT TEXT [options]",
                           .summary = "Loss (nats a token) and perplexity of a checkpoint on a "
                                      "text, JSONL or packed file or a folder\nof them. CKPT is a "
                                      "step-N folder, a folder of them or a run's dump folder.",
                           .examples = "eval outputs/demo other.txt\n",
                           .options = options,
                           .n_options = sizeof options / sizeof options[0],
                           .min_operands = 2,
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
