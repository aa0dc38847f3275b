/* octet generate: a sample from a trained model. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "options.h"
#include "terminal.h"
#include "train/inference.h"

typedef struct generate_options {
    const char *prompt, *recipe, *tokenizer;
    int64_t max_new, top_k, seed;
    double temperature;
} generate_options;

static void put_text(void *user, const char *bytes, size_t n_bytes) {
    (void)user;
    fwrite(bytes, 1, n_bytes, stdout);
    fflush(stdout);
}

static oct_status generate(const char *path, const generate_options *options, oct_error *err) {
    oct_inference *inference = NULL;
    int64_t n_tokens;
    /* A byte is a token at most; one more for a begin token. */
    const oct_inference_options open = {.recipe = options->recipe,
                                        .tokenizer_path = options->tokenizer,
                                        .max_len = (int64_t)strlen(options->prompt) + 1 +
                                                   options->max_new};
    const oct_sampling sampling = {.temperature = options->temperature,
                                   .top_k = options->top_k,
                                   .seed = (uint64_t)options->seed};
    oct_status status = oct_inference_open(path, &open, &inference, err);
    if (status != OCT_OK)
        return status;
    fputs(options->prompt, stdout);
    status = oct_inference_generate(inference, options->prompt, options->max_new, &sampling,
                                    put_text, NULL, &n_tokens, err);
    putchar('\n');
    oct_inference_close(inference);
    return status;
}

oct_status cli_generate(int argc, char **argv, oct_error *err) {
    generate_options values = {.prompt = "", .max_new = 128, .temperature = 0.8, .top_k = 50};
    const cli_option options[] = {
        {"prompt", CLI_TEXT, &values.prompt, "TEXT", "what to continue; default: an empty text", 0,
         0},
        {"max-new-tokens", CLI_INTEGER, &values.max_new, "N", "default: 128", 1, 1 << 20},
        {"temperature", CLI_REAL, &values.temperature, "T",
         "0 takes the likeliest token; default: 0.8", 0, 1000},
        {"top-k", CLI_INTEGER, &values.top_k, "K",
         "draw from the K likeliest tokens, 0: from all; default: 50", 0, 1 << 30},
        {"seed", CLI_INTEGER, &values.seed, "N", "default: 0", 0, 9e15},
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "bf16, fp32, mxfp8, hif8, ...; default: the one it was trained with, or a folder's dtype",
         0, 0},
        {"tokenizer", CLI_NAME, &values.tokenizer, "PATH",
         "default: the one of the training, or the folder's", 0, 0}};
    const cli_spec spec = {
        .usage = "octet generate MODEL [--prompt TEXT] [options]",
        .summary = "Continues a prompt. MODEL is a checkpoint (a step-N folder, a folder of "
                   "them or a run's\ndump folder) or a Hugging Face folder.",
        .examples = "generate outputs/demo --prompt \"In the beginning\"\n"
                    "generate outputs/demo/compare/mxfp8 --temperature 0 "
                    "--max-new-tokens 40\n"
                    "generate data/SmolLM2-135M --prompt \"Once upon\"\n",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .min_operands = 1,
        .max_operands = 1};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        cli_log_warnings_only();
        status = generate(args.operands[0], &values, err);
    }
    cli_args_free(&args);
    return status;
}
