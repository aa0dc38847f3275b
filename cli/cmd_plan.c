/* octet plan: what a job would convert, without training. */
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/log.h"
#include "cli.h"
#include "options.h"
#include "terminal.h"
#include "train/conversion.h"
#include "train/ranks.h"
#include "train/setup.h"

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
    oct_strbuf_printf(text,
                      ",\n  \"wire\": {\n    \"ranks\": %d,\n    \"micro_batches\": %lld,\n"
                      "    \"bytes_gather_8bit\": %lld,\n    \"bytes_gather_high\": %lld,\n"
                      "    \"bytes_reduce_scatter\": %lld,\n    \"expert_parallel_degree\": %d,\n"
                      "    \"bytes_all_to_all_if_even\": %lld",
                      w->n_ranks, (long long)w->n_passes, (long long)w->gather_8bit,
                      (long long)w->gather_high, (long long)w->reduce_scatter, w->expert_degree,
                      (long long)w->all_to_all);
    put_ratio(text, "converted_to_bf16", w->converted_ratio);
    put_ratio(text, "whole_to_bf16", w->whole_ratio);
    oct_strbuf_puts(text, "\n  }");
}

static void render_wire(const oct_wire *w, oct_strbuf *text) {
    oct_strbuf_printf(text,
                      "\non the wire, a step of %d processes of %lld micro-batches each, all "
                      "together: gather_8bit %lld, gather_high %lld, reduce_scatter %lld bytes\n",
                      w->n_ranks, (long long)w->n_passes, (long long)w->gather_8bit,
                      (long long)w->gather_high, (long long)w->reduce_scatter);
    if (w->expert_degree > 1)
        oct_strbuf_printf(text,
                          "experts spread over teams of %d processes; all_to_all, if all experts "
                          "get as many tokens: %lld bytes\n",
                          w->expert_degree, (long long)w->all_to_all);
    if (!isnan(w->converted_ratio))
        oct_strbuf_printf(text, "gathers of converted weights: %.4f of bf16's; ",
                          w->converted_ratio);
    if (!isnan(w->whole_ratio))
        oct_strbuf_printf(text, "of all weights: %.4f\n", w->whole_ratio);
    if (w->turned)
        oct_strbuf_puts(text, "activation checkpointing is on: "
                              "fsdp_low_precision_all_gather_mode 'on-demand' becomes 'all'\n");
}

static oct_status print_plan(const oct_plan *plan, const oct_wire *wire, bool json,
                             oct_error *err) {
    oct_strbuf text = {0}, more = {0};
    if (json)
        render_wire_json(wire, &more);
    if (json)
        oct_plan_render_json(plan, more.text, &text);
    else
        oct_plan_render(plan, &text);
    if (!json && wire->n_ranks > 1)
        render_wire(wire, &text);
    bool failed = text.failed || more.failed;
    if (!failed)
        fputs(text.text ? text.text : "", stdout);
    oct_strbuf_free(&text);
    oct_strbuf_free(&more);
    if (failed)
        return oct_fail_memory(err);
    if (plan->user_patterns_all_missed)
        return oct_fail(err, OCT_INVALID, "%s",
                        plan->n_warnings ? plan->warnings[0] : "no pattern matches a module");
    return OCT_OK;
}

static oct_status plan(const oct_job *job, bool json, int64_t ranks, oct_error *err) {
    oct_model_args args;
    oct_model *model = NULL;
    oct_conversion *conversion = NULL;
    oct_wire wire;
    oct_job_log_notes(job);
    oct_status status = oct_setup_model_args(job, &args, err);
    if (status == OCT_OK)
        status = oct_model_create(&args, OCT_PARAMS_SHAPES_ONLY, &model, err);
    if (status == OCT_OK)
        status = oct_setup_recompute(job, model, err);
    if (status == OCT_OK)
        status = oct_setup_frozen(job, model, err);
    if (status == OCT_OK)
        status = oct_conversion_create(job, model, &conversion, err);
    /* The plan may be for another machine. */
    oct_error here = {0};
    if (status == OCT_OK && oct_conversion_check(conversion, &here) != OCT_OK)
        oct_log_warning("octet train refuses this job on this machine: %s", here.message);
    if (status == OCT_OK)
        status = oct_ranks_plan_wire(job, model, oct_conversion_plan(conversion),
                                     n_ranks_of(job, ranks), &wire, err);
    if (status == OCT_OK)
        status = print_plan(oct_conversion_plan(conversion), &wire, json, err);
    oct_model_destroy(model);
    oct_conversion_destroy(conversion);
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
        .usage = "octet plan CONFIG [--json] [--ranks N] [--section.key=value ...]",
        .summary = "Shows what a job would convert to 8 bits, and why: a row for each linear and "
                   "expert module;\nwhich rules hold for each role (quantize.rules), and what the "
                   "framework that they are of would\nitself skip or refuse.\nTrains nothing and "
                   "needs no data. The job may be for another "
                   "machine: what "
                   "this one's CPU hasn't\n(gemm = \"aligned\") is a warning here and an error of "
                   "octet train.",
        .examples = "plan examples/demo.toml\n"
                    "plan examples/demo.toml --quantize.linear.mx.filter_fqns=output,wo\n"
                    "plan examples/moe_demo.toml --ranks 4\n"
                    "plan examples/moe_demo.toml --quantize.rules=octet\n",
        .options = options,
        .n_options = 2,
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_job job = {0};
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        status = oct_job_load(args.n_operands ? args.operands[0] : NULL, args.overrides,
                              args.n_overrides, &job, err);
        cli_add_errors(job.others);
        if (status == OCT_OK)
            status = plan(&job, json, ranks, err);
    }
    oct_job_free(&job);
    cli_args_free(&args);
    return status;
}
