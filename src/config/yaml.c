/* YAML into the tree of values, from the events of libfyaml.
 *
 * Invariant: an alias shares the items of what it names and is counted as if it were written out,
 * so a document that would unfold beyond the limits of value.h fails before anyone walks it. An
 * anchor is known only after its node is complete: nothing can hold itself. */
#include "config/value.h"

#include <errno.h>
#include <libfyaml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

#define MAX_ANCHORS 1024

typedef struct anchor {
    const char *name; /* in the arena */
    const oct_value *value;
} anchor;

/* A list or table that is still open. */
typedef struct frame {
    oct_value *value;
    const char *anchor; /* name, or NULL */
    const char *key;    /* tables: the key that waits for its value, else NULL */
    size_t key_bytes;
    bool key_is_merge;
    int key_line;      /* 0: a key that isn't written has no place of its own, its value has */
    oct_value *merges; /* list of the tables named by `<<`, or NULL */
} frame;

typedef struct reader {
    oct_value_builder builder;
    frame frames[OCT_VALUE_MAX_DEPTH];
    int depth;
    anchor anchors[MAX_ANCHORS];
    int n_anchors;
    oct_value *root;
    int n_documents;
} reader;

static bool in_words(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* Copies a number's text without the underscores that YAML 1.1 allows between digits; false when
 * the text can't be a number. */
static bool number_text(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text; text++) {
        if (*text == '_')
            continue;
        if (!strchr("0123456789+-.eExXabcdfABCDF", *text) || n + 1 >= size)
            return false;
        out[n++] = *text;
    }
    out[n] = '\0';
    return n > 0;
}

static bool is_decimal_int(const char *text) {
    text += *text == '-' || *text == '+';
    if (text[0] == '0')
        return text[1] == '\0'; /* 012 is octal in YAML 1.1 and decimal in 1.2: neither here */
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool is_hex_int(const char *text) {
    return text[0] == '0' && text[1] == 'x' && text[2] &&
           text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] == '\0';
}

/* Digits with a dot, an exponent, or both. */
static bool is_float(const char *text) {
    text += *text == '-' || *text == '+';
    size_t n_digits = strspn(text, "0123456789");
    text += n_digits;
    bool dot = *text == '.';
    if (dot) {
        size_t after = strspn(text + 1, "0123456789");
        n_digits += after;
        text += 1 + after;
    }
    if (n_digits == 0)
        return false;
    if (*text != 'e' && *text != 'E')
        return dot && *text == '\0';
    text++;
    text += *text == '-' || *text == '+';
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool parse_special_float(const char *text, double *number) {
    static const char *const infinity[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nan_words[] = {".nan", ".NaN", ".NAN", NULL};
    bool minus = *text == '-';
    if (in_words(text, nan_words))
        *number = NAN;
    else if (in_words(text + (minus || *text == '+'), infinity))
        *number = minus ? -INFINITY : INFINITY;
    else
        return false;
    return true;
}

/* The type of a scalar without quotes follows from its looks. */
static oct_value *new_plain(reader *r, const char *text, size_t n_bytes, int line, int column) {
    static const char *const null_words[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const true_words[] = {"true", "True", "TRUE", "yes", "Yes",
                                             "YES",  "on",   "On",   "ON",  NULL};
    static const char *const false_words[] = {"false", "False", "FALSE", "no",  "No",
                                              "NO",    "off",   "Off",   "OFF", NULL};
    oct_value *v = oct_value_new_string(&r->builder, text, n_bytes, line, column);
    if (!v)
        return NULL;
    char number[64];
    if (in_words(v->string, null_words)) {
        v->kind = OCT_VALUE_NULL;
    } else if (in_words(v->string, true_words) || in_words(v->string, false_words)) {
        bool truth = in_words(v->string, true_words);
        v->kind = OCT_VALUE_BOOL;
        v->boolean = truth;
    } else if (parse_special_float(v->string, &v->number)) {
        v->kind = OCT_VALUE_DOUBLE;
    } else if (number_text(v->string, number, sizeof number)) {
        errno = 0;
        if (is_decimal_int(number) || is_hex_int(number)) {
            long long integer = strtoll(number, NULL, is_hex_int(number) ? 16 : 10);
            if (errno == ERANGE) {
                oct_fail(r->builder.err, OCT_INVALID,
                         "%s:%d: an integer doesn't fit in 64 bits; got %s", r->builder.path, line,
                         number);
                return NULL;
            }
            v->kind = OCT_VALUE_INT;
            v->integer = integer;
        } else if (is_float(number)) {
            v->kind = OCT_VALUE_DOUBLE;
            v->number = strtod(number, NULL);
        }
    }
    return v;
}

static oct_status fail_at(reader *r, int line, const char *what) {
    return oct_fail(r->builder.err, OCT_INVALID, "%s:%d: %s", r->builder.path, line, what);
}

static oct_status add_anchor(reader *r, const char *name, const oct_value *value) {
    for (int i = 0; i < r->n_anchors; i++)
        if (strcmp(r->anchors[i].name, name) == 0) {
            r->anchors[i].value = value; /* YAML: the latest wins */
            return OCT_OK;
        }
    if (r->n_anchors == MAX_ANCHORS)
        return fail_at(r, value->line, "too many anchors");
    r->anchors[r->n_anchors++] = (anchor){name, value};
    return OCT_OK;
}

/* Hangs a finished value where the parser is: root, list item, or value of the waiting key. */
static oct_status place(reader *r, oct_value *value) {
    if (r->depth == 0) {
        r->root = value;
        return OCT_OK;
    }
    frame *top = &r->frames[r->depth - 1];
    if (top->value->kind == OCT_VALUE_LIST)
        return oct_value_append(&r->builder, top->value, NULL, 0, value);
    if (!top->key)
        return fail_at(r, value->line, "a key must be a plain text");
    const char *key = top->key;
    top->key = NULL;
    if (!top->key_is_merge) {
        value->line = top->key_line ? top->key_line : value->line;
        return oct_value_append(&r->builder, top->value, key, top->key_bytes, value);
    }
    if (!top->merges &&
        !(top->merges = oct_value_new(&r->builder, OCT_VALUE_LIST, value->line, value->column)))
        return r->builder.err->status;
    return oct_value_append(&r->builder, top->merges, NULL, 0, value);
}

/* Items of `from` that `into` doesn't have. */
static oct_status merge_table(reader *r, oct_value *into, const oct_value *from, int line) {
    if (from->kind != OCT_VALUE_TABLE)
        return fail_at(r, line, "`<<` merges tables only");
    for (const oct_value *item = from->items.first; item; item = item->next) {
        if (oct_value_find(into, item->key))
            continue;
        oct_value *copy = oct_value_copy(&r->builder, item);
        if (!copy)
            return r->builder.err->status;
        oct_status status = oct_value_append(&r->builder, into, item->key, strlen(item->key), copy);
        if (status)
            return status;
    }
    return OCT_OK;
}

static oct_status apply_merges(reader *r, const frame *f) {
    if (!f->merges)
        return OCT_OK;
    for (const oct_value *m = f->merges->items.first; m; m = m->next) {
        oct_status status = OCT_OK;
        if (m->kind != OCT_VALUE_LIST)
            status = merge_table(r, f->value, m, m->line);
        else
            for (const oct_value *t = m->items.first; t && !status; t = t->next)
                status = merge_table(r, f->value, t, m->line);
        if (status)
            return status;
    }
    return OCT_OK;
}

static const struct fy_mark origin;

static const struct fy_mark *mark_of(struct fy_event *event) {
    const struct fy_mark *mark = fy_event_start_mark(event);
    return mark ? mark : &origin;
}

/* The token's text in the arena, or NULL with the error filled. */
static const char *token_text(reader *r, struct fy_token *token, int line, size_t *n_bytes) {
    const char *text = fy_token_get_text(token, n_bytes);
    if (!text) {
        text = "";
        *n_bytes = 0;
    }
    oct_value *v = oct_value_new_string(&r->builder, text, *n_bytes, line, 0);
    return v ? v->string : NULL;
}

static oct_status read_anchor(reader *r, struct fy_token *token, int line, const char **name) {
    size_t n_bytes;
    *name = NULL;
    if (!token)
        return OCT_OK;
    *name = token_text(r, token, line, &n_bytes);
    return *name ? OCT_OK : r->builder.err->status;
}

/* What isn't written, `: value`, libfyaml 0.7 gives no mark and 0.8 that of the line before. */
static oct_status on_key(reader *r, frame *top, struct fy_token *token, int line) {
    const char *text = token_text(r, token, line, &top->key_bytes);
    if (!text)
        return r->builder.err->status;
    bool plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
    top->key_is_merge = plain && strcmp(text, "<<") == 0;
    top->key = text;
    top->key_line = plain && top->key_bytes == 0 ? 0 : line;
    return OCT_OK;
}

static oct_status on_scalar(reader *r, struct fy_event *event) {
    int line = mark_of(event)->line + 1, column = mark_of(event)->column + 1;
    struct fy_token *token = event->scalar.value;
    if (event->scalar.tag)
        return fail_at(r, line, "tags (!...) have no meaning here");
    frame *top = r->depth ? &r->frames[r->depth - 1] : NULL;
    if (top && top->value->kind == OCT_VALUE_TABLE && !top->key) {
        if (event->scalar.anchor)
            return fail_at(r, line, "an anchor on a key has no meaning here");
        return on_key(r, top, token, line);
    }
    size_t n_bytes = 0;
    const char *text = token ? fy_token_get_text(token, &n_bytes) : NULL;
    bool plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
    oct_value *v = plain ? new_plain(r, text ? text : "", text ? n_bytes : 0, line, column)
                         : oct_value_new_string(&r->builder, text ? text : "", text ? n_bytes : 0,
                                                line, column);
    if (!v)
        return r->builder.err->status;
    const char *name;
    oct_status status = read_anchor(r, event->scalar.anchor, line, &name);
    if (!status && name)
        status = add_anchor(r, name, v);
    if (status)
        return status;
    oct_value *hung = name ? oct_value_copy(&r->builder, v) : v;
    return hung ? place(r, hung) : r->builder.err->status;
}

static oct_status on_start(reader *r, struct fy_event *event, oct_value_kind kind,
                           struct fy_token *anchor_token, struct fy_token *tag) {
    int line = mark_of(event)->line + 1, column = mark_of(event)->column + 1;
    if (tag)
        return fail_at(r, line, "tags (!...) have no meaning here");
    if (r->depth == OCT_VALUE_MAX_DEPTH)
        return fail_at(r, line, "nested too deeply; at most 64 levels");
    frame *top = r->depth ? &r->frames[r->depth - 1] : NULL;
    if (top && top->value->kind == OCT_VALUE_TABLE && !top->key)
        return fail_at(r, line, "a key must be a plain text");
    frame f = {.value = oct_value_new(&r->builder, kind, line, column)};
    if (!f.value)
        return r->builder.err->status;
    oct_status status = read_anchor(r, anchor_token, line, &f.anchor);
    if (!status)
        r->frames[r->depth++] = f;
    return status;
}

static oct_status on_end(reader *r) {
    frame *f = &r->frames[--r->depth];
    oct_status status = apply_merges(r, f);
    if (!status && f->anchor) {
        const oct_value *named = oct_value_copy(&r->builder, f->value);
        status = named ? add_anchor(r, f->anchor, named) : r->builder.err->status;
    }
    return status ? status : place(r, f->value);
}

static oct_status on_alias(reader *r, struct fy_event *event) {
    int line = mark_of(event)->line + 1;
    size_t n_bytes;
    const char *name = token_text(r, event->alias.anchor, line, &n_bytes);
    if (!name)
        return r->builder.err->status;
    for (int i = 0; i < r->n_anchors; i++)
        if (strcmp(r->anchors[i].name, name) == 0) {
            oct_value *copy = oct_value_copy(&r->builder, r->anchors[i].value);
            if (!copy)
                return r->builder.err->status;
            copy->line = line;
            copy->column = mark_of(event)->column + 1;
            return place(r, copy);
        }
    return oct_fail(r->builder.err, OCT_INVALID, "%s:%d: *%s: no such anchor before this line",
                    r->builder.path, line, name);
}

static oct_status on_event(reader *r, struct fy_event *event) {
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (r->n_documents++)
            return oct_fail(r->builder.err, OCT_INVALID, "%s: expected one document; got more",
                            r->builder.path);
        return OCT_OK;
    case FYET_SCALAR:
        return on_scalar(r, event);
    case FYET_ALIAS:
        return on_alias(r, event);
    case FYET_MAPPING_START:
        return on_start(r, event, OCT_VALUE_TABLE, event->mapping_start.anchor,
                        event->mapping_start.tag);
    case FYET_SEQUENCE_START:
        return on_start(r, event, OCT_VALUE_LIST, event->sequence_start.anchor,
                        event->sequence_start.tag);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        return on_end(r);
    default:
        return OCT_OK;
    }
}

static oct_status fail_syntax(reader *r, struct fy_diag *diag) {
    void *iterator = NULL;
    const struct fy_diag_error *e = diag ? fy_diag_errors_iterate(diag, &iterator) : NULL;
    if (!e || !e->msg) /* nothing is collected of a %YAML line with a later version */
        return oct_fail(r->builder.err, OCT_INVALID, "%s: not valid YAML; expected YAML 1.1 to 1.3",
                        r->builder.path);
    return oct_fail(r->builder.err, OCT_INVALID, "%s:%d: not valid YAML: %s", r->builder.path,
                    e->line, e->msg);
}

static oct_status run_parser(reader *r, const char *text, size_t n_bytes) {
    oct_status status = OCT_OK;
    struct fy_parser *parser = NULL;
    struct fy_diag_cfg diag_config;
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_config);
    if (!diag)
        return oct_fail_memory(r->builder.err);
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE,
                                  .diag = diag};
    parser = fy_parser_create(&config);
    if (!parser || fy_parser_set_string(parser, text, n_bytes)) {
        status = oct_fail_memory(r->builder.err);
        goto cleanup;
    }
    struct fy_event *event;
    while (!status && (event = fy_parser_parse(parser))) {
        status = on_event(r, event);
        fy_parser_event_free(parser, event);
    }
    if (!status && fy_parser_get_stream_error(parser))
        status = fail_syntax(r, diag);
cleanup:
    fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    return status;
}

/* The parser takes a byte that is no text for the end of the file, without a word. */
static oct_status check_text(const char *path, const char *text, size_t n_bytes, oct_error *err) {
    int line = 1;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = oct_utf8_length(text + i, n_bytes - i);
        if (n == 0 || text[i] == '\0')
            return oct_fail(err, OCT_INVALID,
                            "%s:%d: not valid YAML: expected UTF-8 text; got the byte 0x%02x", path,
                            line, (unsigned)(unsigned char)text[i]);
        line += text[i] == '\n';
    }
    return OCT_OK;
}

/* Any value; an empty text is an empty value of the kind `empty`. */
static oct_status parse(const char *path, const char *text, size_t n_bytes, oct_arena *arena,
                        oct_value_kind empty, oct_value **root, oct_error *err) {
    reader *r = oct_calloc_array(1, sizeof *r);
    *root = NULL;
    if (!r)
        return oct_fail_memory(err);
    r->builder = (oct_value_builder){path, arena, err};
    oct_status status = check_text(path, text, n_bytes, err);
    if (!status)
        status = run_parser(r, text, n_bytes);
    if (!status && (!r->root || r->root->kind == OCT_VALUE_NULL)) {
        r->root = oct_value_new(&r->builder, empty, 1, 1);
        status = r->root ? OCT_OK : OCT_NO_MEMORY;
    }
    *root = status ? NULL : r->root;
    oct_free(r);
    return status;
}

oct_status oct_yaml_parse(const char *path, const char *text, size_t n_bytes, oct_arena *arena,
                          const oct_value **root, oct_error *err) {
    oct_error local = {0};
    oct_value *value;
    *root = NULL;
    err = err ? err : &local;
    oct_status status = parse(path, text, n_bytes, arena, OCT_VALUE_TABLE, &value, err);
    if (!status && value->kind != OCT_VALUE_TABLE)
        status = oct_fail(err, OCT_INVALID, "%s:%d: expected a table of keys; got %s", path,
                          value->line, oct_value_kind_name(value->kind));
    if (!status)
        *root = value;
    return status;
}

static void forget_places(oct_value *value) {
    value->line = value->column = 0;
    if (value->kind == OCT_VALUE_LIST || value->kind == OCT_VALUE_TABLE)
        for (const oct_value *item = value->items.first; item; item = item->next)
            forget_places((oct_value *)item);
}

oct_status oct_yaml_parse_value(const char *text, oct_arena *arena, const oct_value **value,
                                oct_error *err) {
    oct_error local = {0};
    oct_value *root;
    oct_status status =
        parse("", text, strlen(text), arena, OCT_VALUE_NULL, &root, err ? err : &local);
    *value = root;
    if (!status)
        forget_places(root);
    return status;
}
