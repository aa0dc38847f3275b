/* octet plan: what a job would convert, without training. */
#include <stdio.h>

#include "cli.h"
#include "options.h"
#include "terminal.h"
#include "train/conversion.h"
#include "train/setup.h"

static oct_status print_plan(const oct_plan *plan, bool json, oct_error *err) {
    oct_strbuf text = {0};
    if (json)
        oct_plan_render_json(plan, &text);
    else
        oct_plan_render(plan, &text);
    if (text.failed)
        return oct_fail_memory(err);
    fputs(text.text ? text.text : "", stdout);
    oct_strbuf_free(&text);
    if (plan->user_patterns_all_missed)
        return oct_fail(err, OCT_INVALID, "%s",
                        plan->n_warnings ? plan->warnings[0] : "no pattern matches a module");
    return OCT_OK;
}

static oct_status plan(const oct_job *job, bool json, oct_error *err) {
    oct_model_args args;
    oct_model *model = NULL;
    oct_conversion *conversion = NULL;
    oct_job_log_notes(job);
    oct_status status = oct_setup_model_args(job, &args, err);
    if (status == OCT_OK)
        status = oct_model_create(&args, OCT_PARAMS_SHAPES_ONLY, &model, err);
    if (status == OCT_OK)
        status = oct_conversion_create(job, model, &conversion, err);
    if (status == OCT_OK)
        status = print_plan(oct_conversion_plan(conversion), json, err);
    oct_model_destroy(model);
    oct_conversion_destroy(conversion);
    return status;
}

oct_status cli_plan(int argc, char **argv, oct_error *err) {
    bool json = false;
    const cli_option options[] = {
        {"json", CLI_FLAG, &json, NULL, "print JSON instead of a table", 0, 0}};
    const cli_spec spec = {
        .usage = "octet plan CONFIG [--json] [--section.key=value ...]",
        .summary = "Shows what a job would convert to 8 bits, and why: a row for each linear and "
                   "expert module.\nTrains nothing and needs no data.",
        .options = options,
        .n_options = 1,
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_job job = {0};
    oct_status status = cli_parse(&spec, argc, argv, &args, err);
    if (status == OCT_OK && args.help) {
        cli_print_help(&spec);
    } else if (status == OCT_OK) {
        status = oct_job_load(args.n_operands ? args.operands[0] : NULL, args.overrides,
                              args.n_overrides, &job, err);
        if (status == OCT_OK)
            status = plan(&job, json, err);
    }
    oct_job_free(&job);
    cli_args_free(&args);
    return status;
}
