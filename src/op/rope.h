/* Rotary position embedding (Su et al., arXiv 2104.09864): pairs of a head's elements are turned by
 * position * frequency. The cosines and sines are computed once, as torchtitan and Hugging Face do
 * (frequencies and angles rounded to fp32). */
#ifndef OCT_OP_ROPE_H
#define OCT_OP_ROPE_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>

#include "kernel/elementwise.h"

typedef enum oct_rope_scaling {
    OCT_ROPE_UNSCALED,
    OCT_ROPE_LLAMA3,
    OCT_ROPE_YARN,
    OCT_ROPE_LINEAR,
    OCT_ROPE_DYNAMIC /* NTK by length: the frequencies follow the table's number of positions */
} oct_rope_scaling;

typedef struct oct_rope_config {
    int64_t dims; /* elements that turn, even; frequency i is theta^(-2i/dims) */
    double theta; /* > 0 */
    oct_rope_pairs pairs;
    oct_rope_scaling scaling;
    double factor;               /* LLAMA3, YARN: low frequencies are divided by it, LINEAR: all;
                                    DYNAMIC: how far the base is stretched; > 0 */
    double original_context;     /* LLAMA3, YARN, DYNAMIC: tokens of the first training; > 0 */
    double low_freq_factor;      /* LLAMA3: wavelengths > context / low are divided fully */
    double high_freq_factor;     /* LLAMA3: wavelengths < context / high are left alone; > low */
    double beta_fast, beta_slow; /* YARN: rotations in the original context that bound the ramp;
                                    arXiv 2309.00071. The softmax scale is the model's business. */
    bool untruncated;            /* YARN: those bounds as they are, not as whole pairs */
    double attention_factor;     /* cosines and sines are multiplied by it; 0: 1 */
} oct_rope_config;

typedef struct oct_rope_table oct_rope_table;

/* Positions 0 .. n_positions-1. DYNAMIC: for a sequence of n_positions tokens; up to
 * original_context tokens the frequencies are those without scaling. Sources of LINEAR, DYNAMIC and
 * attention_factor: transformers, modeling_rope_utils.py. OCT_INVALID when the configuration is out
 * of range. */
oct_status oct_rope_table_create(const oct_rope_config *config, int64_t n_positions,
                                 oct_rope_table **out);
void oct_rope_table_destroy(oct_rope_table *table); /* NULL is fine */

typedef enum oct_rope_turn {
    OCT_ROPE_FORWARD,
    OCT_ROPE_BACKWARD /* the inverse turn: takes gradients back */
} oct_rope_turn;

/* Turns x (B*S, H*head_dim), F32 or BF16, in place: of every head the elements first ..
 * first+dims-1. Row t stands at position `position` + t % S. OCT_INVALID when a position is not in
 * the table or the shapes don't fit. */
oct_status oct_rope_apply(const oct_rope_table *table, oct_tensor *x, int64_t S, int64_t position,
                          int64_t head_dim, int64_t first, oct_rope_turn turn);

#endif
