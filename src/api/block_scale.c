/* A block's scale: see block_scale.h. Rules without quirks are those of docs/numerics.md; quirks
 * are torchao's (torchao/prototype/mx_formats/mx_tensor.py, float8/float8_utils.py) and
 * TransformerEngine's (transformer_engine/common/util/ptx.cuh, recipe/recipe_common.cuh). */
#include "api/block_scale.h"

#include <math.h>

#include "format/element.h"
#include "format/fp8.h"
#include "kernel/quantize.h"

#define AMAX_FLOOR 1e-12 /* torchao/float8/float8_utils.py: EPS */

static bool has(const oct_quantizer *q, oct_quirk quirk) {
    return (q->quirks & (uint32_t)quirk) != 0;
}

static int clamp_code(int code) {
    return code < 0 ? 0 : code > 254 ? 254 : code;
}

/* ceil of a log2 that was rounded to fp32: of a number just above a power of two it is that power.
 */
static uint8_t rceil_by_log2(float amax, oct_dtype format) {
    const float d = amax / oct_fp8_largest(format);
    if (d == 0)
        return 0;
    return (uint8_t)clamp_code(127 + (int)ceilf((float)log2((double)d)));
}

/* The code of a block with an Inf, where that is a large number. */
static uint8_t code_of_inf(const oct_quantizer *q) {
    if (q->scale_mode == OCT_SCALE_RCEIL)
        return 254;
    return (uint8_t)(127 + 128 - (q->format == OCT_E4M3 ? 8 : 15));
}

static double inverse_of(const oct_quantizer *q, uint8_t code) {
    if (code == 0 && has(q, OCT_QUIRK_LOWEST_BY_ONE))
        return 1;
    if (code == 0 && has(q, OCT_QUIRK_LOWEST_BY_2_126))
        return 0x1p126;
    return ldexp(1, 127 - code);
}

static oct_block_scale power_of_two(const oct_quantizer *q, oct_magnitudes m) {
    oct_block_scale s = {0};
    const bool nan = m.has_nan && !has(q, OCT_QUIRK_NAN_IS_NOTHING);
    if (nan || (m.has_inf && !has(q, OCT_QUIRK_INF_IS_LARGE))) {
        s.code = 255;
        s.zeros = nan && has(q, OCT_QUIRK_NAN_LEAVES_ZEROS);
        s.all_nan = !s.zeros;
        return s;
    }
    if (m.has_inf)
        s.code = code_of_inf(q);
    else if (q->scale_mode == OCT_SCALE_RCEIL && has(q, OCT_QUIRK_LOG2_ROUNDED))
        s.code = rceil_by_log2(m.largest, q->format);
    else
        s.code = oct_mx_scale_code(m.largest, q->format, q->scale_mode);
    s.inverse = inverse_of(q, s.code);
    return s;
}

static float power_of_two_below(float x) {
    return isfinite(x) ? oct_f32_from_bits(oct_f32_bits(x) & OCT_F32_INF) : x;
}

/* target / amax and its inverse, as frameworks have it that multiply. */
static oct_block_scale by_factor(const oct_quantizer *q, oct_magnitudes m) {
    double amax = m.has_inf ? INFINITY : (double)m.largest;
    oct_block_scale s = {0};
    if (m.has_nan && !has(q, OCT_QUIRK_NAN_IS_NOTHING)) {
        s.all_nan = true;
        s.scale = s.factor = NAN;
        return s;
    }
    if (has(q, OCT_QUIRK_AMAX_FLOOR))
        amax = fmax(amax, AMAX_FLOOR);
    s.factor = (float)((double)q->target / amax);
    if (has(q, OCT_QUIRK_IDLE_IS_ONE)) {
        if (amax == 0 || isinf(amax))
            s.factor = 1;
        else if (isinf(s.factor))
            s.factor = 0x1.fffffep127f;
    }
    if (has(q, OCT_QUIRK_POWER_OF_TWO))
        s.factor = power_of_two_below(s.factor);
    s.scale = 1 / s.factor;
    return s;
}

oct_block_scale oct_block_scale_of(const oct_quantizer *q, oct_magnitudes m) {
    if (q->scale_dtype == OCT_E8M0)
        return power_of_two(q, m);
    if (has(q, OCT_QUIRK_MULTIPLIES))
        return by_factor(q, m);
    oct_block_scale s = {0};
    s.scale = oct_scale_from_amax(m.has_nan || m.has_inf ? INFINITY : m.largest, q->target);
    s.all_nan = isnan(s.scale);
    return s;
}

/* x as it is encoded. Beyond fp32's range at either end the code is the largest or zero already. */
static float scaled(const oct_quantizer *q, const oct_block_scale *s, float x) {
    if (s->all_nan)
        return NAN;
    if (s->zeros)
        return isfinite(x) ? copysignf(0, x) : NAN;
    if (q->scale_dtype == OCT_E8M0)
        return (float)((double)x * s->inverse);
    return has(q, OCT_QUIRK_MULTIPLIES) ? x * s->factor : x / s->scale;
}

uint8_t oct_block_encode(const oct_quantizer *q, const oct_block_scale *s, float x,
                         uint64_t element) {
    return oct_fp8_encode_by(q->format, scaled(q, s, x),
                             oct_rounder_of(q->rounding, q->seed, q->counter + element),
                             OCT_SATURATE);
}
