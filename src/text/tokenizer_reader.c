/* What all readers of a tokenizer.json's parts share: see tokenizer_reader.h. */
#include <string.h>

#include "file/json.h"
#include "text/tokenizer_reader.h"

#define MAX_SEQUENCE 16

oct_status oct_reader_wrong_type(oct_tokenizer_reader *r, const char *key, const char *expected,
                                 const json_t *value) {
    return oct_fail(r->err, OCT_INVALID, "%s: %s: wrong type; expected %s; got %s", r->path, key,
                    expected, oct_json_kind(value));
}

oct_status oct_reader_bool(oct_tokenizer_reader *r, const json_t *object, const char *key,
                           bool fallback, bool *out) {
    const json_t *value = json_object_get(object, key);
    *out = fallback;
    if (!value || json_is_null(value))
        return OCT_OK;
    if (!json_is_boolean(value))
        return oct_reader_wrong_type(r, key, "true or false", value);
    *out = json_is_true(value);
    return OCT_OK;
}

const char *oct_reader_type(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

oct_status oct_reader_parts(oct_tokenizer_reader *r, const json_t *part, const char *key,
                            const char *list_key, oct_part_reader read) {
    if (!json_is_object(part))
        return oct_reader_wrong_type(r, key, "an object", part);
    if (strcmp(oct_reader_type(part), "Sequence") != 0)
        return read(r, part, key);
    json_t *list = json_object_get(part, list_key);
    if (!json_is_array(list) || json_array_size(list) > MAX_SEQUENCE)
        return oct_reader_wrong_type(r, list_key, "a list of at most 16", list);
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        char place[96];
        snprintf(place, sizeof place, "%s.%s[%zu]", key, list_key, i);
        oct_status status = json_is_object(item)
                                ? read(r, item, place)
                                : oct_reader_wrong_type(r, place, "an object", item);
        if (status)
            return status;
    }
    return OCT_OK;
}

oct_status oct_reader_unsupported_type(oct_tokenizer_reader *r, const json_t *part, const char *key,
                                       const char *expected) {
    return oct_fail(r->err, OCT_INVALID, "%s: %s.type: not supported; expected %s; got \"%s\"",
                    r->path, key, expected, oct_show(oct_reader_type(part)).text);
}
