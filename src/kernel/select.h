/* The kernel table: one set of function pointers for the whole process, chosen once from the CPU
 * and OCTET_CPU. */
#ifndef OCT_KERNEL_SELECT_H
#define OCT_KERNEL_SELECT_H

#include "kernel/cpu.h"
#include "kernel/quantize.h"

typedef struct oct_kernels {
    const char *name; /* what decides the bits of a product: "ref", "avx2", "avx512", "avx512+vnni",
                         "avx512+bf16", "avx512+amx" */
    oct_cpu_features features;
    const oct_quantize_kernels *quantize;
    const struct oct_elementwise_kernels *elementwise; /* kernel/elementwise.h */
    const struct oct_gemm_tuning *gemm;                /* kernel/gemm/tuning.h */
} oct_kernels;

/* Pure: the table for these features. Tests build one for every level that the CPU has. */
oct_kernels oct_kernels_select(oct_cpu_features features);

/* The process's table. Before oct_kernels_init it is the best for this CPU, capped by OCTET_CPU
 * when that is valid. */
const oct_kernels *oct_kernels_current(void);
/* Reads OCTET_CPU; an invalid value is OCT_INVALID and names the choices. Not thread-safe: call it
 * first. */
oct_status oct_kernels_init(oct_error *err);
/* Tests: replaces the process's table. */
void oct_kernels_use(oct_kernels kernels);

#endif
