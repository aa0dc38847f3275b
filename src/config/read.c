/* Files into trees of values: see value.h. */
#include "base/alloc.h"
#include "base/fs.h"
#include "config/value.h"

typedef oct_status parse_function(const char *path, const char *text, size_t n_bytes,
                                  oct_arena *arena, const oct_value **root, oct_error *err);

static oct_status read_file(parse_function *parse, const char *path, oct_arena *arena,
                            const oct_value **root, oct_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    *root = NULL;
    oct_status status = oct_file_read(path, OCT_VALUE_MAX_BYTES, &text, &n_bytes, err);
    if (!status)
        status = parse(path, text, n_bytes, arena, root, err);
    oct_free(text);
    return status;
}

oct_status oct_toml_read(const char *path, oct_arena *arena, const oct_value **root,
                         oct_error *err) {
    return read_file(oct_toml_parse, path, arena, root, err);
}

oct_status oct_yaml_read(const char *path, oct_arena *arena, const oct_value **root,
                         oct_error *err) {
    return read_file(oct_yaml_parse, path, arena, root, err);
}
