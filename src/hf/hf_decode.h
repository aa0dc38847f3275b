/* The bytes of a tensor in a safetensors file, at any alignment, as fp32. */
#ifndef OCT_HF_HF_DECODE_H
#define OCT_HF_HF_DECODE_H

#include <stdbool.h>

#include "tensors/safetensors.h"

/* F32, BF16 and F16: exact. */
bool oct_hf_is_high_precision(oct_dtype dtype);
/* All `n` elements of such a tensor. */
void oct_hf_decode(const oct_safetensors_tensor *from, int64_t n, float *to);

/* What a tensor of scales may have: F32, BF16, F16, or E8M0, stored as F8_E8M0 or U8. */
bool oct_hf_is_scale(oct_dtype dtype, bool e8m0_only);
/* `codes` (rows, cols) in F8_E4M3 times their scales (ceil(rows / block_rows), ceil(cols /
 * block_cols)), a product in fp32: DeepSeek-V3's weight_dequant, and MX. Blocks at the ends may be
 * short. The caller has checked types and shapes. */
void oct_hf_dequantize(const oct_safetensors_tensor *codes, const oct_safetensors_tensor *scales,
                       int64_t block_rows, int64_t block_cols, float *to);

#endif
