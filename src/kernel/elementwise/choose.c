/* From a CPU level to a set of elementwise kernels. */
#include "kernel/elementwise.h"

#include "kernel/elementwise/sets.h" /* written by meson: the sets that this compiler could build */

const oct_elementwise_kernels *oct_elementwise_select(oct_cpu_level level) {
#ifdef OCT_ELEMENTWISE_AVX512
    if (level >= OCT_CPU_AVX512)
        return &oct_elementwise_kernels_avx512;
#endif
#ifdef OCT_ELEMENTWISE_AVX2
    if (level >= OCT_CPU_AVX2)
        return &oct_elementwise_kernels_avx2;
#endif
    (void)level;
    return &oct_elementwise_kernels_ref;
}
