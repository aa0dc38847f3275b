/* A trained model, wherever it is: see model_source.h. */
#include "job/model_source.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "checkpoint/locate.h"
#include "job/hf_model.h"
#include "job/model_record.h"
#include "job/setup.h"
#include "job/variant.h"

/* ---- a folder ---- */

enum { MAX_OWN = 5 };

/* What a folder says in the place of a job file; the user's overrides come after. */
typedef struct overrides {
    oct_strbuf own[MAX_OWN];
    int n;
    const char **all;
} overrides;

static void free_overrides(overrides *o) {
    for (int i = 0; i < o->n; i++)
        oct_strbuf_free(&o->own[i]);
    oct_free(o->all);
}

static bool is_set(const oct_model_use *use, const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < use->n_overrides; i++)
        if (strncmp(use->overrides[i], key, n) == 0 && strchr("= ", use->overrides[i][n]))
            return true;
    return false;
}

static void put_own(overrides *o, const oct_model_use *use, const char *key, const char *value) {
    if (!is_set(use, key))
        oct_strbuf_printf(&o->own[o->n++], "%s=%s", key, value);
}

/* Experts run as grouped products, so that a recipe converts them too; the choice of experts stays
 * in high precision. */
static oct_status make_overrides(const oct_model_source *s, const oct_model_use *use,
                                 overrides *o) {
    bool experts = s->args.num_experts > 0;
    put_own(o, use, "--model.name", oct_model_family_name(s->args.family));
    put_own(o, use, "--model.hf_assets_path", s->path);
    if (strcmp(s->hf.torch_dtype, "float32") == 0)
        put_own(o, use, "--training.mixed_precision_param", "float32");
    if (experts && use->recipe) {
        put_own(o, use, "--model.converters", "npu_gmm");
        put_own(o, use, "--quantize.linear.mx.filter_fqns", "output,router.gate");
    }
    o->all = oct_malloc_array((size_t)(o->n + use->n_overrides) + 1, sizeof *o->all);
    if (!o->all)
        return OCT_NO_MEMORY;
    for (int i = 0; i < o->n; i++) {
        if (o->own[i].failed)
            return OCT_NO_MEMORY;
        o->all[i] = o->own[i].text;
    }
    for (int i = 0; i < use->n_overrides; i++)
        o->all[o->n + i] = use->overrides[i];
    return OCT_OK;
}

static oct_status open_folder(oct_model_source *s, const oct_model_use *use, oct_error *err) {
    overrides o = {0};
    oct_status status = oct_hf_config_read(s->path, &s->hf, err);
    if (!status)
        status = oct_setup_model_args_from_hf(s->path, &s->args, err);
    if (!status && make_overrides(s, use, &o) != OCT_OK)
        status = oct_fail_memory(err);
    if (!status)
        status = oct_variant_load("", o.all, o.n + use->n_overrides, use->recipe, &s->job, err);
    if (!status)
        status = oct_setup_own_args(&s->job, &s->args, err);
    if (!status && !oct_job_is_set(&s->job, "training.seq_len"))
        s->job.training.seq_len = oct_min_i64(s->job.training.seq_len, s->args.max_seq_len);
    free_overrides(&o);
    return status;
}

/* ---- a checkpoint ---- */

static oct_status open_checkpoint(oct_model_source *s, const char *path, const oct_model_use *use,
                                  oct_error *err) {
    oct_status status = oct_checkpoint_locate(path, &s->checkpoint, err);
    if (status)
        return status;
    s->path = oct_strdup(oct_checkpoint_path(s->checkpoint));
    if (!s->path)
        return oct_fail_memory(err);
    if (use->n_overrides > 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: a checkpoint is run by the job that trained it; expected no %s",
                        s->path, use->overrides[0]);
    status = oct_variant_load_saved(s->checkpoint, use->recipe, &s->job, err);
    return status ? status : oct_model_record_read(s->checkpoint, &s->job, &s->args, err);
}

oct_status oct_model_source_open(const char *path, const oct_model_use *use, oct_model_source **out,
                                 oct_error *err) {
    oct_model_source *s = oct_calloc_array(1, sizeof *s);
    *out = NULL;
    if (!s)
        return oct_fail_memory(err);
    oct_status status;
    if (!oct_path_is_hf_folder(path))
        status = open_checkpoint(s, path, use, err);
    else if ((s->path = oct_strdup(path)))
        status = open_folder(s, use, err);
    else
        status = oct_fail_memory(err);
    if (!status)
        *out = s;
    else
        oct_model_source_close(s);
    return status;
}

oct_status oct_model_source_read(const oct_model_source *s, oct_model *model, oct_error *err) {
    if (s->checkpoint)
        return oct_setup_parameters_from_checkpoint(s->checkpoint, model, err);
    return oct_setup_parameters_from_hf(s->path, OCT_HF_ANY_WEIGHTS, model, err);
}

void oct_model_source_close(oct_model_source *s) {
    if (!s)
        return;
    oct_checkpoint_close(s->checkpoint);
    oct_job_free(&s->job);
    oct_free(s->path);
    oct_free(s);
}
