/* Golden vectors: a folder of CSV files in the format of vectors-data/README.md, checked against
 * the scalar codecs and every kernel set that this CPU has.
 *
 * The files come from outside: whatever they hold, the result is a count and clear lines. */
#ifndef OCT_TESTS_GOLDEN_H
#define OCT_TESTS_GOLDEN_H

#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GOLDEN_MAX_FIELDS = 8 };

typedef struct golden_counts {
    int64_t n_passed, n_failed; /* rows; a malformed row or file is one failure */
} golden_counts;

/* One row, split; the fields are NUL-terminated and belong to the reader. */
typedef struct golden_row {
    const char *path;
    int64_t line;
    char *field[GOLDEN_MAX_FIELDS];
} golden_row;

/* Checks one row: true if all agree, else writes why to `log`. A field that isn't in the format is
 * OCT_INVALID with *err filled. */
typedef oct_status (*golden_check)(const golden_row *row, bool *agrees, FILE *log, oct_error *err);

typedef struct golden_file {
    const char *name, *header;
    golden_check check;
} golden_file;

extern const golden_file golden_files[];
extern const size_t golden_n_files;

/* Fields. Hexadecimal, lower case, exactly the digits asked for. */
oct_status golden_hex(const golden_row *row, int column, int digits, uint32_t *value,
                      oct_error *err);
oct_status golden_decimal(const golden_row *row, int column, int64_t max, int64_t *value,
                          oct_error *err);
/* `n` numbers of `digits` each, concatenated. */
oct_status golden_hex_list(const golden_row *row, int column, int digits, int64_t n,
                           uint32_t *values, oct_error *err);
/* Index of the field among `names`. */
oct_status golden_choice(const golden_row *row, int column, const char *const *names,
                         size_t n_names, size_t *index, oct_error *err);

/* Checks the folder; one line a file and one a failure to `log`, and never "N passed, N failed"
 * itself. OCT_INVALID when a file can't be read or is malformed, an unknown CSV is in the folder,
 * or no CSV at all is. */
oct_status golden_check_folder(const char *folder, FILE *log, golden_counts *counts);

#endif
