/* Quantizes a weight as torchtitan-npu does for MXFP8, both ways round, and says what it cost.
 *
 *   cc examples/quantize_weight.c $(pkg-config --cflags --libs octet) -lm -o quantize_weight &&
 * ./quantize_weight */
#include <math.h>
#include <octet/octet.h>
#include <stdio.h>

enum { N = 96, K = 128 };

static float weight[N * K];
static uint8_t codes[N * K], scales[N * K];

static oct_status quantize(int axis) {
    oct_error err = {0};
    oct_quantizer q = {.struct_size = sizeof q};
    int64_t down, across;
    if (oct_quantizer_preset("mxfp8", "torchtitan-npu", OCT_USE_WEIGHT, axis, &q, &err) ||
        oct_quantizer_scales(&q, N, K, &down, &across)) {
        fprintf(stderr, "%s\n", err.message);
        return OCT_INVALID;
    }
    const oct_matrix x = {sizeof x, OCT_F32, weight, N, K, K, 1};
    oct_coded out = {.struct_size = sizeof out,
                     .codes = codes,
                     .row_stride = K,
                     .col_stride = 1,
                     .scales = scales,
                     .scale_row_stride = across,
                     .scale_col_stride = 1};
    oct_statistics s = {.struct_size = sizeof s};
    oct_status status = oct_matrix_quantize(&q, &x, &out, 0);
    if (!status)
        status = oct_matrix_measure(&x, &out, &s, 0);
    if (!status)
        printf("blocks along axis %d: %d scales, SQNR %.2f dB, %d of %d elements became 0\n", axis,
               (int)(down * across), s.sqnr_db, (int)s.n_underflow, (int)s.n);
    return status;
}

int main(void) {
    for (int i = 0; i < N * K; i++)
        weight[i] = (float)(sin(i * 12.9898) * cos(i * 0.7321) * 0.02);
    oct_status status = quantize(1);
    return oct_status_exit_code(status ? status : quantize(0));
}
