/* Tensors listed for one line of a message: those that differ in the numbers of their names alone,
 * layers and experts, are one entry, "model.layers.{0-27}.mlp.up_proj.weight (3072, 1024)". */
#ifndef OCT_JOB_TENSOR_LIST_H
#define OCT_JOB_TENSOR_LIST_H

#include <stdint.h>

#include "base/strbuf.h"

enum { OCT_TENSOR_LIST_NUMBERS = 2 };

typedef struct oct_tensor_group {
    char pattern[128]; /* the name, with * for its first numbers */
    char about[160];   /* what is said behind it: the same for all of the group */
    int n_numbers;
    int64_t low[OCT_TENSOR_LIST_NUMBERS], high[OCT_TENSOR_LIST_NUMBERS];
    int64_t n; /* tensors */
} oct_tensor_group;

typedef struct oct_tensor_list {
    oct_tensor_group *groups;
    int64_t n_groups, capacity;
    bool failed; /* memory was refused */
} oct_tensor_list;

/* `name` is from outside. */
void oct_tensor_list_add(oct_tensor_list *list, const char *name, const char *about);
/* "WHAT: entries", behind "; " where `to` holds something; nothing of an empty list. What would
 * make it longer than `room` bytes is counted: "and 12 more". */
void oct_tensor_list_put(const oct_tensor_list *list, const char *what, size_t room,
                         oct_strbuf *to);
void oct_tensor_list_free(oct_tensor_list *list);

#endif
