/* From a value to a dimension: see model_args.h. */
#include "config/model_args.h"

#include <stdio.h>
#include <string.h>

static oct_status fail_arg(const oct_job *job, const char *name, const oct_error *cause,
                           oct_error *err) {
    char key[256];
    const char *message = cause->message;
    size_t n = strlen(name);
    snprintf(key, sizeof key, "model.args.%s", name);
    if (strncmp(message, name, n) == 0 && strncmp(message + n, ": ", 2) == 0)
        message += n + 2;
    return oct_fail(err, cause->status, "%s: %s", oct_job_at(job, key), message);
}

oct_status oct_job_set_model_arg(const oct_job *job, const oct_value *item, oct_model_args *args,
                                 oct_error *err) {
    oct_error cause = {0};
    oct_arg arg = {0};
    switch (item->kind) {
    case OCT_VALUE_INT:
        arg = (oct_arg){.type = OCT_ARG_INT, .i = item->integer};
        break;
    case OCT_VALUE_DOUBLE:
        arg = (oct_arg){.type = OCT_ARG_DOUBLE, .d = item->number};
        break;
    case OCT_VALUE_BOOL:
        arg = (oct_arg){.type = OCT_ARG_BOOL, .b = item->boolean};
        break;
    case OCT_VALUE_STRING:
        arg = (oct_arg){.type = OCT_ARG_TEXT, .text = item->string};
        break;
    default:
        oct_fail(&cause, OCT_INVALID, "expected a number, a text or a boolean; got %s",
                 oct_value_kind_name(item->kind));
        return fail_arg(job, item->key, &cause, err);
    }
    if (oct_model_args_set(args, item->key, arg, &cause) == OCT_OK)
        return OCT_OK;
    return fail_arg(job, item->key, &cause, err);
}
