/* Reads the CSV files of a folder: see golden.h. */
#include <inttypes.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/nearest.h"
#include "golden.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_FAILURES_SHOWN = 10 };

static oct_status bad_field(const golden_row *row, int column, const char *wrong,
                            const char *expected, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s:%" PRId64 ": column %d: %s; expected %s; got \"%.40s\"",
                    row->path, row->line, column + 1, wrong, expected, row->field[column]);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

oct_status golden_hex_list(const golden_row *row, int column, int digits, int64_t n,
                           uint32_t *values, oct_error *err) {
    const char *text = row->field[column];
    char expected[80];
    snprintf(expected, sizeof expected, "%" PRId64 " number(s) of %d lower-case hexadecimal digits",
             n, digits);
    if (strlen(text) != (size_t)n * (size_t)digits)
        return bad_field(row, column, "wrong length", expected, err);
    for (int64_t i = 0; i < n; i++) {
        values[i] = 0;
        for (int d = 0; d < digits; d++) {
            int digit = hex_digit(*text++);
            if (digit < 0)
                return bad_field(row, column, "not a number", expected, err);
            values[i] = values[i] << 4 | (uint32_t)digit;
        }
    }
    return OCT_OK;
}

oct_status golden_hex(const golden_row *row, int column, int digits, uint32_t *value,
                      oct_error *err) {
    return golden_hex_list(row, column, digits, 1, value, err);
}

oct_status golden_decimal(const golden_row *row, int column, int64_t max, int64_t *value,
                          oct_error *err) {
    const char *text = row->field[column];
    char expected[60];
    snprintf(expected, sizeof expected, "a whole number from 0 to %" PRId64, max);
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || n_digits > 18 || text[n_digits] != '\0')
        return bad_field(row, column, "not a number", expected, err);
    *value = strtoll(text, NULL, 10);
    if (*value > max)
        return bad_field(row, column, "too large", expected, err);
    return OCT_OK;
}

oct_status golden_choice(const golden_row *row, int column, const char *const *names,
                         size_t n_names, size_t *index, oct_error *err) {
    for (size_t i = 0; i < n_names; i++)
        if (strcmp(row->field[column], names[i]) == 0) {
            *index = i;
            return OCT_OK;
        }
    char expected[80] = "one of";
    for (size_t i = 0; i < n_names; i++) {
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " %s", names[i]);
    }
    return bad_field(row, column, "unknown name", expected, err);
}

static int count_columns(const char *header) {
    int n = 1;
    for (; *header; header++)
        n += *header == ',';
    return n;
}

/* Cuts `line` at its commas. */
static oct_status split_row(char *line, int n_columns, golden_row *row, oct_error *err) {
    int n = 0;
    for (char *next = line; next && n < GOLDEN_MAX_FIELDS;) {
        row->field[n++] = next;
        next = strchr(next, ',');
        if (next)
            *next++ = '\0';
        else
            return n == n_columns
                       ? OCT_OK
                       : oct_fail(err, OCT_INVALID,
                                  "%s:%" PRId64 ": wrong number of fields; expected %d; got %d",
                                  row->path, row->line, n_columns, n);
    }
    return oct_fail(err, OCT_INVALID, "%s:%" PRId64 ": too many fields; expected %d", row->path,
                    row->line, n_columns);
}

/* The next line, without its end; NULL after the last. */
static char *next_line(char **rest) {
    char *line = *rest;
    if (*line == '\0')
        return NULL;
    char *end = strchr(line, '\n');
    *rest = end ? end + 1 : line + strlen(line);
    if (end)
        *end = '\0';
    return line;
}

static oct_status check_rows(const golden_file *file, const char *path, char *text, FILE *log,
                             golden_counts *counts, oct_error *err) {
    char *rest = text, *header = next_line(&rest), *line;
    golden_row row = {.path = path, .line = 1};
    int n_columns = count_columns(file->header);
    int64_t failures = 0;
    if (header == NULL || strcmp(header, file->header) != 0)
        return oct_fail(err, OCT_INVALID, "%s:1: wrong header; expected \"%s\"; got \"%.80s\"",
                        path, file->header, header ? header : "");
    while ((line = next_line(&rest)) != NULL) {
        bool agrees = true;
        row.line++;
        oct_status status = split_row(line, n_columns, &row, err);
        if (!status)
            status = file->check(&row, &agrees, failures < MAX_FAILURES_SHOWN ? log : NULL, err);
        if (status)
            return status;
        if (!agrees && getenv("OCTET_STOP_AT_FAILURE")) { /* tests/mutation */
            fprintf(log, "stopped at %s:%" PRId64 "\n", path, row.line);
            exit(1);
        }
        counts->n_passed += agrees;
        counts->n_failed += !agrees;
        failures += !agrees;
    }
    if (row.line == 1)
        return oct_fail(err, OCT_INVALID, "%s:2: no rows; expected at least one", path);
    return OCT_OK;
}

static oct_status check_file(const golden_file *file, const char *path, FILE *log,
                             golden_counts *counts, oct_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    oct_status status = oct_file_read(path, MAX_FILE_BYTES, &text, &n_bytes, err);
    if (status)
        return status;
    if (memchr(text, '\0', n_bytes))
        status = oct_fail(err, OCT_INVALID, "%s: holds a zero byte; expected text", path);
    else
        status = check_rows(file, path, text, log, counts, err);
    oct_free(text);
    return status;
}

static const golden_file *find_file(const char *name) {
    for (size_t i = 0; i < golden_n_files; i++)
        if (strcmp(golden_files[i].name, name) == 0)
            return &golden_files[i];
    return NULL;
}

static oct_status unknown_file(const char *path, const char *name, oct_error *err) {
    const char *names[32];
    for (size_t i = 0; i < golden_n_files; i++)
        names[i] = golden_files[i].name;
    const char *near = oct_nearest_name(name, names, golden_n_files);
    return oct_fail(err, OCT_INVALID, "%s: unknown file; expected a name of the format%s%s", path,
                    near ? ", nearest is " : "", near ? near : "");
}

static bool is_csv(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".csv") == 0;
}

/* One entry of the folder. */
static oct_status check_entry(const char *folder, const char *name, FILE *log,
                              golden_counts *counts) {
    oct_error err = {0};
    golden_counts own = {0};
    const golden_file *file = find_file(name);
    char *path = oct_path_join(folder, name);
    if (path == NULL)
        return OCT_NO_MEMORY;
    oct_status status =
        file ? check_file(file, path, log, &own, &err) : unknown_file(path, name, &err);
    if (status) {
        fprintf(log, "%s\n", err.message);
        own.n_failed++;
    }
    fprintf(log, "%s: %" PRId64 " cases: %" PRId64 " passed, %" PRId64 " failed\n", path,
            (own.n_passed + own.n_failed), own.n_passed, own.n_failed);
    counts->n_passed += own.n_passed;
    counts->n_failed += own.n_failed;
    oct_free(path);
    return status;
}

oct_status golden_check_folder(const char *folder, FILE *log, golden_counts *counts) {
    struct dirent **entries = NULL;
    oct_status result = OCT_OK;
    int n_csv = 0, n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0) {
        fprintf(log, "%s: can't read the folder: %s\n", folder, strerror(errno));
        return OCT_INVALID;
    }
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (is_csv(name)) {
            oct_status status = check_entry(folder, name, log, counts);
            result = status ? status : result;
            n_csv++;
        } else if (name[0] != '.' && strcmp(name, "README.md") != 0) {
            fprintf(log, "%s/%s: not a CSV file, not checked\n", folder, name);
        }
        free(entries[i]);
    }
    free(entries);
    if (n_csv == 0) {
        fprintf(log, "%s: no CSV files; expected golden vectors\n", folder);
        return OCT_INVALID;
    }
    return result;
}
