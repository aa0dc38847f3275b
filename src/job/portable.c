/* What a checkpoint carries beside its numbers: see portable.h. */
#include "job/portable.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "job/hf_words.h"

#define TOKENIZER "tokenizer.json"
#define MAX_FILE_BYTES ((size_t)256 << 20)

/* ---- files ---- */

/* Takes over `bytes`. */
static void add(oct_portable *p, const char *name, const char *bytes, size_t n_bytes) {
    p->files[p->n++] = (oct_checkpoint_file){name, bytes, n_bytes};
}

static oct_status add_file(oct_portable *p, const char *path, const char *name, oct_error *err) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    oct_status status = oct_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes, err);
    if (!status)
        add(p, name, bytes, n_bytes);
    return status;
}

/* The files beside tokenizer.json that say more of it, where they are. */
static oct_status add_beside(oct_portable *p, const char *folder, oct_error *err) {
    static const char *const names[] = {"tokenizer_config.json", "generation_config.json",
                                        "special_tokens_map.json", "added_tokens.json",
                                        "chat_template.jinja"};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(names) && !status; i++) {
        char *path = oct_path_join(folder, names[i]);
        if (!path)
            return oct_fail_memory(err);
        if (oct_path_exists(path) && !oct_path_is_folder(path))
            status = add_file(p, path, names[i], err);
        oct_free(path);
    }
    return status;
}

/* As oct_tokenizer_load takes the path: a file of another name has nothing beside it. */
static oct_status add_tokenizer(oct_portable *p, const char *path, oct_error *err) {
    bool is_folder = oct_path_is_folder(path);
    char *file = is_folder ? oct_path_join(path, TOKENIZER) : oct_strdup(path);
    char *folder = oct_strdup(path);
    oct_status status = file && folder ? OCT_OK : oct_fail_memory(err);
    if (!status)
        status = add_file(p, file, TOKENIZER, err);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    bool has_others = !status && (is_folder || strcmp(name, TOKENIZER) == 0);
    if (has_others && !is_folder)
        snprintf(folder, strlen(path) + 1, "%.*s", (int)(name - path), path);
    if (has_others)
        status = add_beside(p, *folder ? folder : ".", err);
    oct_free(file);
    oct_free(folder);
    return status;
}

oct_status oct_portable_read_tokenizer(const char *tokenizer, oct_portable *portable,
                                       oct_error *err) {
    return add_tokenizer(portable, tokenizer, err);
}

oct_status oct_portable_put_words(const oct_model_args *args, const char *origin, const char *dtype,
                                  oct_portable *portable, oct_error *err) {
    oct_strbuf config = {0};
    oct_status status = oct_hf_words_put(args, origin, dtype, &config, NULL, err);
    if (!status && config.failed)
        status = oct_fail_memory(err);
    if (!status && config.length)
        add(portable, "config.json", config.text, config.length);
    else
        oct_strbuf_free(&config);
    return status;
}

void oct_portable_free(oct_portable *portable) {
    for (size_t i = 0; i < portable->n; i++)
        oct_free((char *)portable->files[i].bytes);
    *portable = (oct_portable){0};
}

const char *oct_portable_tokenizer(const oct_portable *portable) {
    for (size_t i = 0; i < portable->n; i++)
        if (strcmp(portable->files[i].name, TOKENIZER) == 0)
            return TOKENIZER;
    return NULL;
}
