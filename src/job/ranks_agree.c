/* Whether all ranks were told the same: see ranks.h. What a rank was told is a text of lines,
 * "NAME = VALUE"; the first rank's is sent to all, and each compares its own with it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "job/model_record.h"
#include "job/ranks.h"

typedef const char *(*place_of_name)(const void *context, const char *name);

/* Collective: the first rank's text; NULL when memory is refused here (oct_free). */
static oct_status receive_first(oct_comm *world, const char *own, char **first, oct_error *err) {
    uint64_t n = strlen(own) + 1;
    oct_status broken = oct_comm_broadcast(world, 0, &n, sizeof n), status = OCT_OK;
    if (broken)
        return oct_fail(err, broken, "the exchange between processes broke");
    *first = oct_malloc(n);
    status = oct_comm_agree(world, *first ? OCT_OK : oct_fail_memory(err), err);
    if (status)
        return status;
    if (oct_comm_rank(world) == 0)
        memcpy(*first, own, n);
    broken = oct_comm_broadcast(world, 0, *first, n);
    (*first)[n - 1] = '\0';
    return broken ? oct_fail(err, broken, "the exchange between processes broke") : OCT_OK;
}

/* A line of a text: "NAME = VALUE", each of so many bytes. */
typedef struct line {
    const char *name, *value;
    size_t n_name, n_value, n;
} line;

static line read_line(const char *text) {
    size_t n = strcspn(text, "\n");
    const char *equals = strstr(text, " = ");
    size_t n_name = equals && equals < text + n ? (size_t)(equals - text) : n;
    size_t n_before = n_name < n ? n_name + strlen(" = ") : n;
    return (line){text, text + n_before, n_name, n - n_before, n};
}

static bool same_bytes(const char *a, size_t n_a, const char *b, size_t n_b) {
    return n_a == n_b && memcmp(a, b, n_a) == 0;
}

static oct_status fail_line(const line *first, const line *own, place_of_name place,
                            const void *context, oct_error *err) {
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)own->n_name, own->name);
    if (!same_bytes(first->name, first->n_name, own->name, own->n_name))
        return oct_fail(err, OCT_INVALID,
                        "another version of octet than rank 0 runs, or another kind of job; "
                        "expected %.*s; got %s",
                        (int)first->n_name, first->name, *name ? name : "nothing");
    return oct_fail(err, OCT_INVALID,
                    "%s: all ranks need the same; expected %.*s, as rank 0 has it; got %.*s",
                    place ? place(context, name) : name, (int)first->n_value, first->value,
                    (int)own->n_value, own->value);
}

static oct_status compare(const char *first, const char *own, place_of_name place,
                          const void *context, oct_error *err) {
    while (*first || *own) {
        const line a = read_line(first), b = read_line(own);
        if (!same_bytes(first, a.n, own, b.n))
            return fail_line(&a, &b, place, context, err);
        first += a.n + (first[a.n] == '\n');
        own += b.n + (own[b.n] == '\n');
    }
    return OCT_OK;
}

/* Collective. Compares what each rank was told with what the first was: lines "NAME = VALUE".
 * OCT_INVALID on all ranks where one has another line; the message is that rank's, and says both
 * values. `place` (NULL: the name itself) says where the rank has a name from; its text lives as
 * long as `context`. */
static oct_status check_same(oct_comm *world, const oct_strbuf *text, place_of_name place,
                             const void *context, oct_error *err) {
    char *first = NULL;
    if (oct_comm_size(world) == 1)
        return OCT_OK;
    oct_status status = text->failed ? oct_fail_memory(err) : OCT_OK;
    status = oct_comm_agree(world, status, err);
    if (status)
        return status;
    const char *own = text->text ? text->text : "";
    status = receive_first(world, own, &first, err);
    if (!status)
        status = oct_comm_agree(world, compare(first, own, place, context, err), err);
    oct_free(first);
    return status;
}

static const char *place_of(const void *job, const char *key) {
    return oct_job_at(job, key);
}

/* Sources may lie elsewhere on another host: their contents are compared once they are read. */
static bool is_compared(oct_job_effect effect) {
    return effect == OCT_EFFECT_COURSE || effect == OCT_EFFECT_RESULT || effect == OCT_EFFECT_MODEL;
}

void oct_ranks_put_job(const oct_job *job, oct_strbuf *text) {
    oct_job_effect effect;
    const char *key;
    oct_strbuf_printf(text, "job.config_file = a %s job\n",
                      job->form == OCT_JOB_MINDSPEED ? "YAML" : "TOML");
    for (size_t i = 0; (key = oct_job_key(job, i, &effect)); i++) {
        if (!is_compared(effect))
            continue;
        oct_strbuf_printf(text, "%s = ", key);
        oct_job_render_value(job, key, text);
        oct_strbuf_puts(text, "\n");
    }
}

oct_status oct_ranks_check_job(oct_comm *world, const oct_job *job, oct_error *err) {
    oct_strbuf text = {0};
    oct_ranks_put_job(job, &text);
    oct_status status = check_same(world, &text, place_of, job, err);
    oct_strbuf_free(&text);
    return status;
}

static void put_data(oct_strbuf *to, const char *key, const oct_dataset *data) {
    if (data)
        oct_strbuf_printf(to, "%s = %" PRId64 " tokens of data set %016" PRIx64 "\n", key,
                          oct_dataset_n_tokens(data), oct_dataset_hash(data));
}

void oct_ranks_put_data(const oct_dataset *train, const oct_dataset *validation, oct_strbuf *text) {
    put_data(text, "training.dataset_path", train);
    put_data(text, "validation.dataset_path", validation);
}

oct_status oct_ranks_check_inputs(oct_comm *world, const oct_job *job, const oct_model *model,
                                  const oct_dataset *train, const oct_dataset *validation,
                                  oct_error *err) {
    oct_strbuf text = {0};
    oct_model_record_lines(oct_model_get_args(model), &text);
    oct_strbuf_printf(&text, "model.tokenizer_path = the end of documents %d\n",
                      (int)oct_model_document_end(model));
    oct_ranks_put_data(train, validation, &text);
    oct_status status = check_same(world, &text, place_of, job, err);
    oct_strbuf_free(&text);
    return status;
}
