/* The product's kernels in plain C: the specification of `exact` (gemm.h) for one panel pair. */
#include <math.h>
#include <octet/format.h>

#include "base/checked.h"
#include "format/fp8.h"
#include "kernel/gemm/kernels.h"
#include "kernel/gemm/plain.h"

enum { MR = 4, NR = 8 };

/* Element (r,k) as fp32, the scale folded in with one rounding: both factors are exact. */
static float element(const oct_operand *x, const float *table, int64_t r, int64_t k) {
    oct_position at = oct_operand_position(x, r, k);
    int64_t i = at.p * x->ld + at.q;
    float value;
    if (x->dtype == OCT_F32)
        value = ((const float *)x->data)[i];
    else if (x->dtype == OCT_BF16)
        value = oct_bf16_decode(((const uint16_t *)x->data)[i]);
    else
        value = table[((const uint8_t *)x->data)[i]];
    return x->scaling == OCT_SCALING_NONE ? value : value * oct_operand_scale(x, r, k);
}

static void pack(const oct_gemm_source *from, float *panel, int64_t width) {
    const oct_operand *x = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    float table[256] = {0};
    if (x->dtype != OCT_F32 && x->dtype != OCT_BF16)
        for (int code = 0; code < 256; code++)
            table[code] = oct_fp8_value(x->dtype, (uint8_t)code);
    for (int64_t i = 0; i < kc; i++)
        for (int64_t r = 0; r < width; r++)
            panel[i * width + r] = r < n_rows ? element(x, table, row + r, k + i) : 0;
}

static void pack_a(const oct_gemm_source *from, void *panel) {
    pack(from, panel, MR);
}

static void pack_b(const oct_gemm_source *from, void *panel) {
    pack(from, panel, NR);
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    const float *a = a_panel, *b = b_panel;
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j++) {
            float s = 0, *out = &acc[i * ld_acc + j];
            for (int64_t k = 0; k < kc; k++)
                s = fmaf(a[k * MR + i], b[k * NR + j], s);
            *out = accumulate == OCT_ADD_TO_OUTPUT ? *out + s : s;
        }
}

static void store(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols, void *c,
                  oct_dtype c_dtype, int64_t ld_c, oct_accumulate accumulate, const float *bias,
                  oct_dtype sum_dtype) {
    oct_store_plain(acc, ld_acc, n_rows, n_cols, c, c_dtype, ld_c, accumulate, bias, sum_dtype);
}

const oct_gemm_kernels oct_gemm_kernels_ref = {
    .MR = MR,
    .NR = NR,
    .k_step = OCT_GEMM_K_CHUNK,
    .a_bytes_per_k = MR * sizeof(float),
    .b_bytes_per_k = NR * sizeof(float),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = store,
};
