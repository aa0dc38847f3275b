/* Everything between the products: norms, rotary embedding, gates, softmax, loss, optimizer.
 *
 * Every set gives the same bits. They are one source (kernel/elementwise/) compiled for each
 * instruction set: no fused multiply-add, and a sum over a row always runs in 16 fixed lanes (lane
 * l adds elements l, l+16, ... of a chunk of OCT_SUM_CHUNK elements), the lanes of a chunk are
 * added as a fixed tree, chunks in order in fp64. So a result depends on the values alone.
 *
 * Activations are F32 or BF16, computed in fp32 and rounded once when stored (to nearest, ties to
 * even). n is any number of elements >= 0; only the elements named are read or written, at any
 * alignment. Outputs may be inputs, element for element. Kernels are single-threaded and never
 * allocate. exp is within 2 ulp, with the right limits, NaN kept. */
#ifndef OCT_KERNEL_ELEMENTWISE_H
#define OCT_KERNEL_ELEMENTWISE_H

#include <octet/tensor.h>
#include <stdint.h>

#include "kernel/cpu.h"
#include "kernel/gemm.h"

#define OCT_SUM_CHUNK 2048

/* Contiguous elements of F32 or BF16. */
typedef struct oct_source {
    const void *data;
    oct_dtype dtype;
} oct_source;

typedef struct oct_target {
    void *data;
    oct_dtype dtype;
} oct_target;

static inline oct_source oct_source_at(oct_source x, int64_t i) {
    size_t width = x.dtype == OCT_F32 ? 4 : 2;
    return (oct_source){(const char *)x.data + (size_t)i * width, x.dtype};
}
static inline oct_target oct_target_at(oct_target x, int64_t i) {
    size_t width = x.dtype == OCT_F32 ? 4 : 2;
    return (oct_target){(char *)x.data + (size_t)i * width, x.dtype};
}
static inline oct_source oct_source_of(oct_target x) {
    return (oct_source){x.data, x.dtype};
}

/* Factors of one Adam step: see op/optimizer.h. */
typedef struct oct_adam_factors {
    float grad_scale;                /* g = grad * grad_scale + l2 * value */
    float l2;                        /* 0 for decoupled decay */
    float keep;                      /* value *= keep first: 1 - lr * decay, or 1 */
    float beta2, new1, new2;         /* new1 = 1 - beta1, new2 = 1 - beta2 */
    float step_size, inv_sqrt_bias2; /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float eps;
} oct_adam_factors;

/* What of Adam's results isn't finite, as bits. */
typedef enum oct_adam_flaw { OCT_ADAM_VALUE = 1, OCT_ADAM_M = 2, OCT_ADAM_V = 4 } oct_adam_flaw;

/* Which elements of a head turn together. */
typedef enum oct_rope_pairs {
    OCT_ROPE_INTERLEAVED, /* (0,1), (2,3), ...: torchtitan's llama3 and deepseek_v3 */
    OCT_ROPE_HALVES       /* (i, i + dims/2): qwen3, and Hugging Face's files of all models */
} oct_rope_pairs;

typedef struct oct_elementwise_kernels {
    /* y = x in y's dtype; y = a + b; y = x * factor. */
    void (*cast)(oct_source x, int64_t n, oct_target y);
    void (*add)(oct_source a, oct_source b, int64_t n, oct_target y);
    void (*scale)(oct_source x, float factor, int64_t n, oct_target y);
    /* y = exp(x), fp32. */
    void (*exp)(const float *x, int64_t n, float *y);

    /* y = silu(gate) * up; and its gradients. */
    void (*swiglu)(oct_source gate, oct_source up, int64_t n, oct_target y);
    void (*swiglu_backward)(oct_source dy, oct_source gate, oct_source up, int64_t n,
                            oct_target dgate, oct_target dup);

    /* One row of D elements: y = x * rstd * weight; returns rstd = 1 / sqrt(mean(x^2) + eps). */
    float (*rmsnorm)(oct_source x, const float *weight, float eps, int64_t D, oct_target y);
    /* One row: with g = dy * weight, dx = [dx +] rstd * (g - x * rstd^2 * mean(g x)) and
     * dweight += dy * x * rstd. dx.data or dweight may be NULL. */
    void (*rmsnorm_backward)(oct_source dy, oct_source x, const float *weight, float rstd,
                             int64_t D, oct_target dx, oct_accumulate accumulate, float *dweight);

    /* In place on one head: y[i] = x[i] * cosine[i] + sign * sine[i] * x[partner(i)]; dims even.
     * The partner is i ^ 1 (interleaved) or i +- dims/2 (halves); cosine and sine hold dims
     * elements, the minus of the turn already in sine. sign is 1, or -1 to turn back. */
    void (*rope)(oct_target x, const float *cosine, const float *sine, float sign,
                 oct_rope_pairs pairs, int64_t dims);

    /* Sums and the maximum of a row; the maximum of none is -inf and passes NaN over. */
    double (*sum_of_squares)(const float *x, int64_t n); /* squares in fp64, 16 lanes, fp64 tree */
    float (*dot)(oct_source a, oct_source b, int64_t n);
    float (*max)(oct_source x, int64_t n);
    /* Sum of exp(x - shift). */
    double (*sum_exp)(oct_source x, int64_t n, float shift);

    /* Softmax over a row that comes in blocks. x[j] = exp(scale * x[j] - max) for j < n, and 0 for
     * n <= j < n_total, where *max becomes the larger of itself and the block's; *sum = *sum *
     * factor + the block's sum. Returns factor = exp(old max - new max) for what was accumulated
     * so far (0 when the old max is -inf). n = 0 leaves max and sum, and returns 1. */
    float (*softmax_block)(float *x, int64_t n, int64_t n_total, float scale, float *max,
                           float *sum);
    /* From scores and the log of their sum: p = exp(scale * score - lse) for j < n, in place of the
     * scores, and dp = p * (dp - delta) * scale; both 0 for n <= j < n_total. */
    void (*softmax_backward)(float *scores, float *dp, int64_t n, int64_t n_total, float scale,
                             float lse, float delta);
    /* x[j] = exp(x[j] - max) * inv_sum * grad_scale, element `label` minus grad_scale. */
    void (*cross_entropy_gradient)(oct_target x, int64_t n, float max, float inv_sum, int64_t label,
                                   float grad_scale);

    /* Returns which of the three arrays got a NaN or an infinity: a sum of oct_adam_flaw, 0 when
     * all is finite. */
    unsigned (*adam)(const oct_adam_factors *factors, int64_t n, const float *grad, float *value,
                     float *m, float *v);
} oct_elementwise_kernels;

extern const oct_elementwise_kernels oct_elementwise_kernels_ref, oct_elementwise_kernels_avx2,
    oct_elementwise_kernels_avx512;

/* The best set up to `level` that the compiler could build. */
const oct_elementwise_kernels *oct_elementwise_select(oct_cpu_level level);

#endif
