/* Tensors of safetensors files as fp32: see hf_decode.h. */
#include "hf/hf_decode.h"

#include <octet/format.h>
#include <string.h>

#include "base/checked.h"
#include "format/f16.h"

static uint16_t half_at(const unsigned char *bytes, int64_t i) {
    return (uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
}

bool oct_hf_is_high_precision(oct_dtype dtype) {
    return dtype == OCT_F32 || dtype == OCT_BF16 || dtype == OCT_F16;
}

bool oct_hf_is_scale(oct_dtype dtype, bool e8m0_only) {
    bool e8m0 = dtype == OCT_E8M0 || dtype == OCT_U8;
    return e8m0_only ? e8m0 : dtype == OCT_E8M0 || oct_hf_is_high_precision(dtype);
}

/* Element i of a tensor of values or scales. */
static float value_at(const oct_safetensors_tensor *t, int64_t i) {
    const unsigned char *bytes = t->data;
    float value;
    if (t->dtype == OCT_BF16)
        return oct_bf16_decode(half_at(bytes, i));
    if (t->dtype == OCT_F16)
        return oct_f16_decode(half_at(bytes, i));
    if (t->dtype == OCT_E8M0 || t->dtype == OCT_U8)
        return oct_e8m0_decode(bytes[i]);
    memcpy(&value, bytes + 4 * i, sizeof value);
    return value;
}

void oct_hf_decode(const oct_safetensors_tensor *from, int64_t n, float *to) {
    if (from->dtype == OCT_F32) {
        memcpy(to, from->data, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = value_at(from, i);
}

void oct_hf_dequantize(const oct_safetensors_tensor *codes, const oct_safetensors_tensor *scales,
                       int64_t block_rows, int64_t block_cols, float *to) {
    float values[256];
    const uint8_t *bytes = codes->data;
    int64_t rows = codes->shape[0], cols = codes->shape[1], blocks = scales->shape[1];
    for (int code = 0; code < 256; code++)
        values[code] = oct_e4m3_decode((uint8_t)code);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < blocks; b++) {
            float scale = value_at(scales, r / block_rows * blocks + b);
            int64_t end = oct_min_i64((b + 1) * block_cols, cols);
            for (int64_t c = b * block_cols; c < end; c++)
                to[r * cols + c] = values[bytes[r * cols + c]] * scale;
        }
}
