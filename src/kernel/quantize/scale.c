/* What all kernel sets share: see quantize.h. */
#include "kernel/quantize.h"

#include <math.h>

float oct_scale_from_amax(float amax, float target) {
    if (!isfinite(amax))
        return NAN;
    if (amax == 0)
        return 1;
    float scale = amax / target;
    return scale < 0x1p-126f ? 0x1p-126f : scale;
}
