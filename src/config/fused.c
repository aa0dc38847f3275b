/* Fused kernels: see fused.h. */
#include "config/fused.h"

#include <stddef.h>
#include <string.h>

/* Those of torchtitan-npu 0.2.2. npu_dsa isn't one: it is another attention. */
const char *const oct_fused_kernels[OCT_N_FUSED_KERNELS] = {
    "npu_rms_norm",        "npu_rope",
    "npu_permute",         "npu_fusion_attention",
    "npu_expert_parallel", "npu_bypass_triton_codegen"};

bool oct_is_fused_kernel(const char *converter) {
    for (size_t i = 0; i < OCT_N_FUSED_KERNELS; i++)
        if (strcmp(converter, oct_fused_kernels[i]) == 0)
            return true;
    return false;
}
