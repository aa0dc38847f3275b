/* octet plan: what a job would convert, without training. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli.h"
#include "config/together.h"
#include "hf/hf_folder.h"
#include "job/build.h"
#include "job/hf_model.h"
#include "job/model_source.h"
#include "job/ranks.h"
#include "job/setup.h"
#include "options.h"
#include "terminal.h"

/* Without a word of it in the job or on the command line: one process, or a team that shares the
 * experts. */
static int n_ranks_of(const oct_job *job, int64_t wanted) {
    const int64_t most = 1 << 20;
    int64_t shard = job->parallelism.data_parallel_shard_degree, n;
    if (wanted > 0)
        return (int)wanted;
    if (shard < 0)
        shard = job->parallelism.expert_parallel_degree;
    bool fits = oct_mul_i64(job->parallelism.data_parallel_replicate_degree, shard, &n);
    return fits && n < most ? (int)n : (int)most;
}

static void put_ratio(oct_strbuf *text, const char *name, double ratio) {
    if (isnan(ratio))
        oct_strbuf_printf(text, ",\n    \"%s\": null", name);
    else
        oct_strbuf_printf(text, ",\n    \"%s\": %.6f", name, ratio);
}

static void render_wire_json(const oct_wire *w, oct_strbuf *text) {
    oct_strbuf_printf(
        text,
        ",\n  \"wire\": {\n    \"ranks\": %d,\n    \"micro_batches\": %" PRId64
        ",\n    \"bytes_gather_8bit\": %" PRId64 ",\n    \"bytes_gather_high\": %" PRId64
        ",\n    \"bytes_reduce_scatter\": %" PRId64 ",\n    \"expert_parallel_degree\": %d,\n"
        "    \"bytes_all_to_all_if_even\": %" PRId64,
        w->n_ranks, w->n_passes, w->gather_8bit, w->gather_high, w->reduce_scatter,
        w->expert_degree, w->all_to_all);
    put_ratio(text, "converted_to_bf16", w->converted_ratio);
    put_ratio(text, "whole_to_bf16", w->whole_ratio);
    oct_strbuf_puts(text, "\n  }");
}

static void render_wire(const oct_wire *w, oct_strbuf *text) {
    oct_strbuf_printf(text,
                      "\non the wire, a step of %d processes of %" PRId64
                      " micro-batches each, all together: gather_8bit %" PRId64
                      ", gather_high %" PRId64 ", reduce_scatter %" PRId64 " bytes\n",
                      w->n_ranks, w->n_passes, w->gather_8bit, w->gather_high, w->reduce_scatter);
    if (w->expert_degree > 1)
        oct_strbuf_printf(text,
                          "experts spread over teams of %d processes; all_to_all, if all experts "
                          "get as many tokens: %" PRId64 " bytes\n",
                          w->expert_degree, w->all_to_all);
    if (!isnan(w->converted_ratio))
        oct_strbuf_printf(text, "gathers of converted weights: %.4f of bf16's; ",
                          w->converted_ratio);
    if (!isnan(w->whole_ratio))
        oct_strbuf_printf(text, "of all weights: %.4f\n", w->whole_ratio);
    if (w->turned)
        oct_strbuf_puts(text, "activation checkpointing is on: "
                              "fsdp_low_precision_all_gather_mode 'on-demand' becomes 'all'\n");
}

static const char *const scalings[] = {[OCT_ROPE_UNSCALED] = "none",
                                       [OCT_ROPE_LLAMA3] = "llama3",
                                       [OCT_ROPE_YARN] = "yarn",
                                       [OCT_ROPE_LINEAR] = "linear",
                                       [OCT_ROPE_DYNAMIC] = "dynamic"};

/* Whether the scaling of positions turns anything: yarn may wait for a longer sequence. */
static bool is_in_force(const oct_model_args *args) {
    return args->rope_scaling == OCT_ROPE_YARN ? oct_model_args_uses_yarn(args)
                                               : args->rope_scaling != OCT_ROPE_UNSCALED;
}

static bool is_block_causal(const oct_model_args *args) {
    return args->attn_mask_type == OCT_ATTN_BLOCK_CAUSAL;
}

static void render_attention_json(const oct_model_args *args, oct_strbuf *text) {
    const char *comma = "";
    oct_strbuf_printf(text,
                      ",\n  \"documents\": {\"attn_mask_type\": \"%s\", \"see_each_other\": %s},\n"
                      "  \"positions\": {\"scaling\": \"%s\", \"in_force\": %s},\n"
                      "  \"windows\": {\"tokens\": %" PRId64 ", \"layers\": [",
                      oct_attn_mask_name(args->attn_mask_type),
                      is_block_causal(args) ? "false" : "true", scalings[args->rope_scaling],
                      is_in_force(args) ? "true" : "false", args->window);
    for (int64_t i = 0; i < args->n_layers; i++) {
        if (!oct_model_args_window(args, i))
            continue;
        oct_strbuf_printf(text, "%s%" PRId64, comma, i);
        comma = ", ";
    }
    oct_strbuf_puts(text, "]}");
}

/* What a token sees, and from where. */
static void render_attention(const oct_model_args *args, oct_strbuf *text) {
    int64_t original = args->rope_original_max_position_embeddings, n = 0;
    for (int64_t i = 0; i < args->n_layers; i++)
        n += oct_model_args_window(args, i) > 0;
    oct_strbuf_printf(text, "\ndocuments in a window %s (attn_mask_type %s)\n",
                      is_block_causal(args) ? "don't see each other" : "see each other",
                      oct_attn_mask_name(args->attn_mask_type));
    if (n > 0)
        oct_strbuf_printf(text,
                          "attention: %" PRId64 " of %" PRId64 " layers see the last %" PRId64
                          " tokens alone\n",
                          n, args->n_layers, args->window);
    if (args->rope_scaling == OCT_ROPE_UNSCALED)
        return;
    oct_strbuf_printf(text, "positions: %s scaling by %g", scalings[args->rope_scaling],
                      args->rope_scaling_factor);
    if (args->rope_scaling != OCT_ROPE_LINEAR)
        oct_strbuf_printf(text, " of a model trained on %" PRId64 " tokens", original);
    if (args->rope_scaling == OCT_ROPE_YARN && args->yarn_always)
        oct_strbuf_puts(text, "; in force at any length, as in transformers");
    else if (args->rope_scaling == OCT_ROPE_YARN)
        oct_strbuf_printf(text, "; %s: sequences of %" PRId64 " tokens, and torchtitan's rule",
                          oct_model_args_uses_yarn(args) ? "in force" : "not in force",
                          args->max_seq_len);
    oct_strbuf_puts(text, "\n");
}

/* Where a run of the job would write. */
static void render_folder_json(const oct_job *job, oct_strbuf *text) {
    json_t *folder = json_string(job->job.dump_folder); /* NULL: no UTF-8, or no memory */
    char *quoted = folder ? json_dumps(folder, JSON_ENCODE_ANY) : NULL;
    oct_strbuf_printf(text, ",\n  \"dump_folder\": %s", quoted ? quoted : "null");
    free(quoted);
    json_decref(folder);
}

static oct_status print_plan(const oct_job *job, const oct_plan *plan, const oct_model_args *args,
                             const oct_wire *wire, bool json, oct_error *err) {
    oct_strbuf text = {0}, more = {0};
    if (json)
        render_wire_json(wire, &more);
    if (json)
        render_folder_json(job, &more);
    if (json)
        render_attention_json(args, &more);
    if (json)
        oct_plan_render_json(plan, more.text, &text);
    else
        oct_plan_render(plan, &text);
    if (!json)
        render_attention(args, &text);
    if (!json && wire->n_ranks > 1)
        render_wire(wire, &text);
    bool failed = text.failed || more.failed;
    if (!failed)
        fputs(text.text ? text.text : "", stdout);
    oct_strbuf_free(&text);
    oct_strbuf_free(&more);
    if (failed)
        return oct_fail_memory(err);
    if (plan->all_missed)
        return oct_fail(err, OCT_INVALID, "%s", plan->all_missed);
    return OCT_OK;
}

/* `folder`: a Hugging Face folder whose tensors must be the model's; NULL: none. */
static oct_status plan(const oct_job *job, const oct_model_args *args, const char *folder,
                       bool json, int64_t ranks, oct_error *err) {
    oct_job_parts parts = {0};
    oct_wire wire;
    oct_job_log_notes(job);
    oct_status status = oct_job_build(job, args, OCT_PARAMS_SHAPES_ONLY, &parts, err);
    if (!status && folder && oct_hf_folder_has_weights(folder))
        status = oct_setup_check_hf_tensors(folder, parts.model, err);
    else if (!status && folder)
        oct_log_info("%s has no weights: the plan is of what its config.json says", folder);
    /* The plan may be for another machine. */
    oct_error here = {0};
    if (!status && oct_conversion_check(parts.conversion, &here) != OCT_OK)
        oct_log_warning("octet train refuses this job on this machine: %s", here.message);
    if (!status)
        status = oct_ranks_plan_wire(job, parts.model, oct_conversion_plan(parts.conversion),
                                     n_ranks_of(job, ranks), &wire, err);
    if (!status)
        oct_ranks_log_framework(job, n_ranks_of(job, ranks));
    if (!status)
        status = print_plan(job, oct_conversion_plan(parts.conversion), args, &wire, json, err);
    oct_job_parts_free(&parts);
    return status;
}

static oct_status plan_job(const cli_args *args, bool json, int64_t ranks, oct_error *err) {
    oct_model_args model;
    oct_job job = {0};
    oct_status status = oct_job_load(args->n_operands ? args->operands[0] : NULL, args->overrides,
                                     args->n_overrides, &job, err);
    cli_add_errors(job.others);
    if (!status)
        status = oct_ranks_check_fit(&job, n_ranks_of(&job, ranks), err);
    if (!status)
        status = oct_setup_model_args(&job, &model, err);
    if (!status)
        status = plan(&job, &model, NULL, json, ranks, err);
    cli_add_errors(oct_job_more_refusals(&job));
    oct_job_free(&job);
    return status;
}

/* A trained model in the place of a job: what its own job, or a folder's defaults, make of it. */
static oct_status plan_model(const cli_args *args, bool json, int64_t ranks, oct_error *err) {
    oct_model_source *source = NULL;
    const oct_model_use use = {.overrides = args->overrides, .n_overrides = args->n_overrides};
    oct_status status = oct_model_source_open(args->operands[0], &use, &source, err);
    if (!status)
        status = plan(&source->job, &source->args, source->checkpoint ? NULL : source->path, json,
                      ranks, err);
    oct_model_source_close(source);
    return status;
}

oct_status cli_plan(int argc, char **argv, oct_error *err) {
    bool json = false;
    int64_t ranks = 0;
    const cli_option options[] = {
        {"json", CLI_FLAG, &json, NULL, "print JSON instead of a table", 0, 0},
        {"ranks", CLI_INTEGER, &ranks, "N",
         "processes that will train together, for the bytes on the wire (default: as many as the "
         "job's degrees say, else 1)",
         1, 1 << 20}};
    const cli_spec spec = {
        .usage = "octet plan CONFIG|MODEL [--json] [--ranks N] [--section.key=value ...]",
        .summary =
            "Shows what a job would convert to 8 bits, and why: a row for each linear and "
            "expert module;\nwhich rules hold for each role (quantize.rules), and what the "
            "framework that they are of would\nitself skip or refuse.\nTrains nothing and "
            "needs no data. The job may be for another "
            "machine: what "
            "this one's CPU hasn't\n(gemm = \"fast\") is a warning here and an error of "
            "octet train. MODEL is a Hugging Face folder or a\ncheckpoint: what is read from "
            "it, and what a recipe would convert.",
        .examples = "plan examples/demo.toml\n"
                    "plan data/Qwen3-0.6B --model.converters=quantize.linear.mx\n"
                    "plan examples/demo.toml --quantize.linear.mx.filter_fqns=output,wo\n"
                    "plan examples/moe_demo.toml --ranks 4\n"
                    "plan examples/moe_demo.toml --quantize.rules=octet\n",
        .options = options,
        .n_options = 2,
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        bool model = args.n_operands > 0 && oct_path_is_folder(args.operands[0]);
        status = model ? plan_model(&args, json, ranks, err) : plan_job(&args, json, ranks, err);
    }
    cli_args_free(&args);
    return status;
}
