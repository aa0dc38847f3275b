/* The shuffles of latent attention: see latent.h. */
#include "op/latent.h"

#include <octet/format.h>
#include <string.h>

#include "op/common.h"

typedef struct rows {
    unsigned char *data;
    size_t n_bytes; /* of a row */
} rows;

static rows rows_of(const oct_tensor *x) {
    return (rows){x->data, (size_t)oct_tensor_cols(x) * oct_dtype_bytes(x->dtype)};
}

typedef struct latent_run latent_run;
struct latent_run {
    int64_t T, rows_per_task;
    void (*row)(const latent_run *run, size_t t); /* what is done to row t */
    rows whole, left, right;                      /* split and join */
    oct_latent_shape shape;                       /* in elements */
    size_t nope, rope, v_size;                    /* in bytes of a head */
    oct_dtype dtype;
    rows up, k, v, k_rope;
};

static bool same_rows(const oct_tensor *a, const oct_tensor *b) {
    return oct_op_is_dense(a) && a->dtype == b->dtype && oct_tensor_rows(a) == oct_tensor_rows(b);
}

static latent_run new_run(const oct_tensor *widest) {
    return (latent_run){.T = oct_tensor_rows(widest),
                        .rows_per_task = oct_op_task_rows(oct_tensor_cols(widest)),
                        .dtype = widest->dtype};
}

static void rows_task(void *context, int64_t task, int thread) {
    (void)thread;
    const latent_run *run = context;
    size_t first = (size_t)(task * run->rows_per_task);
    size_t n = (size_t)oct_op_task_length(task, run->rows_per_task, run->T);
    for (size_t t = first; t < first + n; t++)
        run->row(run, t);
}

static void run_rows(latent_run *run, void (*row)(const latent_run *run, size_t t)) {
    run->row = row;
    oct_parallel(oct_ceil_div(run->T, run->rows_per_task), rows_task, run);
}

static void split_row(const latent_run *run, size_t t) {
    const unsigned char *from = run->whole.data + t * run->whole.n_bytes;
    memcpy(run->left.data + t * run->left.n_bytes, from, run->left.n_bytes);
    memcpy(run->right.data + t * run->right.n_bytes, from + run->left.n_bytes, run->right.n_bytes);
}

static void join_row(const latent_run *run, size_t t) {
    unsigned char *to = run->whole.data + t * run->whole.n_bytes;
    memcpy(to, run->left.data + t * run->left.n_bytes, run->left.n_bytes);
    memcpy(to + run->left.n_bytes, run->right.data + t * run->right.n_bytes, run->right.n_bytes);
}

static oct_status run_parts(const oct_tensor *whole, const oct_tensor *left,
                            const oct_tensor *right, void (*row)(const latent_run *run, size_t t)) {
    if (!same_rows(whole, left) || !same_rows(whole, right) ||
        oct_tensor_cols(whole) != oct_tensor_cols(left) + oct_tensor_cols(right))
        return OCT_INVALID;
    latent_run run = new_run(whole);
    run.whole = rows_of(whole);
    run.left = rows_of(left);
    run.right = rows_of(right);
    run_rows(&run, row);
    return OCT_OK;
}

oct_status oct_latent_split(const oct_tensor *latent_rope, oct_tensor *latent, oct_tensor *k_rope) {
    return run_parts(latent_rope, latent, k_rope, split_row);
}

oct_status oct_latent_join(const oct_tensor *latent, const oct_tensor *k_rope,
                           oct_tensor *latent_rope) {
    return run_parts(latent_rope, latent, k_rope, join_row);
}

static bool heads_fit(const oct_latent_shape *s, const oct_tensor *up, const oct_tensor *k_rope,
                      const oct_tensor *k, const oct_tensor *v) {
    return same_rows(up, k_rope) && same_rows(up, k) && same_rows(up, v) &&
           oct_tensor_cols(up) == s->n_heads * (s->nope_dim + s->v_dim) &&
           oct_tensor_cols(k) == s->n_heads * (s->nope_dim + s->rope_dim) &&
           oct_tensor_cols(v) == s->n_heads * s->v_dim && oct_tensor_cols(k_rope) == s->rope_dim;
}

static oct_status run_heads(const oct_latent_shape *s, const oct_tensor *up,
                            const oct_tensor *k_rope, const oct_tensor *k, const oct_tensor *v,
                            void (*row)(const latent_run *run, size_t t)) {
    if (!heads_fit(s, up, k_rope, k, v))
        return OCT_INVALID;
    latent_run run = new_run(up);
    size_t size = oct_dtype_bytes(up->dtype);
    run.shape = *s;
    run.nope = (size_t)s->nope_dim * size;
    run.rope = (size_t)s->rope_dim * size;
    run.v_size = (size_t)s->v_dim * size;
    run.up = rows_of(up);
    run.k_rope = rows_of(k_rope);
    run.k = rows_of(k);
    run.v = rows_of(v);
    run_rows(&run, row);
    return OCT_OK;
}

static void heads_row(const latent_run *run, size_t t) {
    const unsigned char *up = run->up.data + t * run->up.n_bytes;
    const unsigned char *k_rope = run->k_rope.data + t * run->k_rope.n_bytes;
    unsigned char *k = run->k.data + t * run->k.n_bytes;
    unsigned char *v = run->v.data + t * run->v.n_bytes;
    for (int64_t h = 0; h < run->shape.n_heads; h++) {
        memcpy(k, up, run->nope);
        memcpy(k + run->nope, k_rope, run->rope);
        memcpy(v, up + run->nope, run->v_size);
        k += run->nope + run->rope;
        v += run->v_size;
        up += run->nope + run->v_size;
    }
}

oct_status oct_latent_heads(const oct_latent_shape *shape, const oct_tensor *up,
                            const oct_tensor *k_rope, oct_tensor *k, oct_tensor *v) {
    return run_heads(shape, up, k_rope, k, v, heads_row);
}

static float load(oct_dtype dtype, const unsigned char *x) {
    float value;
    uint16_t half;
    if (dtype == OCT_F32) {
        memcpy(&value, x, sizeof value);
        return value;
    }
    memcpy(&half, x, sizeof half);
    return oct_bf16_decode(half);
}

static void store(oct_dtype dtype, float value, unsigned char *x) {
    uint16_t half = oct_bf16_encode(value);
    if (dtype == OCT_F32)
        memcpy(x, &value, sizeof value);
    else
        memcpy(x, &half, sizeof half);
}

/* dk_rope = the sum of the heads' gradients of what they share. */
static void sum_heads(const latent_run *run, const unsigned char *dk, unsigned char *dk_rope) {
    size_t size = oct_dtype_bytes(run->dtype), head = run->nope + run->rope;
    for (int64_t i = 0; i < run->shape.rope_dim; i++) {
        float sum = 0.0f;
        for (int64_t h = 0; h < run->shape.n_heads; h++)
            sum += load(run->dtype, dk + (size_t)h * head + run->nope + (size_t)i * size);
        store(run->dtype, sum, dk_rope + (size_t)i * size);
    }
}

static void heads_backward_row(const latent_run *run, size_t t) {
    unsigned char *dup = run->up.data + t * run->up.n_bytes;
    const unsigned char *dk = run->k.data + t * run->k.n_bytes;
    const unsigned char *dv = run->v.data + t * run->v.n_bytes;
    sum_heads(run, dk, run->k_rope.data + t * run->k_rope.n_bytes);
    for (int64_t h = 0; h < run->shape.n_heads; h++) {
        memcpy(dup, dk, run->nope);
        memcpy(dup + run->nope, dv, run->v_size);
        dk += run->nope + run->rope;
        dv += run->v_size;
        dup += run->nope + run->v_size;
    }
}

oct_status oct_latent_heads_backward(const oct_latent_shape *shape, const oct_tensor *dk,
                                     const oct_tensor *dv, oct_tensor *dup, oct_tensor *dk_rope) {
    return run_heads(shape, dup, dk_rope, dk, dv, heads_backward_row);
}
