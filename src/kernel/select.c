/* From CPU features to a kernel table: see select.h. */
#include "kernel/select.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernel/elementwise.h"
#include "kernel/gemm/tuning.h"
#include "kernel/sets.h" /* written by meson: the sets that this compiler could build */

/* A level: what its CPU must have, and what runs there. */
typedef struct kernel_level {
    oct_cpu_features needs;
    const oct_quantize_kernels *quantize;
    const oct_gemm_tuning *gemm;
} kernel_level;

#define VNNI .avx512_vnni = true, .avx512_vbmi = true

/* The best first: the first that the CPU can run is taken. */
static const kernel_level levels[] = {
#ifdef OCT_HAVE_AMX
    {{OCT_CPU_AVX512, VNNI, .amx_bf16 = true}, &oct_quantize_kernels_avx512, &oct_gemm_tuning_amx},
#endif
#ifdef OCT_HAVE_AVX512_BF16
    {{OCT_CPU_AVX512, VNNI, .avx512_bf16 = true},
     &oct_quantize_kernels_avx512,
     &oct_gemm_tuning_bf16},
#endif
#ifdef OCT_HAVE_AVX512_VNNI
    {{OCT_CPU_AVX512, VNNI}, &oct_quantize_kernels_avx512, &oct_gemm_tuning_vnni},
#endif
#ifdef OCT_HAVE_AVX512
    {{OCT_CPU_AVX512}, &oct_quantize_kernels_avx512, &oct_gemm_tuning_avx512},
#endif
#ifdef OCT_HAVE_AVX2
    {{OCT_CPU_AVX2}, &oct_quantize_kernels_avx2, &oct_gemm_tuning_avx2},
#endif
    {{OCT_CPU_REF}, &oct_quantize_kernels_ref, &oct_gemm_tuning_ref},
};

static oct_kernels current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool has(const oct_cpu_features *cpu, const oct_cpu_features *needs) {
    return cpu->level >= needs->level && cpu->avx512_vnni >= needs->avx512_vnni &&
           cpu->avx512_vbmi >= needs->avx512_vbmi && cpu->amx_bf16 >= needs->amx_bf16 &&
           (cpu->avx512_bf16 && !cpu->slow_bf16) >= needs->avx512_bf16;
}

oct_kernels oct_kernels_select(oct_cpu_features features) {
    const kernel_level *level = levels;
    while (!has(&features, &level->needs))
        level++;
    features.amx_bf16 = level->needs.amx_bf16;
    features.avx512_bf16 = level->needs.avx512_bf16;
    return (oct_kernels){.name = level->gemm->name,
                         .features = features,
                         .quantize = level->quantize,
                         .elementwise = oct_elementwise_select(features.level),
                         .gemm = level->gemm};
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
    if (status)
        return status;
    oct_kernels_use(oct_kernels_select(features));
    return OCT_OK;
}

void oct_kernels_use(oct_kernels kernels) {
    pthread_once(&once, choose_best); /* so that a later first use doesn't choose again */
    current = kernels;
}
