/* The packed panels of `fast` products: int16 operands for vpdpwssd.
 *
 * With K cut into chunks, element x of a row becomes round(x / u) for a power of two u, the row's
 * unit in the chunk, and x = u * integer + residual holds exactly. Units are chosen such that
 *   - every integer is below 2^15, and
 *   - the integers of a row in a chunk have an L2 norm of at most 2^15.5, so that by Cauchy-Schwarz
 *     the 32-bit sum of a chunk cannot overflow.
 * An element keeps all of its (at most four) significant bits where its integer is 8 or more; the
 * few others have a residual, which is listed. A panel whose chunks of 256 leave many residuals is
 * cut into chunks of 32, the MX block; where even those leave more than the list holds, it's marked
 * and its products are computed in fp32.
 *
 * Panels are packed for one product while its operands stay where they are, so what is rarely
 * needed, the codes, is read from there again.
 *
 * Invariant: any pair of panels can be multiplied in integers and residuals, but for their special
 * rows, or from the codes. */
#ifndef OCT_KERNEL_GEMM_VNNI_PANEL_VNNI_H
#define OCT_KERNEL_GEMM_VNNI_PANEL_VNNI_H

#include <octet/format.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel/gemm/kernels.h"

enum {
    OCT_VNNI_MR = 14,
    OCT_VNNI_A_ROWS = 16, /* of a panel of A: padded to a register */
    OCT_VNNI_NR = 32,
    OCT_VNNI_STEP = 2048,     /* k of a panel at most */
    OCT_VNNI_LONG_CHUNK = 256 /* the short one is OCT_MX_BLOCK */
};

/* One element's residual, and where what it's multiplied with is in a panel of the other operand
 * and what it's added to, ready to be used. A list has some of value 0 in between, so that the one
 * that is worked on in the i-th turn of 32 k isn't of a later k. The last is one, and leads to
 * itself. */
typedef struct oct_vnni_residual {
    float value;
    int32_t pick;         /* for vpdpwssd: 1 for the first of a pair of k, 2^16 for the second */
    uint32_t pair;        /* offset of the pair's integers, in bytes */
    uint32_t units;       /* offset of the units of k's long chunk, in bytes; */
    uint32_t lost;        /* offset of k in lost_at, in bytes */
    uint32_t to;          /* offset in oct_vnni_sums: of a row of A, or a column */
    uint32_t next;        /* bytes to the next; 0 in the last */
    uint32_t block_units; /* of those of its block */
} oct_vnni_residual;

typedef struct oct_vnni_head {
    const oct_operand *source; /* rows row .. row + n_rows - 1 from k on */
    int64_t row, k;
    int32_t n_rows;
    int32_t chunk;
    bool by_codes;          /* too many residuals */
    uint32_t special_rows;  /* their integers are zero: NaN, Inf or an extreme magnitude */
    int32_t n_residuals[2]; /* of each sixteen rows */
} oct_vnni_head;

/* Where the parts of a panel are. R rows (16 for A, the last two zeros; 32 for B); k padded to a
 * multiple of 64. What is looked up together with the integers has a fixed distance from them. */
typedef struct oct_vnni_panel {
    oct_vnni_head *head;
    int16_t *integers;               /* [place / 2][R][2]: pairs for vpdpwssd */
    float *units;                    /* [k / 32][R]: the unit times the operand's fp32 scale */
    oct_vnni_residual *residuals[2]; /* of each sixteen rows, in order of k */
    int64_t capacity;                /* of such a list, but for those of value 0 */
    /* A: the residuals again, for those of B: those of a k, R floats, are 64 * lost_at[place] bytes
     * behind the first of the integers; zeros for most. At most every other k has some. */
    uint16_t *lost_at;
    float (*lost)[OCT_VNNI_A_ROWS];
} oct_vnni_panel;

enum {
    OCT_VNNI_PANEL_LOST_AT = -OCT_VNNI_STEP * 2, /* bytes from the integers, in A */
    OCT_VNNI_PANEL_UNITS = -OCT_VNNI_STEP * 4    /* in A and in B, where as many come twice */
};
_Static_assert(OCT_VNNI_STEP / OCT_MX_BLOCK * OCT_VNNI_NR * 4 == -OCT_VNNI_PANEL_UNITS &&
                   OCT_VNNI_STEP / OCT_MX_BLOCK * OCT_VNNI_A_ROWS * 4 ==
                       OCT_VNNI_PANEL_LOST_AT - OCT_VNNI_PANEL_UNITS,
               "the units of a whole step fit before what follows");

/* k inside a group of four is stored as 0 2 1 3, for A and B alike: so the even and the odd bytes
 * of four codes make a pair each. */
static inline int64_t oct_vnni_place(int64_t k) {
    return (k & ~(int64_t)3) | (k & 1) << 1 | (k >> 1 & 1);
}

static inline int64_t oct_vnni_padded_k(int64_t kc) {
    return (kc + 63) / 64 * 64;
}

static inline oct_vnni_panel oct_vnni_panel_at(void *bytes, int64_t kc, int64_t rows) {
    const int64_t k = oct_vnni_padded_k(kc);
    char *integers = (char *)bytes + 64 - OCT_VNNI_PANEL_UNITS;
    oct_vnni_panel p = {.head = bytes, .capacity = k / 2 - k / OCT_MX_BLOCK - 2};
    p.integers = (int16_t *)(void *)integers;
    p.units = (float *)(void *)(integers + OCT_VNNI_PANEL_UNITS);
    p.lost_at = (uint16_t *)(void *)(integers + OCT_VNNI_PANEL_LOST_AT);
    p.residuals[0] = (oct_vnni_residual *)(void *)(integers + k * rows * 2);
    p.residuals[1] = p.residuals[0] + k / 2;
    p.lost = (float(*)[OCT_VNNI_A_ROWS])(void *)p.residuals[1];
    return p;
}

/* Bytes of B: 2 + 32 / 32 for an element; A has 64 / 2 more for a k. */
#define OCT_VNNI_PANEL_A_BYTES_PER_K ((size_t)OCT_VNNI_A_ROWS * 3 + 32)
#define OCT_VNNI_PANEL_B_BYTES_PER_K ((size_t)OCT_VNNI_NR * 3)
#define OCT_VNNI_PANEL_BYTES_FIXED(per_k) (128 - OCT_VNNI_PANEL_UNITS + 63 * (per_k))

/* A tile of one step, and what is to be added to its columns. */
typedef struct oct_vnni_sums {
    alignas(64) float x[OCT_VNNI_A_ROWS][OCT_VNNI_NR];
    alignas(64) float columns[OCT_VNNI_NR][OCT_VNNI_A_ROWS];
} oct_vnni_sums;

void oct_vnni_pack(const oct_gemm_source *from, void *panel, int64_t panel_rows);

/* The whole tile as `exact` would have it, each chunk of OCT_GEMM_K_CHUNK from 0. */
void oct_vnni_multiply_codes(const oct_vnni_panel *a, const oct_vnni_panel *b, int64_t kc,
                             oct_vnni_sums *t);

#endif
