/* A module: a named node of a model with explicit forward and backward. No tape, no graph.
 *
 * `ops->forward` saves what backward needs on the step's saved stack; `ops->backward` reads it, in
 * reverse order of the forward calls. Recompute is running forward again. A converter changes what
 * a module does by swapping its ops; the name and the parameters stay. */
#ifndef OCT_NN_MODULE_H
#define OCT_NN_MODULE_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>

#include "kernel/gemm.h"

typedef struct oct_module oct_module;
typedef struct oct_step oct_step;

/* What a module is, whatever ops it has now: converters look for kinds. */
typedef enum oct_module_kind {
    OCT_MODULE_CONTAINER, /* holds children only */
    OCT_MODULE_LINEAR,
    OCT_MODULE_EMBEDDING,
    OCT_MODULE_NORM,
    OCT_MODULE_ATTENTION,
    OCT_MODULE_FEED_FORWARD,
    OCT_MODULE_EXPERTS,
    OCT_MODULE_MOE,
    OCT_MODULE_BLOCK,
    OCT_MODULE_MODEL
} oct_module_kind;

/* Whether a tree has master memory, or shapes alone (to plan models that no machine here holds). */
typedef enum oct_params_mode { OCT_PARAMS_ALLOCATED, OCT_PARAMS_SHAPES_ONLY } oct_params_mode;

/* How a parameter starts: torchtitan's initialisers. */
typedef enum oct_init_kind {
    OCT_INIT_ZEROS,
    OCT_INIT_ONES,
    OCT_INIT_NORMAL,
    OCT_INIT_TRUNCATED_NORMAL
} oct_init_kind;

typedef struct oct_init {
    oct_init_kind kind;
    float std;
    float low,
        high; /* truncated: in units of the value, as torch.nn.init.trunc_normal_'s a and b */
} oct_init;

typedef struct oct_param {
    char *name; /* fully qualified: "layers.0.attention.wq.weight" */
    int n_dims;
    int64_t shape[3]; /* of the whole: linear weight (N,K); experts (E,N,K); norm (D) */
    float *value;     /* the fp32 master, the only source of truth: all elements, or the shard */
    float *grad; /* fp32, beside `value`; NULL when frozen or not training. Backward adds to it:
                    sharded training lends a buffer of the whole shape meanwhile */
    int64_t first, n_held; /* elements first .. first + n_held - 1 of the whole are in `value` */
    bool frozen;           /* gets no gradient */
    uint64_t version;      /* grows whenever `value` changes; caches compare it */
    oct_init init;
} oct_param;

int64_t oct_param_elements(const oct_param *param); /* of the whole; n_held says what is here */

typedef struct oct_module_ops {
    const char *type_name; /* what `octet plan` prints: "Linear", "MXLinear", "RMSNorm", ... */
    /* y = f(x). Shapes are the module's own business; x is read-only, y is allocated by the caller.
     * y->data NULL (only while saving): the result isn't wanted, save what backward needs. */
    oct_status (*forward)(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y);
    /* dx (NULL: not wanted) is overwritten or added to; parameter gradients are added to. */
    oct_status (*backward)(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate);
    /* Whether forward keeps a pointer to x for backward: the caller then puts x on the saved stack.
     */
    bool keeps_input;
    /* The same for a module that only passes x on: asks its children. NULL: keeps_input says it. */
    bool (*passes_input)(const oct_module *m);
    /* Backward shall read x here instead: the same values, computed again. NULL where x isn't kept.
     */
    void (*replace_input)(oct_module *m, const oct_tensor *x);
    void (*destroy)(oct_module *m); /* frees what the ops own, not `m` itself; NULL: nothing */
} oct_module_ops;

struct oct_module {
    const oct_module_ops *ops;
    oct_module_kind kind;
    oct_params_mode params_mode; /* the root's choice; children inherit it */
    char *name;                  /* fully qualified, "" for the root */
    oct_module *parent;
    oct_module **children;
    int64_t n_children;
    oct_param **params; /* owned */
    int64_t n_params;
    void *saved; /* left by the last saving forward, on the step's saved stack */
};

/* A concrete module of n_bytes, whose first member is its oct_module: zeroed but for that. The name
 * is the parent's and its own ("parent.component"); the parent owns it, also when what its creator
 * does next fails. A root has no parent (NULL). NULL: memory was refused. */
void *oct_module_create(size_t n_bytes, oct_module_kind kind, const oct_module_ops *ops,
                        oct_module *parent, const char *component);
/* A parameter named "<module>.<component>", with master memory (unless the tree has shapes only)
 * and no gradient yet. */
oct_status oct_module_add_param(oct_module *m, const char *component, int n_dims,
                                const int64_t *shape, oct_init init, oct_param **out);
void oct_module_destroy(oct_module *m); /* the whole tree; NULL is fine */

/* Depth-first, parents before children, in order of creation. A visitor's non-OK status stops and
 * is returned. */
typedef oct_status (*oct_module_visitor)(oct_module *m, void *context);
oct_status oct_module_visit(oct_module *root, oct_module_visitor visitor, void *context);
oct_module *oct_module_find(oct_module *root, const char *name); /* NULL when there is none */

/* All parameters of a tree in visiting order (oct_free the array). */
oct_status oct_module_params(oct_module *root, oct_param ***params, int64_t *n_params);

bool oct_module_keeps_input(const oct_module *m);
static inline void oct_module_replace_input(oct_module *m, const oct_tensor *x) {
    if (m->ops->replace_input)
        m->ops->replace_input(m, x);
}

static inline oct_status oct_forward(oct_module *m, oct_step *step, const oct_tensor *x,
                                     oct_tensor *y) {
    return m->ops->forward(m, step, x, y);
}
static inline oct_status oct_backward(oct_module *m, oct_step *step, const oct_tensor *dy,
                                      oct_tensor *dx, oct_accumulate accumulate) {
    return m->ops->backward(m, step, dy, dx, accumulate);
}

#endif
