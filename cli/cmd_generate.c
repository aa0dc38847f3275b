/* octet generate: what a trained model goes on with. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/strbuf.h"
#include "cli.h"
#include "file/json.h"
#include "infer/generate.h"
#include "infer/prompts.h"
#include "options.h"
#include "terminal.h"
#include "train/clock.h"

typedef struct generate_options {
    const char *prompt, *prompts, *recipe, *tokenizer;
    int64_t max_new, top_k, seed, batch;              /* the last three: -1, not given */
    double temperature, top_p, min_p, repeat_penalty; /* the last three: NAN, not given */
    cli_list stops;
} generate_options;

/* ---- options that can't act ---- */

static oct_status refuse(const char *name, const char *why, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "--%s: has no effect %s", name, why);
}

static oct_status check(const generate_options *o, oct_error *err) {
    static const char greedy[] = "with --temperature 0, which takes the likeliest token";
    const struct {
        const char *name;
        bool given;
    } draws[] = {{"top-k", o->top_k >= 0},
                 {"top-p", !isnan(o->top_p)},
                 {"min-p", !isnan(o->min_p)},
                 {"seed", o->seed >= 0}};
    for (size_t i = 0; i < OCT_COUNT(draws) && o->temperature == 0; i++)
        if (draws[i].given)
            return refuse(draws[i].name, greedy, err);
    if (o->top_p == 0)
        return oct_fail(err, OCT_INVALID, "--top-p: expected a number above 0, up to 1; got 0");
    if (o->repeat_penalty == 0)
        return oct_fail(err, OCT_INVALID, "--repeat-penalty: expected a number above 0; got 0");
    if (o->prompt && o->prompts)
        return oct_fail(err, OCT_INVALID, "--prompts: expected it or --prompt; got both");
    if (o->batch >= 0 && !o->prompts)
        return refuse("batch", "without --prompts", err);
    return OCT_OK;
}

static oct_sampling sampling_of(const generate_options *o) {
    return (oct_sampling){.temperature = o->temperature,
                          .top_k = o->top_k < 0 ? 50 : o->top_k,
                          .top_p = isnan(o->top_p) || o->top_p == 1 ? 0 : o->top_p,
                          .min_p = isnan(o->min_p) ? 0 : o->min_p,
                          .repeat_penalty = isnan(o->repeat_penalty) ? 0 : o->repeat_penalty,
                          .seed = o->seed < 0 ? 0 : (uint64_t)o->seed};
}

/* ---- one prompt ---- */

static void put_text(void *user, size_t which, const char *bytes, size_t n_bytes) {
    (void)user;
    (void)which;
    fwrite(bytes, 1, n_bytes, stdout);
    fflush(stdout);
}

static oct_status continue_one(oct_inference *inference, const char *prompt,
                               const oct_generation *generation, int64_t *n_tokens,
                               oct_error *err) {
    oct_generated result = {0};
    fputs(prompt, stdout);
    oct_status status =
        oct_inference_generate(inference, &prompt, 1, generation, put_text, NULL, &result, err);
    putchar('\n');
    *n_tokens = result.n_tokens;
    return status;
}

/* ---- many ---- */

static void keep_text(void *user, size_t which, const char *bytes, size_t n_bytes) {
    oct_strbuf_append((oct_strbuf *)user + which, bytes, n_bytes);
}

static oct_status print_results(const char *const *prompts, const oct_strbuf *texts,
                                const oct_generated *results, size_t n, oct_error *err) {
    static const char *const ends[] = {
        [OCT_END_BY_LENGTH] = "length", [OCT_END_BY_TOKEN] = "end", [OCT_END_BY_STOP] = "stop"};
    oct_strbuf line = {0};
    for (size_t i = 0; i < n; i++) {
        oct_strbuf_puts(&line, "{\"prompt\": ");
        oct_json_put_string(&line, prompts[i]);
        oct_strbuf_puts(&line, ", \"text\": ");
        oct_json_put_bytes(&line, texts[i].length ? texts[i].text : "", texts[i].length);
        oct_strbuf_printf(&line, ", \"tokens\": %" PRId64 ", \"end\": \"%s\"}\n",
                          results[i].n_tokens, ends[results[i].end]);
    }
    bool failed = line.failed;
    if (!failed)
        fwrite(line.text, 1, line.length, stdout);
    fflush(stdout);
    oct_strbuf_free(&line);
    return failed ? oct_fail_memory(err) : OCT_OK;
}

static oct_status continue_some(oct_inference *inference, const char *const *prompts, size_t n,
                                const oct_generation *generation, int64_t *n_tokens,
                                oct_error *err) {
    oct_strbuf *texts = oct_calloc_array(n, sizeof *texts);
    oct_generated *results = oct_calloc_array(n, sizeof *results);
    oct_status status = texts && results ? oct_inference_generate(inference, prompts, n, generation,
                                                                  keep_text, texts, results, err)
                                         : oct_fail_memory(err);
    for (size_t i = 0; i < n && !status; i++) {
        *n_tokens += results[i].n_tokens;
        if (texts[i].failed)
            status = oct_fail_memory(err);
    }
    if (!status)
        status = print_results(prompts, texts, results, n, err);
    for (size_t i = 0; i < n && texts; i++)
        oct_strbuf_free(&texts[i]);
    oct_free(texts);
    oct_free(results);
    return status;
}

static oct_status continue_all(oct_inference *inference, const oct_prompts *prompts, size_t batch,
                               const oct_generation *generation, int64_t *n_tokens,
                               oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < prompts->n && !status; i += batch) {
        size_t n = prompts->n - i < batch ? prompts->n - i : batch;
        status = continue_some(inference, (const char *const *)prompts->list + i, n, generation,
                               n_tokens, err);
    }
    return status;
}

/* ---- */

static int64_t longest(const oct_prompts *prompts, const char *prompt) {
    size_t n = strlen(prompt);
    for (size_t i = 0; i < prompts->n; i++)
        n = strlen(prompts->list[i]) > n ? strlen(prompts->list[i]) : n;
    return (int64_t)n;
}

static oct_status generate(const char *path, const generate_options *options, oct_error *err) {
    oct_inference *inference = NULL;
    oct_prompts prompts = {0};
    const char *prompt = options->prompt ? options->prompt : "";
    int64_t n_tokens = 0;
    oct_status status = check(options, err);
    if (!status && options->prompts)
        status = oct_prompts_read(options->prompts, &prompts, err);
    /* A byte is a token at most; one more for a begin token. */
    const oct_inference_options open = {.recipe = options->recipe,
                                        .tokenizer_path = options->tokenizer,
                                        .max_len =
                                            longest(&prompts, prompt) + 1 + options->max_new};
    const oct_generation generation = {.max_new = options->max_new,
                                       .sampling = sampling_of(options),
                                       .stops = options->stops.texts,
                                       .n_stops = (size_t)options->stops.n};
    if (!status)
        status = oct_inference_open(path, &open, &inference, err);
    double began = oct_clock_s();
    size_t batch = options->batch > 0 ? (size_t)options->batch : 8;
    if (!status && options->prompts)
        status = continue_all(inference, &prompts, batch, &generation, &n_tokens, err);
    else if (!status)
        status = continue_one(inference, prompt, &generation, &n_tokens, err);
    double took = oct_clock_s() - began;
    if (!status && took > 0)
        fprintf(stderr, "%" PRId64 " tokens in %.2f s, %.1f tokens/s\n", n_tokens, took,
                (double)n_tokens / took);
    oct_inference_close(inference);
    oct_prompts_free(&prompts);
    return status;
}

oct_status cli_generate(int argc, char **argv, oct_error *err) {
    generate_options values = {.max_new = 128,
                               .temperature = 0.8,
                               .top_k = -1,
                               .seed = -1,
                               .batch = -1,
                               .top_p = NAN,
                               .min_p = NAN,
                               .repeat_penalty = NAN};
    const cli_option options[] = {
        {"prompt", CLI_TEXT, &values.prompt, "TEXT", "what to continue; default: an empty text", 0,
         0},
        {"prompts", CLI_NAME, &values.prompts, "FILE",
         "continue each line, or each \"prompt\" of a .jsonl file; prints a JSON object a line", 0,
         0},
        {"batch", CLI_INTEGER, &values.batch, "N", "prompts of the file at a time; default: 8", 1,
         1 << 16},
        {"max-new-tokens", CLI_INTEGER, &values.max_new, "N", "default: 128", 1, 1 << 20},
        {"temperature", CLI_REAL, &values.temperature, "T",
         "0 takes the likeliest token; default: 0.8", 0, 1000},
        {"top-k", CLI_INTEGER, &values.top_k, "K",
         "draw from the K likeliest tokens, 0: from all; default: 50", 0, 1 << 30},
        {"top-p", CLI_REAL, &values.top_p, "P",
         "of those from the fewest whose probabilities add up to P; default: all", 0, 1},
        {"min-p", CLI_REAL, &values.min_p, "P",
         "of those from the ones at least P times as likely as the likeliest; default: all", 0, 1},
        {"repeat-penalty", CLI_REAL, &values.repeat_penalty, "X",
         "divide the logits of tokens that were there, or multiply those below 0; default: none", 0,
         1000},
        {"stop", CLI_LIST, &values.stops, "TEXT",
         "end before this text; may be given several times", 0, 0},
        {"seed", CLI_INTEGER, &values.seed, "N", "default: 0", 0, 9e15},
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "bf16, fp32, mxfp8, hif8, ...; default: the one it was trained with, or a folder's dtype",
         0, 0},
        {"tokenizer", CLI_NAME, &values.tokenizer, "PATH",
         "default: the one of the training, or the folder's", 0, 0}};
    const cli_spec spec = {
        .usage = "octet generate MODEL [--prompt TEXT | --prompts FILE] [options]",
        .summary = "Continues a prompt, or each of a file, and says on standard error how fast. "
                   "MODEL is a\ncheckpoint (a step-N folder, a folder of them or a run's dump "
                   "folder) or a Hugging Face folder.",
        .examples = "generate outputs/demo --prompt \"In the beginning\"\n"
                    "generate outputs/demo/compare/mxfp8 --temperature 0 "
                    "--max-new-tokens 40\n"
                    "generate data/SmolLM2-135M --prompt \"Once upon\" --top-p 0.9 --stop \"The "
                    "end\"\n"
                    "generate outputs/demo --prompts data/questions.jsonl --batch 16\n",
        .options = options,
        .n_options = OCT_COUNT(options),
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
