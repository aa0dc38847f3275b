/* What several seeds say of the gap between two recipes: its mean, its uncertainty, a verdict. */
#ifndef OCT_COMPARE_GAP_H
#define OCT_COMPARE_GAP_H

#include <stdbool.h>
#include <stdint.h>

/* Of n paired differences x: the mean, its standard error sd / sqrt(n), and the 95 % confidence
 * interval mean +- t(n - 1) x se of Student's t. One difference says nothing of its own error: se
 * is NaN, and the interval is unbounded. */
typedef struct oct_gap {
    int64_t n;
    double mean, se, low, high;
} oct_gap;

oct_gap oct_gap_of(const double *differences, int64_t n);

/* Student's t, two-sided, 95 %, for `df` >= 1 degrees of freedom; to 4 digits. */
double oct_student_t95(int64_t df);

typedef enum oct_verdict {
    OCT_VERDICT_EQUIVALENT, /* the whole interval is below the gate */
    OCT_VERDICT_WORSE,      /* the whole interval is above it */
    OCT_VERDICT_UNRESOLVED  /* the gate is inside; always so of one seed */
} oct_verdict;

/* `gate` > 0: the largest gap that is as good as none, in the unit of the differences. */
oct_verdict oct_gap_verdict(const oct_gap *gap, double gate);

/* How many seeds more would decide, if mean and spread stayed what they are; -1: more than a
 * thousand, or one seed, which knows of no spread. */
int64_t oct_gap_seeds_to_decide(const oct_gap *gap, double gate);

#endif
