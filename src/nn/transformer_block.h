/* A layer: x2 = x + attention(attention_norm(x)); y = x2 + feed_forward(ffn_norm(x2)).
 *
 * Works with any two modules (T,D) -> (T,D) as its attention and its feed-forward. The caller keeps
 * x until backward. In backward dx may be dy itself (OCT_OVERWRITE): the gradient of the residual
 * stream then stays in place.
 *
 * Recompute gives the same bits: the same kernels run on the same inputs. */
#ifndef OCT_NN_TRANSFORMER_BLOCK_H
#define OCT_NN_TRANSFORMER_BLOCK_H

#include "base/arena.h"
#include "nn/module.h"
#include "nn/norm.h"

typedef enum oct_recompute {
    OCT_RECOMPUTE_NONE,
    OCT_RECOMPUTE_OP,  /* backward computes cheap operators again: norms and SwiGLU */
    OCT_RECOMPUTE_FULL /* backward computes the whole layer again: x alone is kept */
} oct_recompute;

typedef struct oct_block {
    oct_module base;
    oct_norm *attention_norm, *ffn_norm;
    oct_module *attention, *feed_forward;
    oct_recompute recompute; /* oct_block_set_recompute */
} oct_block;

/* The parent owns the result. The creator then adds attention_norm, attention, ffn_norm and
 * feed_forward as children and sets the fields. */
oct_status oct_block_create(oct_module *parent, const char *component, oct_block **out);

/* Between steps only. */
void oct_block_set_recompute(oct_block *block, oct_recompute recompute);

#endif
