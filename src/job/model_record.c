/* The model of a checkpoint: see model_record.h. */
#include "job/model_record.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "config/together.h"
#include "job/setup.h"
#include "model/args_list.h"

#define ARGS "model.args."

void oct_model_record_lines(const oct_model_args *args, oct_strbuf *to) {
    const char *name;
    for (size_t i = 0; (name = oct_model_args_name(i)); i++) {
        oct_strbuf_printf(to, ARGS "%s = ", name);
        oct_model_args_put(args, i, to);
        oct_strbuf_puts(to, "\n");
    }
}

void oct_model_record_put(const oct_model_args *args, oct_strbuf *to) {
    const char *name;
    oct_strbuf_puts(to, "{");
    for (size_t i = 0; (name = oct_model_args_name(i)); i++) {
        oct_strbuf_printf(to, "%s\"%s\": ", i ? ", " : "", name);
        oct_model_args_put(args, i, to);
    }
    oct_strbuf_puts(to, "}");
}

/* ---- reading ---- */

static oct_arg arg_of(const json_t *value) {
    if (json_is_integer(value))
        return (oct_arg){.type = OCT_ARG_INT, .i = json_integer_value(value)};
    if (json_is_real(value))
        return (oct_arg){.type = OCT_ARG_DOUBLE, .d = json_real_value(value)};
    if (json_is_boolean(value))
        return (oct_arg){.type = OCT_ARG_BOOL, .b = json_is_true(value)};
    const char *text = json_string_value(value);
    return (oct_arg){.type = OCT_ARG_TEXT, .text = text ? text : ""};
}

static oct_status take_all(json_t *record, oct_model_args *args, oct_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach(record, name, value) {
        oct_status status = oct_model_args_take(args, name, arg_of(value), err);
        if (status)
            return status;
    }
    return oct_model_args_resolve(args, err);
}

/* What the record is laid over: the saved job's model, or any of the family. */
static oct_status base_of(const json_t *record, const oct_job *saved, oct_model_args *args,
                          oct_error *err) {
    const char *family = json_string_value(json_object_get(record, "family"));
    oct_error cause = {0};
    oct_status status = saved ? oct_setup_model_args(saved, args, &cause)
                              : oct_fail(&cause, OCT_INVALID, "it holds no job");
    if (!record)
        return status ? oct_fail(err, status, "%s", cause.message) : OCT_OK;
    if (!status && family && strcmp(family, oct_model_family_name(args->family)) == 0)
        return OCT_OK;
    if (!family || !oct_model_flavors(family))
        return oct_fail(err, OCT_INVALID, "family: expected the name of a kind of model");
    return oct_model_args_flavor(family, oct_model_flavors(family)[0], args, err);
}

oct_status oct_model_record_read(const oct_checkpoint *from, const oct_job *saved,
                                 oct_model_args *args, oct_error *err) {
    oct_error cause = {0};
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    json_t *record = json_object_get(state, "model");
    oct_status status = base_of(record, saved, args, &cause);
    args->attn_mask_type = OCT_ATTN_CAUSAL; /* as all were trained that don't say */
    if (!status && record)
        status = take_all(record, args, &cause);
    if (status)
        oct_fail(err, status, "%s: its model: %s", oct_checkpoint_path(from), cause.message);
    json_decref(state);
    return status;
}

/* ---- comparing ---- */

typedef enum difference { REFUSED, WARNED, FREE } difference;

/* What isn't refused. Free is what only made the first weights, or derived another argument. */
static difference difference_in(const char *name, const oct_model_args *now,
                                const oct_model_args *before) {
    static const struct {
        const char *name;
        difference kind;
    } known[] = {{"load_balance_coeff", WARNED}, {"moe_force_load_balance", WARNED},
                 {"attn_mask_type", WARNED},     {"depth_init", FREE},
                 {"multiple_of", FREE},          {"ffn_dim_multiplier", FREE}};
    for (size_t i = 0; i < OCT_COUNT(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].kind;
    /* Room for longer sequences; where positions are scaled by it, another model. */
    if (strcmp(name, "max_seq_len") == 0 && now->rope_scaling != OCT_ROPE_DYNAMIC &&
        oct_model_args_uses_yarn(now) == oct_model_args_uses_yarn(before))
        return FREE;
    return REFUSED;
}

/* The entry of model.args that gives the argument, at its place; NULL: there is none. */
static const char *entry_of(const oct_job *job, const char *name) {
    const oct_value *item = job->model.args ? job->model.args->items.first : NULL;
    for (; item; item = item->next) {
        char key[128];
        snprintf(key, sizeof key, ARGS "%s", item->key); /* which may be another name of it */
        if (oct_model_args_is(item->key, name))
            return oct_job_at(job, key);
    }
    return NULL;
}

/* Where the job has all arguments from that have no entry. */
static const char *base_place(const oct_job *job, const char *name) {
    if (strcmp(name, "family") == 0)
        return oct_job_at(job, "model.name");
    return oct_job_at(job, *job->model.flavor ? "model.flavor" : "model.hf_assets_path");
}

static oct_status judge(const oct_job *job, const char *checkpoint, oct_record_use use,
                        difference kind, const char *name, const oct_strbuf *was,
                        const oct_strbuf *is, oct_error *err) {
    const char *entry = entry_of(job, name);
    if (use == OCT_RECORD_RESUME && kind == REFUSED)
        return oct_fail(
            err, OCT_INVALID, "%s: another %s than the model of %s has; expected %s; got %s",
            entry ? entry : base_place(job, name), name, checkpoint, was->text, is->text);
    if (kind != FREE)
        oct_log_warning("%s another " ARGS "%s: was %s, is %s",
                        use == OCT_RECORD_RESUME ? "resumed with"
                                                 : "the initial weights are of a model with",
                        name, was->text, is->text);
    return OCT_OK;
}

/* Compares the arguments that have entries of their own, or those that haven't. */
static oct_status compare(const oct_job *job, const oct_model_args *now,
                          const oct_model_args *before, const char *checkpoint, oct_record_use use,
                          bool entries, oct_together *together, oct_error *err) {
    const char *name;
    oct_status status = OCT_OK;
    for (size_t i = 0; (name = oct_model_args_name(i)) && !status; i++) {
        oct_strbuf was = {0}, is = {0};
        oct_error cause = {0};
        if ((entry_of(job, name) != NULL) != entries)
            continue;
        oct_model_args_put(before, i, &was);
        oct_model_args_put(now, i, &is);
        if (was.failed || is.failed)
            status = oct_fail_memory(&cause);
        else if (strcmp(was.text, is.text) != 0)
            status = judge(job, checkpoint, use, difference_in(name, now, before), name, &was, &is,
                           &cause);
        oct_strbuf_free(&was);
        oct_strbuf_free(&is);
        status = oct_together_add(together, status, &cause);
        if (status)
            oct_fail(err, status, "%s", cause.message);
        if (!entries && oct_together_failed(together)) /* the others are that model's too */
            break;
    }
    return status;
}

oct_status oct_model_record_check(const oct_job *job, const oct_model_args *now,
                                  const oct_model_args *before, const char *checkpoint,
                                  oct_record_use use, oct_error *err) {
    oct_together together = {.job = job};
    oct_status status = compare(job, now, before, checkpoint, use, true, &together, err);
    /* What differs beside entries that do may be derived from them, as head_dim from n_heads. */
    if (!status && !oct_together_failed(&together))
        status = compare(job, now, before, checkpoint, use, false, &together, err);
    return status ? status : oct_together_conclude(&together, err);
}
