/* octet export: a trained model as a folder that other programs load. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "cli.h"
#include "export/export_source.h"
#include "options.h"
#include "stop.h"
#include "terminal.h"

typedef struct export_options {
    const char *format, *dtype, *shard_size, *recipe;
} export_options;

/* As transformers' max_shard_size has it: a number of bytes, or of KB, MB, GB (powers of 1000),
 * KiB, MiB, GiB (of 1024). */
static oct_status read_size(const char *text, size_t *size, oct_error *err) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},         {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
                 {"KIB", 0x1p10}, {"MIB", 0x1p20}, {"GIB", 0x1p30}};
    char *end = NULL, unit[4] = "";
    double number = isdigit((unsigned char)*text) ? strtod(text, &end) : 0;
    for (size_t i = 0; end && i < 3 && end[i]; i++)
        unit[i] = (char)toupper((unsigned char)end[i]);
    for (size_t i = 0; end && strlen(end) < 4 && i < OCT_COUNT(units); i++) {
        double bytes = number * units[i].bytes;
        if (strcmp(unit, units[i].unit) != 0 || !(bytes >= 1) || bytes > 9e15)
            continue;
        *size = (size_t)bytes;
        return OCT_OK;
    }
    return oct_fail(err, OCT_INVALID,
                    "--shard-size: expected a size such as 5GB, 200MiB or 1000000; got '%.80s'",
                    text);
}

static oct_status read_options(const export_options *options, oct_export_request *request,
                               oct_error *err) {
    oct_error cause = {0};
    if (oct_export_format_parse(options->format, &request->format, &cause) != OCT_OK)
        return oct_fail(err, OCT_INVALID, "--format: %s", cause.message);
    bool high = request->format == OCT_EXPORT_HF || request->format == OCT_EXPORT_DCP;
    if (options->recipe && high)
        return oct_fail(err, OCT_INVALID,
                        "--recipe: the format %s has all weights in high precision, where no "
                        "recipe acts; expected it with compressed-tensors, modelopt or mxfp8",
                        oct_export_format_name(request->format));
    request->dtype = options->dtype;
    return options->shard_size ? read_size(options->shard_size, &request->max_shard_bytes, err)
                               : OCT_OK;
}

static void print_summary(const char *target, const oct_export_request *request,
                          const oct_export_summary *s) {
    double mib = (double)s->n_bytes / 0x1p20;
    printf("%s: %" PRId64 " tensors, %.2f MiB", target, s->n_tensors, mib);
    if (request->format != OCT_EXPORT_HF && request->format != OCT_EXPORT_DCP)
        printf(", %" PRId64 " weights in MXFP8, %" PRId64 " kept high", s->n_quantized, s->n_high);
    printf("; read back, every byte is the same\n");
}

/* A signal that came leaves nothing, and is what the process ends by. */
static oct_status conclude(oct_status status, const char *target, oct_error *err) {
    int reason = cli_stop_asked(NULL);
    if (!status || !reason)
        return status;
    oct_fail(err, OCT_FAILED, "%s: stopped by %s; nothing was written", target,
             cli_stop_name(reason));
    cli_print_error(err);
    cli_stop_conclude(reason, false);
    return OCT_OK;
}

static oct_status export_model(const char *path, const char *target, const export_options *options,
                               oct_error *err) {
    oct_model_source *source = NULL;
    oct_export_summary summary;
    oct_export_request request = {.stop = cli_stop_asked};
    const oct_model_use use = {.recipe = options->recipe};
    oct_status status = read_options(options, &request, err);
    if (!status)
        status = oct_export_check_target(target, err);
    if (!status)
        status = oct_model_source_open(path, &use, &source, err);
    if (!status) {
        cli_stop_at_a_step();
        status = oct_export_source(source, &request, target, &summary, err);
    }
    oct_model_source_close(source);
    if (!status)
        print_summary(target, &request, &summary);
    return conclude(status, target, err);
}

oct_status cli_export(int argc, char **argv, oct_error *err) {
    export_options values = {.format = "hf"};
    const cli_option options[] = {
        {"format", CLI_NAME, &values.format, "NAME",
         "hf (high precision), MXFP8 as compressed-tensors, modelopt or mxfp8 have it, or dcp "
         "(torchtitan's own); default: hf",
         0, 0},
        {"dtype", CLI_NAME, &values.dtype, "NAME",
         "float32, bfloat16 or float16 of what is in high precision; default: "
         "checkpoint.export_dtype, with MXFP8 the dtype of activations, or a folder's own",
         0, 0},
        {"shard-size", CLI_NAME, &values.shard_size, "SIZE",
         "the most bytes of tensors in a file: 5GB, 200MiB, ...; default: 5GiB", 0, 0},
        {"recipe", CLI_NAME, &values.recipe, "NAME",
         "a recipe of MXFP8 weights in the place of the one it was trained with", 0, 0}};
    const cli_spec spec = {
        .usage = "octet export MODEL OUT [options]",
        .summary =
            "Writes a model as a new folder OUT that transformers, vLLM and others load: "
            "config.json,\ngeneration_config.json, tokenizer files, safetensors. It is read back "
            "and compared before it\ngets its name. MODEL is a checkpoint (a step-N folder, a "
            "folder of them or a run's dump\nfolder) or a Hugging Face folder.",
        .examples = "export outputs/demo demo-hf\n"
                    "export outputs/demo demo-bf16 --dtype bfloat16 --shard-size 1GB\n"
                    "export outputs/demo/compare/mxfp8 demo-mxfp8 --format compressed-tensors\n"
                    "export data/SmolLM2-135M small --format mxfp8 --recipe mxfp8\n",
        .options = options,
        .n_options = OCT_COUNT(options),
        .min_operands = 2,
        .max_operands = 2};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        cli_log_warnings_only();
        cli_stop_install();
        cli_stop_quietly();
        status = export_model(args.operands[0], args.operands[1], &values, err);
    }
    cli_args_free(&args);
    return status;
}
