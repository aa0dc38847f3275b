/* See exact.h. */
#include "exact.h"

static double exact_hif8(int low) {
    if (low < 0x08) /* 0000 mmm */
        return low ? ldexp(1, low - 23) : 0;
    if (low < 0x10) /* 0001 mmm */
        return 1 + (low & 7) / 8.0;
    if (low < 0x20) /* 001 s mmm */
        return ldexp(1 + (low & 7) / 8.0, low & 8 ? -1 : 1);
    if (low < 0x40) /* 01 s a mmm */
        return ldexp(1 + (low & 7) / 8.0, (low & 16 ? -1 : 1) * (2 | (low >> 3 & 1)));
    if (low < 0x60) /* 10 s aa mm */
        return ldexp(1 + (low & 3) / 4.0, (low & 16 ? -1 : 1) * (4 | (low >> 2 & 3)));
    return low == 0x6f ? INFINITY /* 11 s aaa m */
                       : ldexp(1 + (low & 1) / 2.0, (low & 16 ? -1 : 1) * (8 | (low >> 1 & 7)));
}

double exact_value(oct_dtype format, int code) {
    int low = code & 0x7f;
    double magnitude;
    if (format == OCT_HIF8) {
        magnitude = code == 0x80 ? NAN : exact_hif8(low);
    } else if (format == OCT_E4M3) {
        int e = low >> 3, m = low & 7;
        magnitude = low == 0x7f ? NAN : e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    } else {
        int e = low >> 2, m = low & 3;
        magnitude = e == 31 ? (m ? NAN : INFINITY)
                    : e     ? ldexp(1 + m / 4.0, e - 15)
                            : ldexp(m / 4.0, -14);
    }
    return code & 0x80 ? -magnitude : magnitude;
}

double exact_largest(oct_dtype format) {
    double largest = 0;
    for (int code = 0; code < 128; code++)
        if (isfinite(exact_value(format, code)))
            largest = fmax(largest, exact_value(format, code));
    return largest;
}

double exact_rounded(oct_dtype format, double x) {
    static double values[OCT_N_DTYPES][128];
    double best = 0, magnitude = fabs(x), distance = magnitude;
    int best_code = 0;
    for (int code = 1; code < 128 && values[format][127] == 0; code++)
        values[format][code] = exact_value(format, code);
    for (int code = 1; code < 128; code++) {
        double value = values[format][code], d = fabs(value - magnitude);
        if (!isfinite(value) || d > distance)
            continue;
        bool wins = format == OCT_HIF8 ? value > best : code % 2 == 0 && best_code % 2 != 0;
        if (d < distance || wins) {
            best = value;
            best_code = code;
            distance = d;
        }
    }
    return copysign(best, x);
}

double exact_mx_scale(double amax, oct_dtype format, oct_scale_mode mode) {
    int exponent;
    if (amax == 0)
        return 0x1p-127;
    if (mode == OCT_SCALE_FLOOR) {
        frexp(amax, &exponent); /* amax = f 2^exponent, 1/2 <= f < 1 */
        exponent -= 1 + (format == OCT_E4M3 ? 8 : 15);
    } else {
        float d = (float)(amax * (double)(float)(1 / exact_largest(format)));
        if (d == 0)
            return 0x1p-127;
        exponent = frexp((double)d, &exponent) == 0.5 ? exponent - 1 : exponent;
    }
    return ldexp(1, exponent < -127 ? -127 : exponent > 127 ? 127 : exponent);
}
