/* The context of one forward/backward pass: memory, weights, and what siblings share.
 *
 * Two stacks. `saved` holds what backward needs: pushed in forward, released by the block that
 * pushed it once its backward is done. `scratch` holds everything else: who enters leaves again.
 * With save off (evaluation, or the first forward of a recomputed block) nothing is pushed on
 * `saved`. */
#ifndef OCT_NN_STEP_H
#define OCT_NN_STEP_H

#include "base/arena.h"
#include "nn/module.h"
#include "nn/weights.h"
#include "quant/shared.h"

typedef enum oct_save { OCT_SAVE_NOTHING, OCT_SAVE_FOR_BACKWARD } oct_save;

struct oct_step {
    oct_arena *saved, *scratch;
    oct_weights *weights; /* where modules get their weights from; not owned */
    oct_shared *shared;   /* quantizations that siblings share */
    oct_dtype
        activation; /* OCT_BF16 or OCT_F32: dtype of activations and of high-precision weights */
    oct_save save;
    int64_t B, S;     /* sequences and tokens a sequence: T = B * S rows in every activation */
    int64_t position; /* of the first token, > 0 when generating with a key-value cache */
    struct oct_kv_cache *kv; /* generating: keys and values so far (nn/attention.h); else NULL */
    uint64_t next_id;
};

typedef struct oct_step_mark {
    oct_arena_mark scratch;
    size_t n_shared;
} oct_step_mark;

/* Owns the two arenas and the share table. */
oct_status oct_step_create(oct_weights *weights, oct_dtype activation, oct_step **out);
void oct_step_destroy(oct_step *step);

/* Scratch is freed, and shared quantizations that lived in it are forgotten, when the mark is left.
 */
oct_step_mark oct_step_enter(oct_step *step);
void oct_step_leave(oct_step *step, oct_step_mark mark);

/* A new (rows, cols) tensor with an id of its own. data == NULL: memory refused. */
oct_tensor oct_step_scratch(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols);
oct_tensor oct_step_saved(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols);
/* A tensor whose values change in place needs a new id, else shared quantizations of the old values
 * would be found for it. */
static inline uint64_t oct_step_new_id(oct_step *step) {
    return ++step->next_id;
}
/* Memory on the saved stack for a module's own notes; NULL: refused. */
void *oct_step_keep(oct_step *step, size_t n_bytes);
/* On the saved stack if saving and `keep`, else in scratch. */
oct_tensor oct_step_tensor(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols, bool keep);

#endif
