/* From CPU features to a kernel table: see select.h. */
#include "kernel/select.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernel/elementwise.h"
#include "kernel/gemm/kernels.h"
#include "kernel/sets.h" /* written by meson: the sets that this compiler could build */

static oct_kernels current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

oct_kernels oct_kernels_select(oct_cpu_features features) {
    oct_kernels kernels = {.features = features,
                           .quantize = &oct_quantize_kernels_ref,
                           .elementwise = oct_elementwise_select(features.level),
                           .gemm = &oct_gemm_kernels_ref};
    kernels.features.amx_bf16 = false; /* until its kernels are chosen */
#ifdef OCT_HAVE_AVX2
    if (features.level >= OCT_CPU_AVX2) {
        kernels.quantize = &oct_quantize_kernels_avx2;
        kernels.gemm = &oct_gemm_kernels_avx2;
    }
#endif
#ifdef OCT_HAVE_AVX512
    if (features.level >= OCT_CPU_AVX512) {
        kernels.quantize = &oct_quantize_kernels_avx512;
        kernels.gemm = &oct_gemm_kernels_avx512;
    }
#endif
#ifdef OCT_HAVE_AVX512_VNNI
    if (features.level >= OCT_CPU_AVX512 && features.avx512_vnni && features.avx512_vbmi) {
        kernels.gemm_fast = &oct_gemm_kernels_vnni;
        kernels.gemm_few_rows = &oct_gemm_kernels_few_rows_avx512;
        kernels.gemm_fewest_rows = &oct_gemm_kernels_few_rows_avx512;
    }
#endif
#ifdef OCT_HAVE_AMX
    if (kernels.gemm_fast && features.amx_bf16) {
        kernels.gemm_fast = &oct_gemm_kernels_amx;
        kernels.gemm_few_rows = &oct_gemm_kernels_few_rows_amx;
        kernels.features.amx_bf16 = true;
    }
#endif
    return kernels;
}

const char *oct_kernels_name(const oct_kernels *kernels) {
    if (!kernels->gemm_fast)
        return oct_cpu_level_name(kernels->features.level);
    return kernels->features.amx_bf16 ? "avx512+amx" : "avx512+vnni";
}

static void choose_best(void) {
    oct_cpu_features features = oct_cpu_detect();
    oct_cpu_cap(&features, getenv("OCTET_CPU"), NULL); /* invalid: oct_kernels_init will say so */
    current = oct_kernels_select(features);
}

const oct_kernels *oct_kernels_current(void) {
    pthread_once(&once, choose_best);
    return &current;
}

oct_status oct_kernels_init(oct_error *err) {
    oct_cpu_features features = oct_cpu_detect();
    oct_status status = oct_cpu_cap(&features, getenv("OCTET_CPU"), err);
    if (status != OCT_OK)
        return status;
    oct_kernels_use(oct_kernels_select(features));
    return OCT_OK;
}

void oct_kernels_use(oct_kernels kernels) {
    pthread_once(&once, choose_best); /* so that a later first use doesn't choose again */
    current = kernels;
}
