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
#include "quant/quant_cache.h"

typedef enum oct_save { OCT_SAVE_NOTHING, OCT_SAVE_FOR_BACKWARD } oct_save;

/* A unit is a part of a model whose weights come and go together: 0 the embedding, 1 .. n the
 * layers, n + 1 the last norm and the head. */
typedef enum oct_phase { OCT_PHASE_FORWARD, OCT_PHASE_BACKWARD } oct_phase;

/* Told before a model runs a unit and after: where sharded training gathers weights, frees them
 * again and reduces gradients. Whatever order a model runs its units in, every rank does the same.
 * A unit's recompute belongs to its backward. */
typedef struct oct_unit_hooks {
    void *user;
    oct_status (*before)(void *user, const oct_step *step, int64_t unit, oct_phase phase);
    oct_status (*after)(void *user, const oct_step *step, int64_t unit, oct_phase phase);
} oct_unit_hooks;

/* A matrix that a training pass has quantized to multiply it: its source and its codes, a part a
 * group of rows (experts; else one). Everything is borrowed for the call. */
typedef struct oct_quant_sight {
    const oct_module *module;
    int64_t weight; /* of experts: an oct_expert_weight; else 0 */
    oct_role role;
    const oct_matrix_view *x;
    uint64_t
        id; /* of the tensor, as oct_tensor has it: the same again is the same matrix; 0: none */
    const int64_t *offsets;      /* (n_groups + 1) rows of x */
    const oct_quantized *groups; /* (n_groups), copies that weren't asked for have no codes */
    int64_t n_groups;
} oct_quant_sight;

/* Who wants to see them. A weight whose master isn't here whole is not shown. */
typedef struct oct_quant_observer {
    void *user;
    oct_status (*see)(void *user, const oct_quant_sight *sight);
} oct_quant_observer;

struct oct_step {
    oct_arena *saved, *scratch;
    oct_weights *weights;         /* where modules get their weights from; not owned */
    oct_quant_cache *quant_cache; /* quantizations that siblings share */
    oct_dtype
        activation; /* OCT_BF16 or OCT_F32: dtype of activations and of high-precision weights */
    oct_dtype gradient; /* what a weight's gradient is rounded to, once a micro-batch, before it is
                           added in fp32: F32 (not at all) or BF16 */
    oct_save save;
    int64_t B, S;     /* sequences and tokens a sequence: T = B * S rows in every activation */
    int64_t position; /* of the first token, > 0 when generating with a key-value cache */
    /* (B,S): where each token's document begins in its sequence, for attention that stays inside
     * documents; NULL: it doesn't. Set by the model, lives as long as the pass. */
    const int32_t *first_keys;
    struct oct_kv_cache *kv; /* generating: keys and values so far (nn/attention.h); else NULL */
    uint64_t next_id;
    const oct_unit_hooks *hooks;        /* NULL: none; not owned */
    const oct_quant_observer *observer; /* of training passes; NULL: none; not owned */
};

typedef struct oct_step_mark {
    oct_arena_mark scratch;
    size_t n_cached;
} oct_step_mark;

/* Owns the two arenas and the cache of quantizations. Gradients aren't rounded unless `gradient` is
 * set. */
oct_status oct_step_create(oct_weights *weights, oct_dtype activation, oct_step **out);
void oct_step_destroy(oct_step *step);

static inline oct_status oct_step_before(oct_step *step, int64_t unit, oct_phase phase) {
    return step->hooks ? step->hooks->before(step->hooks->user, step, unit, phase) : OCT_OK;
}
static inline oct_status oct_step_after(oct_step *step, int64_t unit, oct_phase phase) {
    return step->hooks ? step->hooks->after(step->hooks->user, step, unit, phase) : OCT_OK;
}

static inline oct_status oct_step_show(const oct_step *step, const oct_quant_sight *sight) {
    return step->observer ? step->observer->see(step->observer->user, sight) : OCT_OK;
}

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
