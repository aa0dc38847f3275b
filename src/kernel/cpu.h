/* What this CPU can do, and the cap that OCTET_CPU puts on it. */
#ifndef OCT_KERNEL_CPU_H
#define OCT_KERNEL_CPU_H

#include <octet/status.h>
#include <stdbool.h>

/* Kernel sets, each a superset of the one before. */
typedef enum oct_cpu_level {
    OCT_CPU_REF,
    OCT_CPU_AVX2,
    OCT_CPU_AVX512,
    OCT_N_CPU_LEVELS
} oct_cpu_level;

typedef struct oct_cpu_features {
    oct_cpu_level level; /* AVX2 = AVX2 + FMA + F16C; AVX512 = F + BW + DQ + VL (and the OS saves
                            the state) */
    bool avx512_vnni, avx512_vbmi; /* only with level AVX512; VBMI with GFNI, as CPUs have it */
    bool avx512_bf16;              /* only with VNNI and VBMI */
    bool slow_bf16;                /* vdpbf16ps is slower than VNNI's integers: see cpu.c */
    bool amx_bf16;                 /* AMX-TILE and AMX-BF16, and the kernel grants the tile state */
} oct_cpu_features;

oct_cpu_features oct_cpu_detect(void); /* the hardware, uncapped */
const char *oct_cpu_model_name(void);  /* "Intel(R) Xeon(R) ...", from CPUID; static storage */
const char *oct_cpu_level_name(oct_cpu_level level); /* "ref", "avx2", "avx512" */

/* `features` limited to what `cap` names: ref, avx2, avx512 (VNNI and VBMI stay if present),
 * avx512bf16 (taken even where it's slow), amx. NULL or "" is no cap; an unknown name or one that
 * the CPU lacks is OCT_INVALID. */
oct_status oct_cpu_cap(oct_cpu_features *features, const char *cap, oct_error *err);

#endif
