/* What the formats say, worked out in fp64 from the tables of docs/numerics.md and by search, so
 * that an expected value shares nothing with the library's codecs: values of codes, the code of a
 * number, the scale of an MX block. */
#ifndef OCT_TESTS_EXACT_H
#define OCT_TESTS_EXACT_H

#include <math.h>
#include <octet/format.h>
#include <stdbool.h>

/* The value of a code of E4M3, E5M2 or HIF8. */
double exact_value(oct_dtype format, int code);
double exact_largest(oct_dtype format);

/* The value of the code that a finite x gets, saturating: the nearest; of two as near, the one with
 * an even code (E4M3, E5M2) or the larger (HIF8, ties away). */
double exact_rounded(oct_dtype format, double x);

/* The scale of an MX block whose largest magnitude is amax, in mode rceil or floor. */
double exact_mx_scale(double amax, oct_dtype format, oct_scale_mode mode);

#endif
