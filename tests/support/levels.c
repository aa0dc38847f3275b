/* See levels.h. */
#include "levels.h"

static void add_kernel_set(kernel_set *sets, size_t *n, const char *name,
                           oct_cpu_features features) {
    sets[(*n)++] = (kernel_set){name, oct_kernels_select(features)};
}

size_t kernel_sets(kernel_set sets[MAX_KERNEL_SETS]) {
    oct_cpu_features cpu = oct_cpu_detect();
    size_t n = 0;
    for (int level = OCT_CPU_REF; level <= (int)cpu.level && level < OCT_CPU_AVX512; level++)
        add_kernel_set(sets, &n, oct_cpu_level_name((oct_cpu_level)level),
                       (oct_cpu_features){.level = (oct_cpu_level)level});
    if (cpu.level < OCT_CPU_AVX512)
        return n;
    oct_cpu_features f = {.level = OCT_CPU_AVX512};
    add_kernel_set(sets, &n, "avx512", f);
    f.avx512_vnni = cpu.avx512_vnni;
    if (cpu.avx512_vnni)
        add_kernel_set(sets, &n, "avx512+vnni", f);
    f.avx512_vnni = false;
    f.avx512_vbmi = cpu.avx512_vbmi;
    if (cpu.avx512_vbmi)
        add_kernel_set(sets, &n, "avx512+vbmi", f);
    f.avx512_vnni = cpu.avx512_vnni;
    if (cpu.avx512_vnni && cpu.avx512_vbmi)
        add_kernel_set(sets, &n, "avx512+vnni+vbmi", f);
    f.avx512_bf16 = cpu.avx512_bf16;
    if (cpu.avx512_bf16)
        add_kernel_set(sets, &n, "avx512+bf16", f);
    if (cpu.amx_bf16)
        add_kernel_set(sets, &n, "avx512+amx", cpu);
    return n;
}
