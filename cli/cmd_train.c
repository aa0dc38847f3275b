/* octet train: trains as a job file says. */
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "cli.h"
#include "config/job.h"
#include "options.h"
#include "terminal.h"
#include "train/trainer.h"
#include "world.h"

static oct_status print_help(const cli_spec *spec, oct_error *err) {
    oct_strbuf keys = {0};
    cli_print_help(spec);
    oct_job_render_keys(OCT_JOB_TITAN, OCT_JOB_TEXT, &keys);
    if (keys.failed)
        return oct_fail_memory(err);
    printf("\nkeys of a TOML job (docs/configuration.md has those of a YAML job):\n%s", keys.text);
    oct_strbuf_free(&keys);
    return OCT_OK;
}

static oct_status train(oct_comm *world, const oct_job *job, const cli_args *args, oct_error *err) {
    oct_trainer *trainer = NULL;
    const oct_trainer_options options = {
        .world = world,
        .colour = cli_log_on_terminal() && !job->metrics.disable_color_printing ? OCT_COLOUR_ON
                                                                                : OCT_COLOUR_OFF,
        .overrides = args->overrides,
        .n_overrides = args->n_overrides,
        .progress = oct_comm_rank(world) == 0 ? cli_progress : NULL};
    oct_job_log_notes(job);
    oct_log_info("Starting job: %s", job->job.description);
    oct_status status = oct_trainer_create(job, &options, &trainer, err);
    if (status == OCT_OK)
        status = oct_trainer_run(trainer, err);
    if (status != OCT_OK)
        cli_world_failed(world, status, err);
    oct_trainer_destroy(trainer);
    return status;
}

/* Every process reads the job; the first one speaks for all. */
static oct_status load_and_train(const cli_args *args, oct_error *err) {
    oct_comm *world = NULL;
    oct_job job = {0};
    oct_status status = cli_world_open(&world, err);
    if (status != OCT_OK)
        return status;
    status = oct_job_load(args->n_operands ? args->operands[0] : NULL, args->overrides,
                          args->n_overrides, &job, err);
    status = oct_comm_agree(world, status, err);
    if (status == OCT_OK)
        status = train(world, &job, args, err);
    oct_job_free(&job);
    cli_world_close(world, status, err);
    return status;
}

oct_status cli_train(int argc, char **argv, oct_error *err) {
    const cli_spec spec = {
        .usage = "octet train CONFIG [--section.key=value ...]",
        .summary = "Trains a model. CONFIG is a torchtitan job (.toml) or a MindSpeed MM job "
                   "(.yaml);\n--job.config_file CONFIG works too. The command line wins over the "
                   "file, the file over\ndefaults; lists are comma-separated.",
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_status status = cli_parse(&spec, argc, argv, &args, err);
    if (status == OCT_OK && args.help) {
        status = print_help(&spec, err);
    } else if (status == OCT_OK) {
        signal(SIGPIPE, SIG_IGN); /* a run outlives the reader of its log */
        cli_log_to_stdout();
        status = load_and_train(&args, err);
    }
    cli_args_free(&args);
    return status;
}
