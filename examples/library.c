/* Quantizes two matrices to MXFP8, multiplies the codes, and compares with the fp32 matrices'
 * product.
 *
 *   cc examples/library.c $(pkg-config --cflags --libs octet) -lm -o library && ./library */
#include <math.h>
#include <octet/octet.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 64, N = 48, K = 256 };

static float a[M * K], b[N * K], c[M * N];
static uint8_t a_codes[M * K], a_scales[M * K / 32], b_codes[N * K], b_scales[N * K / 32];

int main(void) {
    for (int i = 0; i < M * K; i++)
        a[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < N * K; i++)
        b[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    oct_mx_quantize(a, OCT_F32, M, K, OCT_E4M3, OCT_SCALE_RCEIL, a_codes, a_scales);
    oct_mx_quantize(b, OCT_F32, N, K, OCT_E4M3, OCT_SCALE_RCEIL, b_codes, b_scales);
    oct_codes qa = {OCT_E4M3, a_codes, a_scales, 0}, qb = {OCT_E4M3, b_codes, b_scales, 0};
    oct_status status = oct_codes_multiply(&qa, &qb, M, N, K, c);
    if (status)
        return oct_status_exit_code(status);
    double error = 0, norm = 0;
    for (int i = 0; i < M * N; i++) {
        double exact = 0;
        for (int k = 0; k < K; k++)
            exact += (double)a[i / N * K + k] * b[i % N * K + k];
        error += (c[i] - exact) * (c[i] - exact);
        norm += exact * exact;
    }
    printf("relative error of the MXFP8 product: %.4f\n", sqrt(error / norm));
    return 0;
}
