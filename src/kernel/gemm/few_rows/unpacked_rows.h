/* What the kernels of few rows of A share. The weights are read once, so they aren't packed: a
 * panel of B is only a note of where its rows are, and their codes are decoded while they are
 * multiplied.
 */
#ifndef OCT_KERNEL_GEMM_FEW_ROWS_UNPACKED_ROWS_H
#define OCT_KERNEL_GEMM_FEW_ROWS_UNPACKED_ROWS_H

#include "kernel/gemm/kernels.h"

typedef struct oct_unpacked_rows {
    oct_operand operand;
    int64_t row, k;
} oct_unpacked_rows;

/* oct_gemm_kernels.pack_b */
static inline void oct_note_rows(const oct_gemm_source *from, void *panel) {
    *(oct_unpacked_rows *)panel = (oct_unpacked_rows){*from->operand, from->row, from->k};
}

typedef enum oct_decoding {
    OCT_LOOKED_UP,
    OCT_LOOKED_UP_HIF8, /* whose 0x80 is NaN */
    OCT_BY_BITS         /* E4M3: looked up only where not all codes are normal */
} oct_decoding;

static inline oct_decoding oct_decoding_for(oct_dtype format) {
    return format == OCT_E4M3   ? OCT_BY_BITS
           : format == OCT_HIF8 ? OCT_LOOKED_UP_HIF8
                                : OCT_LOOKED_UP;
}

#endif
