/* Products of packed panels straight from their operands' codes, in fp32: for the rows and panels
 * that integers don't serve (panel_vnni.h).
 *
 * Invariant: the sums of `exact`, of one step. */
#include <string.h>

#include "kernel/gemm/vnni/panel_vnni.h"
#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/read_rows.h"
#include "kernel/bf16_of_codes.h"

enum { BLOCK = OCT_MX_BLOCK, STEP = OCT_VNNI_STEP };

/* The codes of sixteen rows of a panel and what they are to be multiplied with. */
typedef struct rows16 {
    oct_code_table table;
    alignas(64) uint8_t codes[STEP * 16];
    alignas(64) float factors[STEP / BLOCK * 16];
} rows16;

static void read_rows(const oct_vnni_panel *p, int64_t group, int64_t kc, rows16 *rows) {
    const oct_vnni_head *h = p->head;
    __mmask16 lanes = oct_lanes_below(h->n_rows - 16 * group);
    int64_t row = lanes ? h->row + 16 * group : h->row;
    rows->table = oct_code_table_load(oct_bf16_of_codes(h->source->dtype), h->source->dtype);
    oct_gather_codes(h->source, row, lanes, h->k, kc, rows->codes);
    for (int64_t k = 0; k < kc; k += BLOCK)
        _mm512_store_ps(rows->factors + k / BLOCK * 16,
                        oct_lane_scales(h->source, row, lanes, h->k + k));
}

OCT_INLINE __m512 decoded_at(const rows16 *rows, int64_t k) {
    __m512i quad = _mm512_load_si512(rows->codes + k / 4 * 64);
    __m512i code = _mm512_and_si512(_mm512_srl_epi32(quad, _mm_cvtsi32_si128((int)(k % 4) * 8)),
                                    _mm512_set1_epi32(0xff));
    return _mm512_mul_ps(oct_decode_lanes(&rows->table, code),
                         _mm512_load_ps(rows->factors + k / BLOCK * 16));
}

/* Adds k = first .. last-1 to s. */
static void add_chunk(const rows16 *a, const rows16 b[2], int64_t first, int64_t last,
                      oct_vnni_sums *s) {
    for (int64_t k = first; k < last; k++) {
        alignas(64) float x[16];
        _mm512_store_ps(x, decoded_at(a, k));
        for (int j = 0; j < 2; j++) {
            __m512 y = decoded_at(&b[j], k);
            for (int i = 0; i < OCT_VNNI_MR; i++) {
                float *to = s->x[i] + 16 * j;
                _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(x[i]), y, _mm512_load_ps(to)));
            }
        }
    }
}

void oct_vnni_multiply_codes(const oct_vnni_panel *a, const oct_vnni_panel *b, int64_t kc,
                             oct_vnni_sums *t) {
    rows16 a_rows, b_rows[2];
    read_rows(a, 0, kc, &a_rows);
    read_rows(b, 0, kc, &b_rows[0]);
    read_rows(b, 1, kc, &b_rows[1]);
    memset(t, 0, sizeof *t);
    for (int64_t first = 0; first < kc; first += OCT_GEMM_K_CHUNK) {
        int64_t last = kc - first < OCT_GEMM_K_CHUNK ? kc : first + OCT_GEMM_K_CHUNK;
        oct_vnni_sums s = {0};
        add_chunk(&a_rows, b_rows, first, last, &s);
        for (int i = 0; i < OCT_VNNI_MR; i++)
            for (int j = 0; j < OCT_VNNI_NR; j += 16) {
                __m512 sum = _mm512_load_ps(s.x[i] + j);
                if (first > 0)
                    sum = _mm512_add_ps(_mm512_load_ps(t->x[i] + j), sum);
                _mm512_store_ps(t->x[i] + j, sum);
            }
    }
}
