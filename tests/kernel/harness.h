/* Tools for comparing kernels on hostile ground: buffers that catch a byte read or written outside,
 * and numbers that catch a wrong rounding.
 *
 * Invariant: everything is drawn from a counter-based generator, so a failure repeats. */
#ifndef OCT_TESTS_KERNELS_HARNESS_H
#define OCT_TESTS_KERNELS_HARNESS_H

#include <octet/tensor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "levels.h"

/* Where a buffer lies. */
typedef enum placement {
    AT_PAGE_END,    /* the next byte is in a page that can't be touched */
    AT_PAGE_START,  /* the byte before is */
    PAST_ALIGNMENT, /* one element past a 64-byte boundary, between guard bytes */
    N_PLACEMENTS
} placement;

typedef struct guarded {
    unsigned char *data; /* n_bytes, filled with guard bytes at first */
    size_t n_bytes;
    unsigned char *pages; /* the accessible ones */
    size_t n_page_bytes;
} guarded;

enum { GUARD_BYTE = 0xa5 };

guarded guarded_alloc(size_t n_bytes, size_t element_bytes, placement where);
/* Guard bytes around `data` are intact. */
bool guarded_intact(const guarded *g);
void guarded_free(guarded *g);
/* The bytes between the rows of a matrix in `g` are still guard bytes. */
bool gaps_intact(const guarded *g, int64_t rows, size_t row_bytes, size_t stride_bytes);

/* Kinds of numbers. */
typedef enum flavour {
    GAUSSIAN,
    WIDE,      /* 2^-120 .. 2^120 */
    TINY,      /* subnormals, zeros of both signs, the smallest normals */
    TIES,      /* halfway between two neighbours of an 8-bit format, and one fp32 step beside */
    EDGES,     /* 448 2^k, 2^k, 57344 2^k and neighbours: where scales step */
    WITH_NANS, /* GAUSSIAN with a NaN or an Inf now and then */
    ZEROS,
    RANDOM_BITS,
    N_FLAVOURS
} flavour;

float hostile_number(flavour kind, uint64_t stream, uint64_t i);
/* n numbers as OCT_F32 or OCT_BF16. */
void hostile_fill(void *to, oct_dtype dtype, int64_t n, flavour kind, uint64_t stream);

/* Equal bits, or both NaN. */
bool same_float(float a, float b);

/* Prints the sets that this CPU can't run. */
void report_skipped_sets(void);

#endif
