/* octet eval: what a trained model makes of a text, or of questions. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "cli.h"
#include "infer/inference.h"
#include "infer/tasks.h"
#include "infer/validate.h"
#include "options.h"
#include "terminal.h"

typedef struct eval_options {
    const char *text, *task, *tokenizer;
    cli_list recipes;
    int64_t seq_len, window, stride, batch, limit; /* 0: not given */
    bool json;
} eval_options;

/* What a model was found to be, in one recipe. */
typedef struct finding {
    const char *recipe; /* NULL: as it was trained */
    char *model;        /* the path of it; owned */
    char *text;         /* that was read; owned; NULL: a task */
    int64_t step;
    bool of_end; /* the text is the end of the training's, which was held out */
    oct_loss_sum total;
    oct_task_score score;
} finding;

/* ---- options that can't act ---- */

static oct_status check(const eval_options *o, oct_error *err) {
    const struct {
        const char *name;
        bool given;
        const char *with; /* has no effect beside it, or without it */
        bool beside;
    } rules[] = {{"task", o->task && o->text, "a TEXT", true},
                 {"seq-len", o->seq_len && o->task, "--task", true},
                 {"window", o->window && o->task, "--task", true},
                 {"stride", o->stride && o->task, "--task", true},
                 {"batch", o->batch && o->task, "--task", true},
                 {"limit", o->limit && o->task, "--task", true},
                 {"seq-len", o->seq_len && o->window, "--window", true},
                 {"stride", o->stride && !o->window, "--window", false},
                 {"window", o->window && !o->text, "a TEXT", false}};
    for (size_t i = 0; i < OCT_COUNT(rules); i++)
        if (rules[i].given)
            return oct_fail(err, OCT_INVALID, "--%s: has no effect %s %s", rules[i].name,
                            rules[i].beside ? "beside" : "without", rules[i].with);
    if (o->stride > o->window)
        return oct_fail(err, OCT_INVALID,
                        "--stride: expected at most the %" PRId64
                        " tokens of --window; got %" PRId64,
                        o->window, o->stride);
    return OCT_OK;
}

/* ---- one line, as of one recipe ---- */

static double deviation(const oct_task_score *s, int64_t n_right) {
    double share = (double)n_right / (double)s->n_questions;
    return s->n_questions > 1 ? sqrt(share * (1 - share) / (double)(s->n_questions - 1)) : 0;
}

static oct_status print_json(const eval_options *o, const finding *f, oct_error *err) {
    double loss = oct_loss_sum_mean(&f->total), n = (double)f->score.n_questions;
    json_t *result =
        f->text
            ? json_pack("{s:s, s:s, s:b, s:I, s:I, s:f, s:f}", "checkpoint", f->model, "text",
                        f->text, "validation_data", !o->text, "step", (json_int_t)f->step, "tokens",
                        (json_int_t)f->total.count, "loss", loss, "perplexity", exp(loss))
            : json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "checkpoint", f->model, "task",
                        o->task, "step", (json_int_t)f->step, "questions",
                        (json_int_t)f->score.n_questions, "accuracy", (double)f->score.n_right / n,
                        "accuracy_deviation", deviation(&f->score, f->score.n_right),
                        "accuracy_normalized", (double)f->score.n_right_normalized / n,
                        "accuracy_normalized_deviation",
                        deviation(&f->score, f->score.n_right_normalized));
    /* A name that isn't UTF-8, or no memory. */
    if (!result || (f->recipe && json_object_set_new(result, "recipe", json_string(f->recipe)))) {
        json_decref(result);
        return oct_fail(err, OCT_FAILED, "--json: the result can't be written as JSON");
    }
    json_dumpf(result, stdout, JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(result);
    return OCT_OK;
}

static void print_one(const eval_options *o, const finding *f) {
    double loss = oct_loss_sum_mean(&f->total), n = (double)f->score.n_questions;
    if (!f->text) {
        printf("step: %" PRId64 "  questions: %" PRId64
               "  accuracy: %.4f +- %.4f  normalized by length: %.4f +- %.4f\n",
               f->step, f->score.n_questions, (double)f->score.n_right / n,
               deviation(&f->score, f->score.n_right), (double)f->score.n_right_normalized / n,
               deviation(&f->score, f->score.n_right_normalized));
        return;
    }
    if (!o->text)
        printf(f->of_end ? "text: the end of %s, which its training held out\n"
                         : "text: %s, the validation data of its training\n",
               f->text);
    printf("step: %" PRId64 "  tokens: %" PRId64 "  loss: %.5f  perplexity: %.3f\n", f->step,
           f->total.count, loss, exp(loss));
}

/* ---- several recipes, side by side ---- */

static void print_table(const finding *list, int n) {
    int width = (int)strlen("recipe");
    for (int i = 0; i < n; i++)
        width = (int)strlen(list[i].recipe) > width ? (int)strlen(list[i].recipe) : width;
    if (list[0].text)
        printf("%-*s      loss  gap (nats)  perplexity\n", width, "recipe");
    else
        printf("%-*s  accuracy  normalized by length\n", width, "recipe");
    for (int i = 0; i < n; i++) {
        const finding *f = &list[i];
        double loss = oct_loss_sum_mean(&f->total), questions = (double)f->score.n_questions;
        if (f->text)
            printf("%-*s  %8.5f    %+.5f  %10.3f\n", width, f->recipe, loss,
                   loss - oct_loss_sum_mean(&list[0].total), exp(loss));
        else
            printf("%-*s    %.4f                %.4f\n", width, f->recipe,
                   (double)f->score.n_right / questions,
                   (double)f->score.n_right_normalized / questions);
    }
    if (list[0].text)
        printf("step %" PRId64 "; %" PRId64 " tokens of %s; gaps are to %s\n", list[0].step,
               list[0].total.count, list[0].text, list[0].recipe);
    else
        printf("step %" PRId64 "; %" PRId64 " questions\n", list[0].step,
               list[0].score.n_questions);
}

/* ---- */

static oct_status find_loss(oct_inference *inference, const eval_options *o, finding *f,
                            oct_error *err) {
    const char *path = NULL;
    const oct_inference_data data = {.path = o->text,
                                     .seq_len = o->seq_len,
                                     .batch_size = o->batch,
                                     .max_tokens = o->limit,
                                     .window = o->window,
                                     .stride = o->stride       ? o->stride
                                               : o->window > 1 ? o->window / 2
                                                               : o->window,
                                     .progress = cli_progress};
    oct_status status = oct_inference_evaluate(inference, &data, &path, &f->total, err);
    if (!status && !(f->text = oct_strdup(path)))
        status = oct_fail_memory(err);
    if (!status && !isfinite(oct_loss_sum_mean(&f->total)))
        status = oct_fail(err, OCT_FAILED, "the loss is not finite");
    const char *trained = inference->source->job.training.dataset_path;
    f->of_end = !status && !o->text && trained && strcmp(path, trained) == 0;
    return status;
}

static oct_status find(const char *model, const eval_options *o, const oct_task *task, finding *f,
                       oct_error *err) {
    oct_inference *inference = NULL;
    int64_t len = o->window > o->seq_len ? o->window : o->seq_len;
    const oct_inference_options open = {.recipe = f->recipe,
                                        .tokenizer_path = o->tokenizer,
                                        .max_len =
                                            o->task ? (int64_t)oct_task_longest(task) + 1 : len};
    oct_status status = oct_inference_open(model, &open, &inference, err);
    if (status)
        return status;
    f->step = inference->steps_done;
    f->model = oct_strdup(inference->source->path);
    status = !f->model ? oct_fail_memory(err)
             : o->task ? oct_task_score_model(inference, task, cli_progress, NULL, &f->score, err)
                       : find_loss(inference, o, f, err);
    cli_progress_end();
    oct_inference_close(inference);
    return status;
}

static oct_status eval_recipes(const char *model, const eval_options *o, const oct_task *task,
                               finding *list, oct_error *err) {
    int n = o->recipes.n > 0 ? o->recipes.n : 1;
    oct_status status = OCT_OK;
    for (int i = 0; i < n && !status; i++) {
        list[i].recipe = o->recipes.n > 0 ? o->recipes.texts[i] : NULL;
        status = find(model, o, task, &list[i], err);
        if (!status && o->json)
            status = print_json(o, &list[i], err);
    }
    if (status || o->json)
        return status;
    if (n > 1)
        print_table(list, n);
    else
        print_one(o, &list[0]);
    return OCT_OK;
}

static oct_status eval(const char *model, const eval_options *o, oct_error *err) {
    finding list[CLI_MAX_LIST] = {0};
    oct_task task = {0};
    if (o->text && oct_path_is_folder(o->text) && oct_path_exists(model) &&
        !oct_path_is_folder(model))
        return oct_fail(err, OCT_INVALID,
                        "%s: expected the checkpoint before the text; did you mean octet eval %s "
                        "%s?",
                        model, o->text, model);
    oct_status status = check(o, err);
    if (!status && o->task)
        status = oct_task_read(o->task, &task, err);
    if (!status)
        status = eval_recipes(model, o, &task, list, err);
    for (int i = 0; i < CLI_MAX_LIST; i++) {
        oct_free(list[i].model);
        oct_free(list[i].text);
    }
    oct_task_free(&task);
    return status;
}

oct_status cli_eval(int argc, char **argv, oct_error *err) {
    eval_options values = {0};
    const cli_option options[] = {
        {"limit", CLI_INTEGER, &values.limit, "N",
         "the text's first N tokens at most, in whole sequences; default: all", 1, 9e15},
        {"task", CLI_NAME, &values.task, "FILE",
         "questions in the place of a text: JSONL of question, choices, answer", 0, 0},
        {"recipe", CLI_LIST, &values.recipes, "NAME",
         "bf16, fp32, mxfp8, hif8, ...; several are shown side by side; default: the one it was "
         "trained with, or a folder's dtype",
         0, 0},
        {"seq-len", CLI_INTEGER, &values.seq_len, "N", "tokens a sequence; default: training's", 1,
         1 << 24},
        {"window", CLI_INTEGER, &values.window, "N",
         "tokens that the model sees at a time, in windows that overlap", 1, 1 << 24},
        {"stride", CLI_INTEGER, &values.stride, "N",
         "tokens from one window to the next; default: half of --window", 1, 1 << 24},
        {"batch", CLI_INTEGER, &values.batch, "N",
         "sequences at a time; default: 8; without a TEXT, validation.local_batch_size", 1,
         1 << 20},
        {"tokenizer", CLI_NAME, &values.tokenizer, "PATH",
         "default: the one of the training, or the folder's", 0, 0},
        {"json", CLI_FLAG, &values.json, NULL, "print JSON", 0, 0}};
    const cli_spec spec = {
        .usage = "octet eval MODEL [TEXT | --task FILE] [options]",
        .summary =
            "Loss (nats a token) and perplexity of a model on a text, JSONL or packed "
            "file or a folder\nof them; without TEXT on what its training held out "
            "([validation] of the job); with --task\nhow many questions of multiple choice it "
            "answers. MODEL is a checkpoint (a step-N folder, a\nfolder of them or a run's dump "
            "folder) or a Hugging Face folder.",
        .examples = "eval outputs/demo\n"
                    "eval outputs/demo/compare/mxfp8 --limit 16384\n"
                    "eval outputs/demo other.txt --recipe bf16\n"
                    "eval data/SmolLM2-135M other.txt --window 1024 --stride 512\n"
                    "eval outputs/demo --task data/questions.jsonl --recipe bf16 --recipe mxfp8\n",
        .options = options,
        .n_options = OCT_COUNT(options),
        .min_operands = 1,
        .max_operands = 2};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        cli_log_warnings_only();
        values.text = args.n_operands > 1 ? args.operands[1] : NULL;
        status = eval(args.operands[0], &values, err);
    }
    cli_args_free(&args);
    return status;
}
