/* What tests of files share: a folder of their own, files in it, failing allocations. Include
 * it after cmocka.h. */
#ifndef OCT_TESTS_IO_SUPPORT_H
#define OCT_TESTS_IO_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"

extern char test_folder[64]; /* that enter_folder made */

/* jansson takes its memory from oct_malloc here, so that its allocations fail and count too. */
int enter_folder(void **state);
int leave_folder(void **state);
void put_file(const char *path, const void *bytes, size_t n_bytes);
void put_text(const char *path, const char *text);
char *get_file(const char *path, size_t *n_bytes);
void assert_contains(const char *text, const char *part);
void assert_one_line(const char *text);

/* Runs `call` while the process may open nothing: the machine's trouble, not the file's. */
void assert_no_handle_fails(oct_status (*call)(oct_error *err));

/* Runs `call` with the 1st, 2nd, ... allocation failing until it succeeds: each failure must be a
 * status with a message and give all memory back. `call` frees what a success gave it. */
void sweep_allocations(oct_status (*call)(oct_error *err));

#endif
