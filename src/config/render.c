/* The listings: every key a form knows, and every value a job has. One source, the schema, serves
 * the help text, docs/configuration.md and the log. */
#include <inttypes.h>
#include <string.h>

#include "config/settings.h"

static const oct_schema *schema_of(oct_job_form form) {
    return form == OCT_JOB_MINDSPEED ? &oct_schema_mindspeed : &oct_schema_titan;
}

static const char *type_name(const oct_key *key) {
    static const char *const names[] = {"bool", "int",  "float", "text",   "list",
                                        "word", "word", "table", "tables", "any"};
    return names[key->type];
}

static bool is_bare(const oct_key *key) {
    return key->type == OCT_KEY_BOOL || key->type == OCT_KEY_INT || key->type == OCT_KEY_FLOAT ||
           strcmp(key->fallback, "none") == 0;
}

/* The default as TOML writes it. */
static void put_fallback(const oct_key *key, oct_strbuf *b) {
    if (key->type == OCT_KEY_LIST && strcmp(key->fallback, "none") != 0) {
        oct_strbuf_puts(b, "[");
        for (const char *c = key->fallback; *c;) {
            size_t length = strcspn(c, ",");
            oct_strbuf_printf(b, "%s\"%.*s\"", c == key->fallback ? "" : ", ", (int)length, c);
            c += length + (c[length] == ',');
        }
        oct_strbuf_puts(b, "]");
    } else if (key->type == OCT_KEY_ANY || is_bare(key)) {
        oct_strbuf_puts(b, key->fallback);
    } else {
        oct_strbuf_printf(b, "\"%s\"", key->fallback);
    }
}

static void put_meaning(const oct_key *key, oct_strbuf *b) {
    size_t length;
    if (key->kind == OCT_KEY_INERT)
        oct_strbuf_printf(b, "no effect: %s", key->meaning);
    else if (key->kind == OCT_KEY_UNSUPPORTED)
        oct_strbuf_printf(b, "only the default: %s", key->meaning);
    else
        oct_strbuf_puts(b, key->meaning);
    if (!key->choices || key->kind != OCT_KEY_USED)
        return;
    const char *word;
    for (int i = 0; (word = oct_schema_choice(key->choices, i, &length)); i++)
        oct_strbuf_printf(b, "%s%.*s", i ? ", " : ": ", (int)length, word);
}

static size_t section_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static bool opens_section(const oct_schema *schema, size_t i) {
    const char *name = schema->keys[i].name;
    size_t length = section_length(name);
    if (i == 0)
        return true;
    const char *before = schema->keys[i - 1].name;
    return section_length(before) != length || strncmp(before, name, length) != 0;
}

static void put_key_markdown(const oct_schema *schema, size_t i, oct_strbuf *b) {
    const oct_key *key = &schema->keys[i];
    size_t length = section_length(key->name);
    if (opens_section(schema, i)) {
        if (i)
            oct_strbuf_puts(b, "\n");
        if (length)
            oct_strbuf_printf(b, "### `[%.*s]`\n\n", (int)length, key->name);
        oct_strbuf_puts(b, "| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    }
    oct_strbuf_printf(b, "| `%s` | %s | `", key->name + (length ? length + 1 : 0), type_name(key));
    put_fallback(key, b);
    oct_strbuf_puts(b, "` | ");
    put_meaning(key, b);
    oct_strbuf_puts(b, " |\n");
}

static void put_key_text(const oct_key *key, oct_strbuf *b) {
    oct_strbuf_printf(b, "  --%s %s (", key->name, type_name(key));
    put_fallback(key, b);
    oct_strbuf_puts(b, ")\n        ");
    put_meaning(key, b);
    oct_strbuf_puts(b, "\n");
}

void oct_job_render_keys(oct_job_form form, oct_job_markup markup, oct_strbuf *b) {
    const oct_schema *schema = schema_of(form);
    for (size_t i = 0; i < schema->n; i++) {
        if (markup == OCT_JOB_MARKDOWN) {
            put_key_markdown(schema, i, b);
            continue;
        }
        if (i && opens_section(schema, i))
            oct_strbuf_puts(b, "\n");
        put_key_text(&schema->keys[i], b);
    }
}

bool oct_job_render_key(oct_job_form form, const char *key, oct_strbuf *b) {
    const oct_schema *schema = schema_of(form);
    for (size_t i = 0; i < schema->n; i++)
        if (strcmp(schema->keys[i].name, key) == 0) {
            put_key_text(&schema->keys[i], b);
            return true;
        }
    return false;
}

static void put_string(const char *text, oct_strbuf *b) {
    oct_strbuf_puts(b, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            oct_strbuf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            oct_strbuf_printf(b, "\\u%04x", c);
        else
            oct_strbuf_append(b, text, 1);
    }
    oct_strbuf_puts(b, "\"");
}

static void put_double(double x, oct_strbuf *b) {
    char text[40];
    oct_value_format_double(x, text, sizeof text);
    oct_strbuf_puts(b, text);
}

static void put_value(const oct_value *v, oct_strbuf *b);

static void put_items(const oct_value *v, const char *open, const char *close, oct_strbuf *b) {
    oct_strbuf_puts(b, open);
    for (const oct_value *item = v->items.first; item; item = item->next) {
        oct_strbuf_puts(b, item == v->items.first ? "" : ", ");
        if (v->kind == OCT_VALUE_TABLE) {
            put_string(item->key, b);
            oct_strbuf_puts(b, " = ");
        }
        put_value(item, b);
    }
    oct_strbuf_puts(b, close);
}

/* As deep as a tree of values may be, which is bounded. */
static void put_value(const oct_value *v, oct_strbuf *b) {
    switch (v->kind) {
    case OCT_VALUE_BOOL:
        oct_strbuf_puts(b, v->boolean ? "true" : "false");
        break;
    case OCT_VALUE_INT:
        oct_strbuf_printf(b, "%" PRId64, v->integer);
        break;
    case OCT_VALUE_DOUBLE:
        put_double(v->number, b);
        break;
    case OCT_VALUE_STRING:
        put_string(v->string, b);
        break;
    case OCT_VALUE_LIST:
        put_items(v, "[", "]", b);
        break;
    case OCT_VALUE_TABLE:
        put_items(v, "{", "}", b);
        break;
    case OCT_VALUE_NULL:
        oct_strbuf_puts(b, "none");
    }
}

static void put_list(const oct_job_list *list, oct_strbuf *b) {
    oct_strbuf_puts(b, "[");
    for (size_t i = 0; i < list->n; i++) {
        oct_strbuf_puts(b, i ? ", " : "");
        put_string(list->items[i], b);
    }
    oct_strbuf_puts(b, "]");
}

/* False when the member holds nothing (an optional number, text or table). */
static bool put_member(const oct_job *job, const oct_key *key, oct_strbuf *b) {
    const void *member = (const char *)job + key->offset;
    const char *text;
    size_t length;
    bool optional = strcmp(key->fallback, "none") == 0; /* a number says none by -1 */
    switch (key->type) {
    case OCT_KEY_BOOL:
        oct_strbuf_puts(b, *(const bool *)member ? "true" : "false");
        return true;
    case OCT_KEY_INT:
        oct_strbuf_printf(b, "%" PRId64, *(const int64_t *)member);
        return !optional || *(const int64_t *)member != -1;
    case OCT_KEY_FLOAT:
        put_double(*(const double *)member, b);
        return !optional || *(const double *)member != -1;
    case OCT_KEY_LIST:
        put_list(member, b);
        return true;
    case OCT_KEY_CHOICE:
        if (optional && *(const int *)member == OCT_JOB_UNSAID)
            return false;
        text = oct_schema_choice(key->choices, (int)*(const unsigned *)member, &length);
        if (text)
            oct_strbuf_printf(b, "\"%.*s\"", (int)length, text);
        else
            oct_strbuf_puts(b, "\"constant\""); /* of a YAML job */
        return true;
    case OCT_KEY_TABLES: {
        const oct_job_overrides *overrides = member;
        if (overrides->value)
            put_value(overrides->value, b);
        return overrides->value != NULL;
    }
    case OCT_KEY_TABLE:
        if (*(const oct_value *const *)member)
            put_value(*(const oct_value *const *)member, b);
        return *(const oct_value *const *)member != NULL;
    default:
        text = *(const char *const *)member;
        if (text)
            put_string(text, b);
        return text != NULL;
    }
}

static void put_values(const oct_job *job, const oct_schema *schema, oct_strbuf *b) {
    for (size_t i = 0; i < schema->n; i++) {
        const oct_key *key = &schema->keys[i];
        if (key->offset == OCT_NO_MEMBER || (schema == &oct_schema_mindspeed && key->target))
            continue;
        size_t before = b->length;
        oct_strbuf_printf(b, "%s = ", key->name);
        if (put_member(job, key, b)) {
            oct_strbuf_printf(b, "  # %s\n", oct_job_where(job, key->name));
        } else if (!b->failed) {
            b->length = before;
            b->text[before] = '\0';
        }
    }
}

void oct_job_render_value(const oct_job *job, const char *name, oct_strbuf *b) {
    const oct_key *key = oct_schema_find(&oct_schema_titan, name, strlen(name));
    size_t before = b->length;
    bool yaml = !key && (key = oct_schema_find(&oct_schema_mindspeed, name, strlen(name)));
    bool has_member = key && key->offset != OCT_NO_MEMBER;
    const oct_value *written = NULL; /* what a key without a member of its own was given */
    if (yaml && !has_member && job->state->mindspeed)
        written = job->state->mindspeed[key - oct_schema_mindspeed.keys].value;
    if (written)
        put_value(written, b);
    if (written || (has_member && put_member(job, key, b)))
        return;
    if (!b->failed && b->length > before) { /* a number that says none */
        b->length = before;
        b->text[before] = '\0';
    }
    oct_strbuf_puts(b, "none");
}

const char *oct_job_key(const oct_job *job, size_t i, oct_job_effect *effect) {
    const oct_schema *schemas[] = {&oct_schema_titan, &oct_schema_mindspeed};
    size_t n_schemas = job->form == OCT_JOB_MINDSPEED ? 2 : 1;
    for (size_t s = 0; s < n_schemas; s++)
        for (size_t k = 0; k < schemas[s]->n; k++) {
            const oct_key *key = &schemas[s]->keys[k];
            if (key->effect == OCT_EFFECT_OF_TARGET || i-- > 0)
                continue;
            *effect = key->effect;
            return key->name;
        }
    return NULL;
}

void oct_job_render(const oct_job *job, oct_strbuf *b) {
    put_values(job, &oct_schema_titan, b);
    if (job->form == OCT_JOB_MINDSPEED)
        put_values(job, &oct_schema_mindspeed, b);
}
