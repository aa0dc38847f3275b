/* Which tokens begin and end a text: see oct_tokenizer_load. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "file/json.h"
#include "text/bpe.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"

#define CONFIG_NAME "tokenizer_config.json"
#define MAP_NAME "special_tokens_map.json"

static oct_status read_config(const char *path, json_t **root, oct_error *err) {
    char *text;
    size_t n_bytes;
    oct_status status = oct_file_read(path, OCT_MAX_TOKENIZER_BYTES, &text, &n_bytes, err);
    if (status)
        return status;
    status = oct_json_parse(text, n_bytes, path, root, err);
    oct_free(text);
    return status;
}

typedef struct end_rule {
    const char *token_key, *id_key; /* in tokenizer_config.json, generation_config.json */
    const char *names[5];
} end_rule;

static const end_rule bos_rule = {
    "bos_token", "bos_token_id", {"<|begin_of_text|>", "<s>", "<｜begin▁of▁sentence｜>", NULL}};
static const end_rule eos_rule = {
    "eos_token",
    "eos_token_id",
    {"<|end_of_text|>", "<|endoftext|>", "</s>", "<｜end▁of▁sentence｜>", NULL}};

static oct_status pick_by_name(oct_tokenizer_reader *r, const json_t *config, const end_rule *rule,
                               int32_t *id) {
    const json_t *value = json_object_get(config, rule->token_key);
    if (json_is_object(value)) /* a serialised AddedToken */
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return json_is_null(value)
                   ? OCT_OK
                   : oct_reader_wrong_type(r, rule->token_key, "a token or null", value);
    if (!json_string_length(value)) /* written where there is none */
        return OCT_OK;
    *id = oct_tokenizer_find(r->tokenizer, json_string_value(value), json_string_length(value));
    if (*id >= 0)
        return OCT_OK;
    return oct_fail(r->err, OCT_INVALID,
                    "%s: %s: no such token; expected one of tokenizer.json; got \"%s\"", r->path,
                    rule->token_key, oct_show(json_string_value(value)).text);
}

static oct_status pick_by_id(oct_tokenizer_reader *r, const json_t *config, const end_rule *rule,
                             int32_t *id) {
    const json_t *value = json_object_get(config, rule->id_key);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!json_is_integer(value))
        return json_is_null(value) ? OCT_OK
                                   : oct_reader_wrong_type(r, rule->id_key, "an id or null", value);
    size_t n_bytes;
    json_int_t number = json_integer_value(value);
    if (number < 0 || number >= OCT_BPE_MAX_IDS ||
        !oct_tokenizer_token(r->tokenizer, (int32_t)number, &n_bytes))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: no such token; expected an id of tokenizer.json; got %" PRId64,
                        r->path, rule->id_key, (int64_t)number);
    *id = (int32_t)number;
    return OCT_OK;
}

static void pick_by_known_names(oct_tokenizer_reader *r, const end_rule *rule, int32_t *id) {
    const oct_tokenizer *t = r->tokenizer;
    for (int k = 0; rule->names[k] && *id < 0; k++)
        for (size_t i = 0; i < t->n_added && *id < 0; i++)
            if (strcmp(t->added[i].content, rule->names[k]) == 0)
                *id = t->added[i].id;
}

typedef oct_status (*end_picker)(oct_tokenizer_reader *r, const json_t *config,
                                 const end_rule *rule, int32_t *id);

/* Lets `pick` choose from the file `name` beside the tokenizer, for the ends not yet `said`. */
static oct_status read_side_file(oct_tokenizer_reader *r, const char *folder, const char *name,
                                 end_picker pick, const char *const keys[2], bool said[2]) {
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(r->err);
    json_t *config = NULL;
    oct_tokenizer_reader side = {.path = path, .tokenizer = r->tokenizer, .err = r->err};
    oct_status status = oct_path_exists(path) ? read_config(path, &config, r->err) : OCT_OK;
    const end_rule *rules[2] = {&bos_rule, &eos_rule};
    int32_t *ids[2] = {&r->tokenizer->bos, &r->tokenizer->eos};
    for (int i = 0; i < 2 && config && !status; i++) {
        if (said[i] || !json_object_get(config, keys[i]))
            continue;
        said[i] = true;
        status = pick(&side, config, rules[i], ids[i]);
    }
    json_decref(config);
    oct_free(path);
    return status;
}

/* transformers lets special_tokens_map.json win over a tokenizer_config.json that has no
 * added_tokens_decoder yet (tokenization_utils_base.py, from_pretrained). */
static oct_status is_older(oct_tokenizer_reader *r, const char *folder, bool *older) {
    char *path = oct_path_join(folder, CONFIG_NAME);
    json_t *config = NULL;
    if (!path)
        return oct_fail_memory(r->err);
    oct_status status = oct_path_exists(path) ? read_config(path, &config, r->err) : OCT_OK;
    *older = !json_object_get(config, "added_tokens_decoder");
    json_decref(config);
    oct_free(path);
    return status;
}

static oct_status read_names(oct_tokenizer_reader *r, const char *folder, bool said[2]) {
    static const char *const keys[2] = {"bos_token", "eos_token"};
    const char *files[2] = {CONFIG_NAME, MAP_NAME};
    bool older = false;
    oct_status status = is_older(r, folder, &older);
    for (int i = 0; i < 2 && !status; i++)
        status = read_side_file(r, folder, files[older ? 1 - i : i], pick_by_name, keys, said);
    return status;
}

oct_status oct_reader_ends(oct_tokenizer_reader *r, const char *folder) {
    static const char *const id_keys[2] = {"bos_token_id", "eos_token_id"};
    oct_tokenizer *t = r->tokenizer;
    bool said[2] = {false, false};
    t->bos = t->eos = -1;
    oct_status status = OCT_OK;
    if (folder)
        status = read_names(r, folder, said);
    if (!status && folder)
        status = read_side_file(r, folder, "generation_config.json", pick_by_id, id_keys, said);
    if (status)
        return status;
    if (!said[0])
        pick_by_known_names(r, &bos_rule, &t->bos);
    if (!said[1])
        pick_by_known_names(r, &eos_rule, &t->eos);
    return OCT_OK;
}
