/* Converters that stand for a kernel of another device that computes the same. */
#ifndef OCT_CONFIG_FUSED_H
#define OCT_CONFIG_FUSED_H

#include <stdbool.h>

enum { OCT_N_FUSED_KERNELS = 6 };
extern const char *const oct_fused_kernels[OCT_N_FUSED_KERNELS];

bool oct_is_fused_kernel(const char *converter);

#endif
