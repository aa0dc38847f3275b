/* Saving checkpoints: see checkpoint.h. Order is the whole point: every file, then the manifest,
 * then the folder, then the name; older steps go last. */
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "checkpoint/format.h"
#include "checkpoint/step_folder.h"
#include "file/file_sink.h"
#include "file/json.h"
#include "tensors/shard_files.h"

/* Whether a file that the caller names may have this name beside those that are always there. */
static bool is_free_name(const char *name) {
    return oct_is_plain_file_name(name) && oct_utf8_is_valid(name) &&
           strcmp(name, OCT_CHECKPOINT_MANIFEST) != 0 && strcmp(name, OCT_CHECKPOINT_STATE) != 0 &&
           !oct_is_shard_name(name);
}

/* Whether the name of file i is the config's, or that of a file before it. */
static bool names_before(const oct_checkpoint_contents *c, size_t i) {
    bool found = c->config_name && strcmp(c->config_name, c->files[i].name) == 0;
    for (size_t k = 0; k < i; k++)
        found |= strcmp(c->files[k].name, c->files[i].name) == 0;
    return found;
}

static oct_status check_contents(const oct_checkpoint_contents *c, oct_error *err) {
    json_t *state = NULL;
    if (c->step < 0)
        return oct_fail(err, OCT_INVALID, "checkpoint: step: expected >= 0; got %" PRId64, c->step);
    if (!c->state_json || !c->kernel_set || !c->gemm || (c->config_name && !c->config_text))
        return oct_fail(err, OCT_INVALID,
                        "checkpoint: expected a state, a kernel set, a gemm mode and a text for a "
                        "named config");
    if (c->config_name && !is_free_name(c->config_name))
        return oct_fail(err, OCT_INVALID,
                        "checkpoint: config name: expected a plain file name that no other file of "
                        "a checkpoint has; got '%s'",
                        oct_show(c->config_name).text);
    for (size_t i = 0; i < c->n_files; i++)
        if (!is_free_name(c->files[i].name) || names_before(c, i))
            return oct_fail(err, OCT_INVALID,
                            "checkpoint: file name: expected a plain one that no other file of a "
                            "checkpoint has; got '%s'",
                            oct_show(c->files[i].name).text);
    oct_status status =
        oct_json_parse(c->state_json, strlen(c->state_json), "checkpoint: state", &state, err);
    json_decref(state);
    return status;
}

static void put_file(oct_strbuf *to, const char *name, oct_file_receipt receipt, bool first) {
    oct_strbuf_puts(to, first ? "\n  " : ",\n  ");
    oct_json_put_string(to, name);
    oct_strbuf_printf(to, ": {\"bytes\": %zu, \"xxh3\": \"%016" PRIx64 "\"}", receipt.n_bytes,
                      receipt.xxh3);
}

static void put_tensors(oct_strbuf *to, const oct_checkpoint_contents *c,
                        oct_checkpoint_group group, const oct_shards *shards) {
    char name[OCT_SHARD_NAME_SIZE];
    for (int64_t i = 0; i < c->n_tensors[group]; i++) {
        const oct_safetensors_item *item = &c->tensors[group][i];
        oct_shards_name(shards, shards->shard_of[i], name);
        oct_strbuf_puts(to, i ? ",\n  " : "\n  ");
        oct_json_put_string(to, item->name);
        oct_strbuf_printf(to, ": {\"dtype\": \"%s\", \"shape\": [",
                          oct_safetensors_dtype_name(item->dtype));
        for (int d = 0; d < item->n_dims; d++)
            oct_strbuf_printf(to, "%s%" PRId64, d ? ", " : "", item->shape[d]);
        oct_strbuf_printf(to,
                          "], \"pieces\": [{\"file\": \"%s\", \"row\": 0, \"rows\": %" PRId64 "}]}",
                          name, item->n_dims ? item->shape[0] : 1);
    }
}

static void put_manifest(oct_strbuf *to, const oct_checkpoint_contents *c, const oct_shards *shards,
                         oct_file_receipt state, oct_file_receipt config,
                         const oct_file_receipt *files) {
    char name[OCT_SHARD_NAME_SIZE];
    oct_strbuf_printf(to,
                      "{\"format\": \"" OCT_CHECKPOINT_FORMAT "\",\n \"version\": %d,\n"
                      " \"step\": %" PRId64 ",\n \"kernel_set\": ",
                      OCT_CHECKPOINT_VERSION, c->step);
    oct_json_put_string(to, c->kernel_set);
    oct_strbuf_puts(to, ",\n \"gemm\": ");
    oct_json_put_string(to, c->gemm);
    if (c->config_name) {
        oct_strbuf_puts(to, ",\n \"config\": ");
        oct_json_put_string(to, c->config_name);
    }
    oct_strbuf_puts(to, ",\n \"files\": {");
    put_file(to, OCT_CHECKPOINT_STATE, state, true);
    if (c->config_name)
        put_file(to, c->config_name, config, false);
    for (size_t i = 0; i < c->n_files; i++)
        put_file(to, c->files[i].name, files[i], false);
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++)
        for (int64_t s = 0; s < shards[g].n_shards; s++) {
            oct_shards_name(&shards[g], s, name);
            put_file(to, name, shards[g].receipts[s], false);
        }
    oct_strbuf_puts(to, "},\n \"tensors\": {");
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++) {
        oct_strbuf_printf(to, "%s\"%s\": {", g ? ",\n " : "", oct_checkpoint_group_name[g]);
        put_tensors(to, c, (oct_checkpoint_group)g, &shards[g]);
        oct_strbuf_puts(to, "}");
    }
    oct_strbuf_puts(to, "}}\n");
}

static oct_status put_bytes(const char *folder, const char *name, const char *bytes, size_t n_bytes,
                            oct_file_receipt *receipt, oct_error *err) {
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = oct_file_sink_put(path, bytes, n_bytes, receipt, err);
    oct_free(path);
    return status;
}

static oct_status put_text(const char *folder, const char *name, const char *text,
                           oct_file_receipt *receipt, oct_error *err) {
    return put_bytes(folder, name, text, strlen(text), receipt, err);
}

/* All files of the checkpoint into the empty folder `temporary`, the manifest last. */
static oct_status write_files(const char *temporary, const oct_checkpoint_contents *c,
                              oct_error *err) {
    oct_shards shards[OCT_CHECKPOINT_N_GROUPS] = {{0}};
    oct_file_receipt state = {0}, config = {0};
    oct_file_receipt *files = oct_calloc_array(c->n_files + 1, sizeof *files);
    oct_strbuf manifest = {0};
    oct_status status = files ? OCT_OK : oct_fail_memory(err);
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS && !status; g++) {
        shards[g].prefix = oct_checkpoint_group_name[g];
        status =
            oct_shards_plan(c->tensors[g], c->n_tensors[g], c->max_shard_bytes, &shards[g], err);
        if (!status)
            status = oct_shards_write(&shards[g], temporary, c->tensors[g], c->n_tensors[g], err);
    }
    if (!status)
        status = put_text(temporary, OCT_CHECKPOINT_STATE, c->state_json, &state, err);
    if (!status && c->config_name)
        status = put_text(temporary, c->config_name, c->config_text, &config, err);
    for (size_t i = 0; i < c->n_files && !status; i++)
        status = put_bytes(temporary, c->files[i].name, c->files[i].bytes, c->files[i].n_bytes,
                           &files[i], err);
    if (!status) {
        put_manifest(&manifest, c, shards, state, config, files);
        status = manifest.failed
                     ? oct_fail_memory(err)
                     : put_text(temporary, OCT_CHECKPOINT_MANIFEST, manifest.text, NULL, err);
    }
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++)
        oct_shards_free(&shards[g]);
    oct_strbuf_free(&manifest);
    oct_free(files);
    return status;
}

/* Only what training could go on from counts as kept: a damaged folder, a copy under another step's
 * name or a model without its state never push out a good one. What isn't a checkpoint stays, as
 * nobody knows what it is. */
static void prune(const char *folder, const oct_checkpoint_contents *written,
                  int64_t keep_latest_k) {
    int64_t *steps = NULL, kept = written->n_tensors[OCT_CHECKPOINT_OPTIMIZER] > 0;
    size_t n = 0;
    oct_error why = {0};
    if (keep_latest_k < 1)
        return;
    if (oct_step_folders_list(folder, &steps, &n, &why))
        oct_log_warning("%s", why.message);
    for (size_t i = 0; i < n; i++) {
        why = (oct_error){0};
        oct_checkpoint_worth worth = steps[i] == written->step
                                         ? OCT_CHECKPOINT_UNUSABLE
                                         : oct_checkpoint_judge(folder, steps[i]);
        if (worth == OCT_CHECKPOINT_UNUSABLE)
            continue;
        if (kept < keep_latest_k)
            kept += worth == OCT_CHECKPOINT_WHOLE;
        else if (oct_step_folder_remove(folder, steps[i], &why))
            oct_log_warning("an old checkpoint stays: %s", why.message);
    }
    oct_free(steps);
}

oct_status oct_checkpoint_save(const char *folder, const oct_checkpoint_contents *contents,
                               int64_t keep_latest_k, oct_error *err) {
    oct_status status = check_contents(contents, err);
    if (!status)
        status = oct_make_folders(folder, err);
    if (status)
        return status;
    oct_step_folders_sweep(folder);
    char *temporary = oct_step_folder_path(folder, contents->step, ".tmp");
    if (!temporary)
        return oct_fail_memory(err);
    if (mkdir(temporary, 0777) != 0)
        status = oct_fail(err, OCT_FAILED, "%s: the folder can't be made: %s", temporary,
                          strerror(errno));
    if (!status)
        status = write_files(temporary, contents, err);
    if (!status)
        status = oct_folder_sync(temporary, err);
    if (!status)
        status = oct_step_folder_publish(folder, contents->step, temporary, err);
    if (status)
        oct_remove_tree(temporary, NULL);
    else
        prune(folder, contents, keep_latest_k);
    oct_free(temporary);
    return status;
}
