/* octet train: trains as a job file says. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "cli.h"
#include "config/together.h"
#include "options.h"
#include "stop.h"
#include "terminal.h"
#include "train/trainer.h"
#include "world.h"

/* Those that most jobs set; the whole table is some two hundred lines. */
static const char *const first_keys[] = {
    "training.dataset_path",
    "model.tokenizer_path",
    "model.name",
    "model.flavor",
    "model.converters",
    "quantize.linear.mx.recipe_name",
    "quantize.linear.mx.filter_fqns",
    "training.steps",
    "training.local_batch_size",
    "training.seq_len",
    "optimizer.lr",
    "lr_scheduler.warmup_steps",
    "job.dump_folder",
    "checkpoint.enable",
    "checkpoint.interval",
    "validation.enable",
    "debug.seed",
};
enum { N_FIRST_KEYS = OCT_COUNT(first_keys) };

static oct_status print_help(const cli_spec *spec, bool all_keys, oct_error *err) {
    oct_strbuf keys = {0};
    if (all_keys)
        oct_job_render_keys(OCT_JOB_TITAN, OCT_JOB_TEXT, &keys);
    for (int i = 0; i < N_FIRST_KEYS && !all_keys; i++)
        oct_job_render_key(OCT_JOB_TITAN, first_keys[i], &keys);
    oct_status status = keys.failed ? oct_fail_memory(err) : OCT_OK;
    if (!status) {
        cli_print_help(spec);
        printf("\n%s, with their defaults:\n%s",
               all_keys ? "all keys of a TOML job" : "keys of a TOML job that most jobs set",
               keys.text);
        printf("\n%sdocs/configuration.md has the keys of a YAML job too.\n",
               all_keys ? "" : "`octet train --help-all` lists every key; ");
    }
    oct_strbuf_free(&keys);
    return status;
}

/* The command line as it was typed. */
typedef struct words {
    int n;
    char **text;
} words;

static void put_word(oct_strbuf *b, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./=:,+@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        oct_strbuf_puts(b, word);
        return;
    }
    oct_strbuf_puts(b, "'");
    for (; *word; word++)
        if (*word == '\'')
            oct_strbuf_puts(b, "'\\''");
        else
            oct_strbuf_append(b, word, 1);
    oct_strbuf_puts(b, "'");
}

/* The command that goes on from the checkpoint: this one again, but from the newest. */
static void put_command(oct_strbuf *b, const words *typed, const oct_job *job, int n_ranks) {
    if (n_ranks > 1)
        oct_strbuf_printf(b, "mpirun -n %d ", n_ranks);
    put_word(b, program_invocation_name);
    oct_strbuf_puts(b, " train");
    for (int i = 0; i < typed->n; i++) {
        oct_strbuf_puts(b, " ");
        put_word(b, typed->text[i]);
    }
    if (job->checkpoint.load_step >= 0)
        oct_strbuf_puts(b, " --checkpoint.load_step=-1");
}

static const char *why_nothing_is_saved(const oct_job *job) {
    if (job->checkpoint.enable)
        return "checkpoint.load_only is true";
    return job->form == OCT_JOB_MINDSPEED
               ? "training.save isn't set; --training.save=FOLDER changes that"
               : "checkpoint.enable is false; --checkpoint.enable changes that";
}

/* What became of a run that a signal stopped, and how to go on. */
static oct_status tell_of_stop(const oct_trainer *trainer, const oct_job *job, const words *typed,
                               int n_ranks, oct_error *err) {
    int64_t done = oct_trainer_steps_done(trainer), steps = job->training.steps;
    const char *name = cli_stop_name(oct_trainer_stop_reason(trainer));
    oct_strbuf command = {0};
    put_command(&command, typed, job, n_ranks);
    oct_status status = command.failed ? oct_fail_memory(err) : OCT_OK;
    if (!status && oct_job_saves(job) && oct_trainer_last_saved(trainer) == done) {
        oct_log_info("Stopped by %s after step %" PRId64 " of %" PRId64 ", which is saved", name,
                     done, steps);
        if (done < steps)
            oct_log_info("To go on: %s", command.text);
    } else if (!status && !oct_job_saves(job)) {
        oct_log_warning("stopped by %s after step %" PRId64 " of %" PRId64
                        ": nothing was saved, as %s",
                        name, done, steps, why_nothing_is_saved(job));
    } else if (!status) {
        oct_log_info("Stopped by %s before the first step", name);
    }
    oct_strbuf_free(&command);
    return status;
}

static oct_status train(oct_comm *world, const oct_job *job, const cli_args *args,
                        const words *typed, oct_error *err) {
    oct_trainer *trainer = NULL;
    bool first = oct_comm_rank(world) == 0;
    int reason = 0, n_ranks = oct_comm_size(world);
    const oct_trainer_options options = {
        .world = world,
        .colour = cli_log_on_terminal() && !job->metrics.disable_color_printing ? OCT_COLOUR_ON
                                                                                : OCT_COLOUR_OFF,
        .overrides = args->overrides,
        .n_overrides = args->n_overrides,
        .progress = first ? cli_progress : NULL,
        .stop = cli_stop_asked};
    oct_job_log_notes(job);
    oct_log_info("Starting job: %s", job->job.description);
    oct_status status = oct_trainer_create(job, &options, &trainer, err);
    cli_stop_at_a_step();
    if (!status) {
        if (!oct_job_saves(job))
            oct_log_warning("nothing of this run will be saved, as %s", why_nothing_is_saved(job));
        status = oct_trainer_run(trainer, err);
    }
    if (!status)
        reason = oct_trainer_stop_reason(trainer);
    if (reason)
        status = tell_of_stop(trainer, job, typed, n_ranks, err);
    if (!status)
        cli_stop_conclude(reason, n_ranks > 1);
    if (status)
        cli_world_failed(world, status, err);
    oct_trainer_destroy(trainer);
    return status;
}

/* Every process reads the job; the first one speaks for all. */
static oct_status load_and_train(const cli_args *args, const words *typed, oct_error *err) {
    oct_comm *world = NULL;
    oct_job job = {0};
    oct_status status = cli_world_open(&world, err);
    if (status)
        return status;
    status = oct_job_load(args->n_operands ? args->operands[0] : NULL, args->overrides,
                          args->n_overrides, &job, err);
    cli_add_errors(job.others);
    status = oct_comm_agree(world, status, err);
    if (!status) {
        status = train(world, &job, args, typed, err);
        cli_add_errors(oct_job_more_refusals(&job));
    }
    oct_job_free(&job);
    cli_world_close(world, status, err);
    return status;
}

oct_status cli_train(int argc, char **argv, oct_error *err) {
    bool all_keys = false;
    const cli_option options[] = {
        {"help-all", CLI_FLAG, &all_keys, NULL, "this text with every key of a job", 0, 0}};
    const cli_spec spec = {
        .usage = "octet train CONFIG [--section.key=value ...]",
        .summary = "Trains a model. CONFIG is a torchtitan job (.toml) or a MindSpeed MM job "
                   "(.yaml);\n--job.config_file CONFIG works too. The command line wins over the "
                   "file, the file over\ndefaults; lists are comma-separated.",
        .examples = "train examples/demo.toml\n"
                    "train examples/demo.toml --training.steps=100 --optimizer.lr=1e-3\n"
                    "train job.toml --model.converters=quantize.linear.mx "
                    "--quantize.linear.mx.recipe_name=hif8\n",
        .options = options,
        .n_options = 1,
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_status status = cli_parse(&spec, argc, argv, &args, err);
    if (!status && (args.help || all_keys)) {
        status = print_help(&spec, all_keys, err);
    } else if (!status) {
        signal(SIGPIPE, SIG_IGN); /* a run outlives the reader of its log */
        cli_stop_install();
        cli_log_to_stdout();
        status = load_and_train(&args, &(words){argc, argv}, err);
    }
    cli_args_free(&args);
    return status;
}
