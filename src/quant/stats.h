/* What 8 bits did to a matrix: counts and sums over its elements, blocks and scales. Sums only, so
 * that statistics of parts (micro-batches, experts' groups) add up to those of the whole. */
#ifndef OCT_QUANT_STATS_H
#define OCT_QUANT_STATS_H

#include "quant/quantize.h"

/* Scales are sorted by their biased exponent: bin b holds those of 2^(b - 127) to below 2^(b -
 * 126), bin 0 those below 2^-126; of E8M0 that is the code itself. A NaN scale is in none. */
enum { OCT_N_SCALE_BINS = 255 };

typedef struct oct_quant_stats {
    int64_t n;           /* elements */
    int64_t n_special;   /* not finite, or in a block that is poisoned; left out of all below */
    int64_t n_zero;      /* zero in the source */
    int64_t n_underflow; /* not zero in the source, zero in 8 bits */
    int64_t n_saturated; /* beyond the largest value of the format at their scale, by rounding */
    double amax;         /* largest magnitude */
    double signal;       /* sum of x^2 */
    double noise;        /* sum of (q - x)^2, q the decoded element */
    double product;      /* sum of q x */
    double relative;     /* sum of |q - x| / |x| over those that aren't zero in the source */
    int64_t n_blocks;    /* that have a scale: MX blocks or tiles, rows, or the matrix */
    int64_t n_poisoned;  /* of them those whose scale is NaN */
    int64_t n_flat;      /* MX: blocks of several magnitudes that all became one code's */
    int64_t scales[OCT_N_SCALE_BINS]; /* blocks by scale */
} oct_quant_stats;

/* Adds what quantizing did to `x`: `q` is its copy for contraction over either dimension, as
 * oct_quantize made it. Reads both once, threads over blocks; the same bits for any number of
 * threads. OCT_NO_MEMORY is the only failure. */
oct_status oct_quant_stats_add(const oct_matrix_view *x, const oct_qmatrix *q,
                               oct_quant_stats *stats);
/* Adds those of another part. */
void oct_quant_stats_merge(oct_quant_stats *sum, const oct_quant_stats *part);

/* Signal to quantization noise in decibels: 10 log10(signal / noise). INFINITY where nothing was
 * lost, NaN where there is no signal. */
double oct_quant_stats_sqnr(const oct_quant_stats *stats);
/* How much longer the quantized tensor is along the source than the source: <q,x> / <x,x> - 1. Of a
 * gradient: below 0, steps are shortened by that share. NaN where there is no signal. */
double oct_quant_stats_bias(const oct_quant_stats *stats);

/* Mean relative error of elements that aren't zero: unlike SQNR it isn't theirs alone who are
 * large. 0 where there are none. */
double oct_quant_stats_relative(const oct_quant_stats *stats);

/* The other formats and rules that a tensor is tried in. */
enum { OCT_N_QUANT_TRIALS = 6 };
/* "E4M3 floor", ... in the order of the trials. */
const char *oct_quant_trial_name(int trial);
/* Adds what each of them would do to at most `max_elements` of x (0: all): whole rows, evenly
 * spread, in blocks along dimension `dim`; per tensor by the largest magnitude of these. `arena` is
 * left as it was. OCT_NO_MEMORY is the only failure. */
oct_status oct_quant_stats_try(const oct_matrix_view *x, oct_role role, int dim,
                               int64_t max_elements, oct_arena *arena,
                               oct_quant_stats trials[OCT_N_QUANT_TRIALS]);

#endif
