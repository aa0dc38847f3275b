/* What attention's forward and backward share: the run, its blocks and its small products. */
#ifndef OCT_OP_ATTENTION_BLOCKS_H
#define OCT_OP_ATTENTION_BLOCKS_H

#include "kernel/gemm.h"
#include "op/attention.h"
#include "op/common.h"

/* Rows of queries and of keys that are multiplied at once: the scores of a block (128 KiB) stay in
 * L2, small products are still efficient, and little is computed above the diagonal. */
enum { OCT_QUERY_BLOCK = 64, OCT_KEY_BLOCK = 512 };

typedef struct oct_attention_run {
    const oct_elementwise_kernels *kernels;
    oct_attention_shape s; /* kv_stride filled in */
    int64_t group;         /* query heads that share a key/value head */
    oct_source q, k, v, o, d_o;
    oct_target out, dq, dk, dv; /* out: o of forward */
    float *lse_out;
    const float *lse;
    unsigned char *workspace; /* slices of slice_bytes, one a thread */
    size_t slice_bytes;
} oct_attention_run;

/* Whether the shape makes sense and q, k, v fit it; fills in kv_stride. */
bool oct_attention_shape_fits(oct_attention_shape *s, const oct_tensor *q, const oct_tensor *k,
                              const oct_tensor *v);

/* Whether x is dense and has exactly rows * heads * dim elements. */
bool oct_attention_tensor_fits(const oct_tensor *x, int64_t rows, int64_t heads, int64_t dim);

/* Runs the tasks, each thread with a slice of slice_bytes of scratch, which it leaves again. */
oct_status oct_attention_execute(oct_attention_run *run, size_t slice_bytes, int64_t n_tasks,
                                 void (*task)(void *run, int64_t task, int thread),
                                 oct_arena *scratch);

/* x (rows, K) with K contiguous. */
static inline oct_operand oct_attention_rows(oct_source x, int64_t ld) {
    return (oct_operand){.dtype = x.dtype, .layout = OCT_K_CONTIGUOUS, .data = x.data, .ld = ld};
}

/* x (K, rows), read along its columns. */
static inline oct_operand oct_attention_cols(oct_source x, int64_t ld) {
    return (oct_operand){.dtype = x.dtype, .layout = OCT_K_STRIDED, .data = x.data, .ld = ld};
}

static inline oct_source oct_attention_f32(const float *x) {
    return (oct_source){x, OCT_F32};
}

/* Keys k0 .. k0+n_keys-1 that a query which sees `seen` keys sees. */
static inline int64_t oct_attention_visible(int64_t seen, int64_t k0, int64_t n_keys) {
    return oct_min_i64(oct_max_i64(seen - k0, 0), n_keys);
}

/* The first key that the query of sequence b which sees keys up to `seen` - 1 sees: the one place
 * that knows of windows and documents. Never less than that of the query before. */
static inline int64_t oct_attention_first(const oct_attention_shape *s, int64_t b, int64_t seen) {
    int64_t first = s->first_keys ? s->first_keys[b * s->S + seen - 1 - s->past] : 0;
    return s->window > 0 ? oct_max_i64(seen - s->window, first) : first;
}

/* Of a block's row of n_keys values from key k0 on, those that a query sees: [begin, end). */
typedef struct oct_attention_span {
    int64_t begin, end;
} oct_attention_span;

static inline oct_attention_span oct_attention_seen(const oct_attention_shape *s, int64_t b,
                                                    int64_t seen, int64_t k0, int64_t n_keys) {
    int64_t end = oct_attention_visible(seen, k0, n_keys);
    int64_t begin = oct_attention_visible(oct_attention_first(s, b, seen), k0, n_keys);
    return (oct_attention_span){oct_min_i64(begin, end), end};
}

/* Hands out 64-byte aligned pieces of a thread's slice; with base NULL it only measures, and the
 * pieces are nowhere. */
typedef struct oct_attention_slice {
    unsigned char *base;
    size_t used;
} oct_attention_slice;

static inline void *oct_attention_take(oct_attention_slice *slice, size_t n_bytes) {
    void *piece = (void *)((uintptr_t)slice->base + slice->used);
    slice->used += (n_bytes + 63) / 64 * 64;
    return piece;
}

static inline float *oct_attention_take_floats(oct_attention_slice *slice, int64_t n) {
    return oct_attention_take(slice, (size_t)n * sizeof(float));
}

#endif
