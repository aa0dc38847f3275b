/* What the written wrappers (make_mutants.py) need. Test programs only: nothing of this is in the
 * product. */
#ifndef OCT_TESTS_MUTANTS_H
#define OCT_TESTS_MUTANTS_H

#include <octet/octet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "kernel/elementwise.h"
#include "kernel/gemm/kernels.h"
#include "kernel/quantize.h"

typedef struct mutation {
    const char *area, *function, *kind;
    int mutant;        /* what the wrapper knows it by */
    const void *table; /* of kernels; NULL: a function of its own */
    void **entry, *wrapper, **real;
} mutation;

extern const mutation mutations[];
extern const size_t n_mutations;

extern int mutant;                         /* the one in force; -1: none */
extern const oct_gemm_kernels *gemm_table; /* whose entry is wrapped */
extern const uint8_t mx_ones[];            /* scales of 1 */
extern const float ones[];

/* n_rows rows of n_bytes, stride bytes apart: zeros, or the first bytes of a source. */
void set_zeros(void *to, int64_t n_rows, size_t n_bytes, size_t stride);
void set_rows(void *to, int64_t n_rows, size_t n_bytes, size_t stride, const void *from,
              size_t n_from);

/* Saves that lose something of the first tensor of the model. */
void less_rows(oct_checkpoint_contents *contents);
void other_data(oct_checkpoint_contents *contents);
oct_status without_last_row(const oct_checkpoint *checkpoint, oct_checkpoint_group group,
                            const char *name, const oct_tensor *to, oct_error *err);

#endif
