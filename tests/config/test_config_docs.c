/* docs/configuration.md holds the tables of the schemas between marker lines; this test compares
 * them with the schemas. `OCTET_WRITE_DOCS=1 build/tests/test_config_docs SOURCE_ROOT` writes
 * them anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "config/job.h"

static const char *source_root;

static char *doc_path(void) {
    char *path = oct_path_join(source_root, "docs/configuration.md");
    assert_non_null(path);
    return path;
}

static char *read_doc(void) {
    oct_error err = {0};
    char *path = doc_path(), *text;
    if (oct_file_read(path, 1 << 20, &text, NULL, &err))
        fail_msg("%s", err.message);
    oct_free(path);
    return text;
}

/* Bounds of the text between the markers of `form`. */
static void find_tables(const char *doc, const char *form, const char **start, const char **end) {
    char marker[64];
    snprintf(marker, sizeof marker, "<!-- %s keys: generated -->\n\n", form);
    *start = strstr(doc, marker);
    assert_non_null(*start);
    *start += strlen(marker);
    *end = strstr(*start, "\n<!-- end -->");
    assert_non_null(*end);
}

static void replace_tables(const char *form, const oct_strbuf *tables) {
    const char *start, *end;
    oct_error err = {0};
    char *doc = read_doc(), *path = doc_path();
    find_tables(doc, form, &start, &end);
    oct_strbuf b = {0};
    oct_strbuf_append(&b, doc, (size_t)(start - doc));
    oct_strbuf_append(&b, tables->text, tables->length);
    oct_strbuf_puts(&b, end);
    assert_false(b.failed);
    assert_int_equal(oct_file_write(path, b.text, b.length, &err), OCT_OK);
    oct_strbuf_free(&b);
    oct_free(doc);
    oct_free(path);
}

static void check_form(oct_job_form form, const char *name) {
    const char *start, *end;
    oct_strbuf tables = {0};
    oct_job_render_keys(form, OCT_JOB_MARKDOWN, &tables);
    assert_false(tables.failed);
    if (getenv("OCTET_WRITE_DOCS"))
        replace_tables(name, &tables);
    char *doc = read_doc();
    find_tables(doc, name, &start, &end);
    if ((size_t)(end - start) != tables.length || memcmp(start, tables.text, tables.length) != 0)
        fail_msg("docs/configuration.md is not that of the schema; see the head of this test");
    oct_free(doc);
    oct_strbuf_free(&tables);
}

static void given_the_schema_of_toml_jobs_the_document_shows_it(void **state) {
    (void)state;
    check_form(OCT_JOB_TITAN, "TOML");
}

static void given_the_schema_of_yaml_jobs_the_document_shows_it(void **state) {
    (void)state;
    check_form(OCT_JOB_MINDSPEED, "YAML");
}

static void given_the_help_text_every_key_is_listed_with_its_default(void **state) {
    (void)state;
    oct_strbuf b = {0};
    oct_job_render_keys(OCT_JOB_TITAN, OCT_JOB_TEXT, &b);
    assert_non_null(strstr(b.text, "  --training.steps int (10000)\n        optimizer steps\n"));
    assert_non_null(strstr(b.text, "  --quantize.linear.mx.filter_fqns list ([\"output\"])\n"));
    assert_non_null(strstr(b.text, "only the default: tensor parallelism isn't supported"));
    assert_non_null(strstr(b.text, "no effect: there is no profiler"));
    oct_strbuf_free(&b);
}

static void given_a_job_its_values_are_rendered_with_their_places(void **state) {
    (void)state;
    oct_job job;
    oct_error err = {0};
    oct_strbuf b = {0};
    assert_int_equal(oct_job_default(&job, &err), OCT_OK);
    oct_job_render(&job, &b);
    assert_non_null(strstr(b.text, "training.max_norm = 1.0  # default\n"));
    assert_non_null(strstr(b.text, "optimizer.name = \"AdamW\"  # default\n"));
    assert_non_null(strstr(b.text, "model.converters = []  # default\n"));
    assert_null(strstr(b.text, "training.dataset_path"));
    assert_null(strstr(b.text, "profiling"));
    oct_strbuf_free(&b);
    oct_job_free(&job);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_the_schema_of_toml_jobs_the_document_shows_it),
        cmocka_unit_test(given_the_schema_of_yaml_jobs_the_document_shows_it),
        cmocka_unit_test(given_the_help_text_every_key_is_listed_with_its_default),
        cmocka_unit_test(given_a_job_its_values_are_rendered_with_their_places),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_config_docs SOURCE_ROOT\n");
        return 2;
    }
    source_root = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
