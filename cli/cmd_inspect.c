/* octet inspect: a model's weights in 8 bits, worst first, and which to keep high. */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/strbuf.h"
#include "cli.h"
#include "file/json.h"
#include "infer/inspect.h"
#include "job/build.h"
#include "job/model_source.h"
#include "job/setup.h"
#include "model/hf_names.h"
#include "options.h"
#include "quant/rules.h"
#include "terminal.h"

typedef struct inspect_options {
    const char *recipe;
    int64_t top;
    bool json;
} inspect_options;

/* All that there is to print. */
typedef struct inspection {
    oct_model_source *source;
    oct_job_parts parts;
    const oct_plan *plan;
    oct_recipe recipe;
    oct_inspected *rows;
} inspection;

/* The recipe of the first module that training has in 8 bits. */
static const char *trained_recipe(const oct_plan *plan) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].recipe)
            return plan->rows[i].recipe->name;
    return "mxfp8";
}

static oct_status inspect(const char *path, const inspect_options *o, inspection *it,
                          oct_error *err) {
    const oct_model_use use = {0};
    oct_status status = oct_model_source_open(path, &use, &it->source, err);
    if (!status)
        status = oct_job_build(&it->source->job, &it->source->args, OCT_PARAMS_ALLOCATED,
                               &it->parts, err);
    if (!status)
        status = oct_model_source_read(it->source, it->parts.model, err);
    if (status)
        return status;
    const oct_job *job = &it->source->job;
    it->plan = oct_conversion_plan(it->parts.conversion);
    oct_error cause = {0};
    status =
        oct_recipe_parse(o->recipe ? o->recipe : trained_recipe(it->plan), &it->recipe, &cause);
    if (status)
        return oct_fail(err, status, "--recipe: %s", cause.message);
    oct_rules_apply(oct_job_rules(job), OCT_FOR_LINEARS, oct_setup_activation(job), &it->recipe);
    return oct_inspect_weights(it->plan, &it->recipe, &it->rows, err);
}

/* ---- for people ---- */

static void print_row(const oct_inspected *r) {
    const oct_quant_stats *s = &r->along[1];
    const double n = (double)s->n;
    printf("%c %-34s %9.3g %7.2f%% %8.3f%% %8.2f", r->stands_out ? '*' : ' ', r->row->name, s->amax,
           100 * r->error, 100 * (double)s->n_underflow / n, oct_quant_stats_sqnr(s));
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++)
        printf(" %7.2f%%", 100 * r->trials[i]);
    printf("  %s\n", r->row->recipe ? "8 bits" : "kept");
}

static void print_table(const inspection *it, int64_t top) {
    const int64_t n = it->plan->n_rows;
    printf(
        "%s\nweights as %s would have them (rules %s), worst first by the mean relative error of "
        "an element\n\n",
        it->source->path, it->recipe.name, oct_job_rules(&it->source->job)->name);
    printf("%36s %9s %8s %9s %8s", "", "amax", "error", "underflow", "SQNR dB");
    static const char *const heads[OCT_N_QUANT_TRIALS] = {"floor",  "rceil",   "E5M2",
                                                          "tensor", "hif8_15", "hif8_32k"};
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++)
        printf(" %8s", heads[i]);
    printf("  trained\n");
    for (int64_t i = 0; i < n && i < top; i++)
        print_row(&it->rows[i]);
    if (n > top)
        printf("  ... and %" PRId64 " better ones (--top)\n", n - top);
    printf("\nerror in other formats:");
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++)
        printf("%s %s = %s", i ? "," : "", heads[i], oct_quant_trial_name(i));
    printf("\n");
}

/* The list in a job's words, after what is kept anyway: those that stand out, or, of experts, those
 * that stay converted. */
static void put_names(const inspection *it, bool yaml, bool experts, oct_strbuf *list) {
    const oct_model_family family = it->source->args.family;
    char hf[OCT_HF_MODULE_NAME_SIZE];
    for (int64_t i = 0; i < it->plan->n_rows; i++) {
        const oct_inspected *r = &it->rows[i];
        const char *name = r->row->module->name;
        if (r->row->is_experts != experts || r->stands_out == (experts && !yaml))
            continue;
        if (yaml && oct_hf_name(family, name, hf))
            name = hf;
        oct_strbuf_printf(list, "%s\"%s\"", list->length ? ", " : "", name);
    }
}

static bool any_stands_out(const inspection *it, bool experts) {
    for (int64_t i = 0; i < it->plan->n_rows; i++)
        if (it->rows[i].stands_out && it->rows[i].row->is_experts == experts)
            return true;
    return false;
}

static oct_status print_filters(const inspection *it, oct_error *err) {
    oct_strbuf titan = {0}, experts = {0}, yaml = {0};
    if (!any_stands_out(it, false) && !any_stands_out(it, true)) {
        printf("\nNo module stands out: no error is above the median's by more than chance "
               "explains.\n");
        return OCT_OK;
    }
    oct_strbuf_puts(&titan, "\"output\"");
    put_names(it, false, false, &titan);
    put_names(it, false, true, &experts);
    oct_strbuf_puts(&yaml, "\"lm_head\", \"gate\"");
    put_names(it, true, false, &yaml);
    put_names(it, true, true, &yaml);
    const bool failed = titan.failed || experts.failed || yaml.failed;
    if (!failed) {
        printf(
            "\n* stands out: its error is above the median's by more than chance explains. To keep "
            "these in high precision:\n\n# TOML\n[quantize.linear.mx]\nfilter_fqns = [%s]\n",
            titan.text);
        if (any_stands_out(it, true))
            printf("[quantize.grouped_mm.mx]\nfqns = [%s]\n", experts.text ? experts.text : "");
        printf("\n# YAML, in training.quantization_plan\nignored_modules: [%s]\n", yaml.text);
    }
    oct_strbuf_free(&titan);
    oct_strbuf_free(&experts);
    oct_strbuf_free(&yaml);
    return failed ? oct_fail_memory(err) : OCT_OK;
}

/* ---- JSON ---- */

static void put_real(oct_strbuf *json, const char *name, double value) {
    oct_strbuf_printf(json, ", \"%s\": ", name);
    oct_json_put_real(json, value);
}

static void put_row(const oct_inspected *r, oct_strbuf *json) {
    static const char *const products[2] = {"dgrad", "forward"};
    oct_strbuf_puts(json, "{\"module\": ");
    oct_json_put_string(json, r->row->name);
    put_real(json, "error", r->error);
    oct_strbuf_printf(json, ", \"stands_out\": %s, \"trained_in_8_bits\": %s",
                      r->stands_out ? "true" : "false", r->row->recipe ? "true" : "false");
    for (int dim = 1; dim >= 0; dim--) {
        const oct_quant_stats *s = &r->along[dim];
        oct_strbuf_printf(json, ", \"%s\": {\"elements\": %" PRId64, products[dim], s->n);
        put_real(json, "amax", s->amax);
        put_real(json, "error", oct_quant_stats_relative(s));
        put_real(json, "sqnr_db", oct_quant_stats_sqnr(s));
        put_real(json, "underflow", (double)s->n_underflow / (double)s->n);
        put_real(json, "saturated", (double)s->n_saturated / (double)s->n);
        oct_strbuf_printf(json, ", \"flat_blocks\": %" PRId64 ", \"poisoned_blocks\": %" PRId64 "}",
                          s->n_flat, s->n_poisoned);
    }
    oct_strbuf_puts(json, ", \"others_error\": {");
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++) {
        oct_strbuf_printf(json, "%s\"%s\": ", i ? ", " : "", oct_quant_trial_name(i));
        oct_json_put_real(json, r->trials[i]);
    }
    oct_strbuf_puts(json, "}}");
}

static oct_status print_json(const inspection *it, oct_error *err) {
    oct_strbuf json = {0};
    oct_strbuf_puts(&json, "{\"model\": ");
    oct_json_put_string(&json, it->source->path);
    oct_strbuf_puts(&json, ", \"recipe\": ");
    oct_json_put_string(&json, it->recipe.name);
    oct_strbuf_puts(&json, ", \"modules\": [");
    for (int64_t i = 0; i < it->plan->n_rows; i++) {
        oct_strbuf_puts(&json, i ? ",\n  " : "\n  ");
        put_row(&it->rows[i], &json);
    }
    oct_strbuf_puts(&json, "]}");
    oct_status status = json.failed ? oct_fail_memory(err) : OCT_OK;
    if (!status)
        printf("%s\n", json.text);
    oct_strbuf_free(&json);
    return status;
}

oct_status cli_inspect(int argc, char **argv, oct_error *err) {
    inspect_options values = {.top = 20};
    const cli_option options[] = {
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "mxfp8, hif8, ...; default: the one it was trained with, or mxfp8", 0, 0},
        {"top", CLI_INTEGER, &values.top, "N", "modules in the table; default: 20", 1, 1 << 24},
        {"json", CLI_FLAG, &values.json, NULL, "print JSON, of all modules", 0, 0}};
    const cli_spec spec = {
        .usage = "octet inspect MODEL [options]",
        .summary =
            "What 8 bits would do to a model's weights: each module that can be converted, "
            "worst first, in\nthe recipe and in other formats and rules, and a list of those "
            "to keep in high precision.\nMODEL is a checkpoint (a step-N folder, a folder of "
            "them or a run's dump folder) or a\nHugging Face folder.",
        .examples = "inspect outputs/demo\n"
                    "inspect outputs/demo --recipe hif8_15_224 --top 5\n"
                    "inspect data/SmolLM2-135M --json\n",
        .options = options,
        .n_options = OCT_COUNT(options),
        .min_operands = 1,
        .max_operands = 1};
    inspection it = {0};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        cli_log_warnings_only();
        status = inspect(args.operands[0], &values, &it, err);
        if (!status && values.json) {
            status = print_json(&it, err);
        } else if (!status) {
            print_table(&it, values.top);
            status = print_filters(&it, err);
        }
        oct_free(it.rows);
        oct_job_parts_free(&it.parts);
        oct_model_source_close(it.source);
    }
    cli_args_free(&args);
    return status;
}
