/* The gap between two recipes over seeds: see gap.h. */
#include "base/count.h"
#include "compare/gap.h"

#include <math.h>

enum { MAX_MORE = 1000 };

double oct_student_t95(int64_t df) {
    static const double table[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646,
                                   2.3060,  2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
                                   2.1314,  2.1199, 2.1098, 2.1009, 2.0930, 2.0860};
    const int64_t n = OCT_COUNT(table);
    if (df < 1)
        return NAN;
    if (df <= n)
        return table[df - 1];
    /* Cornish and Fisher's expansion in 1 / df (Abramowitz and Stegun 26.7.5), which is right to
     * four digits from here on. */
    const double z = 1.9599640, z2 = z * z, v = 1 / (double)df;
    const double first = (z2 + 1) / 4, second = ((5 * z2 + 16) * z2 + 3) / 96;
    const double third = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
    return z * (1 + v * (first + v * (second + v * third)));
}

oct_gap oct_gap_of(const double *x, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    const double mean = n ? sum / (double)n : NAN;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    if (n < 2)
        return (oct_gap){n, mean, NAN, -INFINITY, INFINITY};
    const double se = sqrt(squares / (double)(n - 1) / (double)n);
    const double half = oct_student_t95(n - 1) * se;
    return (oct_gap){n, mean, se, mean - half, mean + half};
}

oct_verdict oct_gap_verdict(const oct_gap *gap, double gate) {
    if (gap->n < 2 || isnan(gap->se))
        return OCT_VERDICT_UNRESOLVED;
    if (gap->high < gate)
        return OCT_VERDICT_EQUIVALENT;
    return gap->low > gate ? OCT_VERDICT_WORSE : OCT_VERDICT_UNRESOLVED;
}

int64_t oct_gap_seeds_to_decide(const oct_gap *gap, double gate) {
    const double sd = gap->se * sqrt((double)gap->n), room = fabs(gate - gap->mean);
    for (int64_t more = 1; gap->n >= 2 && more <= MAX_MORE; more++) {
        int64_t n = gap->n + more;
        if (oct_student_t95(n - 1) * sd / sqrt((double)n) < room)
            return more;
    }
    return -1;
}
