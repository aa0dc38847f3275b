/* Which kernels and block sizes each level takes: see tuning.h. A new level is one more table here.
 * bench/NOTES.md says what was measured. */
#include "kernel/gemm/tuning.h"

#include "kernel/sets.h" /* written by meson: the sets that this compiler could build */

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* One for all levels so far: L2 of 1 MiB and more, as server CPUs have. */
static const oct_gemm_limits server_limits = {
    .a_packed = MIB(8),
    .b_packed = MIB(32),
    .max_steps = 8,
    .a_kept = KIB(640),
    .b_shared = MIB(1),
    .acc_kept = KIB(384),
    .max_wider = 4,
    .min_tiles = 8,
    .min_tiles_each = 4,
    .tile_work = 1 << 21,
    .serial_work = 1 << 19,
    .streamed_output = 1 << 18,
};

#define TUNING(level, level_name)                                                                  \
    const oct_gemm_tuning oct_gemm_tuning_##level = {                                              \
        level_name, level##_choices, sizeof level##_choices / sizeof level##_choices[0],           \
        &server_limits}

/* --- plain C --- */

static const oct_gemm_blocks ref_blocks = {.a_panels = 16, .b_panels = 32};
static const oct_gemm_choice ref_choices[] = {
    {&oct_gemm_kernels_ref, &ref_blocks},
};
TUNING(ref, "ref");

/* --- AVX2 --- */

#ifdef OCT_HAVE_AVX2
static const oct_gemm_blocks avx2_blocks = {.a_panels = 40, .b_panels = 32};
static const oct_gemm_choice avx2_choices[] = {
    {&oct_gemm_kernels_avx2, &avx2_blocks},
};
TUNING(avx2, "avx2");
#endif

/* --- AVX-512 --- */

#ifdef OCT_HAVE_AVX512
static const oct_gemm_blocks avx512_blocks = {.a_panels = 24, .b_panels = 16};
static const oct_gemm_choice avx512_choices[] = {
    {&oct_gemm_kernels_avx512, &avx512_blocks},
};
TUNING(avx512, "avx512");
#endif

/* --- AVX512-VNNI, VBMI and GFNI --- */

#ifdef OCT_HAVE_AVX512_VNNI
static const oct_gemm_blocks few_rows_avx512_blocks = {.a_panels = 1, .b_panels = 16};
static const oct_gemm_blocks vnni_blocks = {
    .a_panels = 24,
    .b_panels = 9,
    .b_panels_of_many = 5,
    .b_near = MIB(4), /* of which lists of residuals leave four tenths untouched */
    .a_beside = MIB(48),
    .streamed_steps = 1,
};
static const oct_gemm_choice vnni_choices[] = {
    {&oct_gemm_kernels_few_rows_avx512, &few_rows_avx512_blocks, .is_fast = true, .few_rows = 8},
    {&oct_gemm_kernels_vnni, &vnni_blocks, .is_fast = true},
    {&oct_gemm_kernels_avx512, &avx512_blocks},
};
TUNING(vnni, "avx512+vnni");
#endif

/* --- AVX512-BF16 --- */

/* As many bytes in a block as AMX's, with steps four times as long. */
#ifdef OCT_HAVE_AVX512_BF16
static const oct_gemm_blocks bf16_blocks = {.a_panels = 12, .b_panels = 4, .streamed_steps = 1};
static const oct_gemm_choice bf16_choices[] = {
    {&oct_gemm_kernels_few_rows_avx512, &few_rows_avx512_blocks, .is_fast = true, .few_rows = 8},
    {&oct_gemm_kernels_bf16, &bf16_blocks, .is_fast = true, .takes_bf16 = true},
    {&oct_gemm_kernels_avx512, &avx512_blocks},
};
TUNING(bf16, "avx512+bf16");
#endif

/* --- AMX-BF16 --- */

/* Tiles take the same time for any number of rows, so the fewest are AVX-512's: one row, and two if
 * B's codes are decoded by bits. */
#ifdef OCT_HAVE_AMX
static const oct_gemm_blocks few_rows_amx_blocks = {.a_panels = 1, .b_panels = 8};
static const oct_gemm_blocks amx_blocks = {
    .a_panels = 12, .b_panels = 16, .streamed_steps = 8, .b_packs = 3};
static const oct_gemm_choice amx_choices[] = {
    {&oct_gemm_kernels_few_rows_avx512, &few_rows_avx512_blocks, .is_fast = true, .few_rows = 1},
    {&oct_gemm_kernels_few_rows_avx512, &few_rows_avx512_blocks, .is_fast = true, .few_rows = 2,
     .b_formats = OCT_GEMM_FORMAT(OCT_E4M3)},
    {&oct_gemm_kernels_few_rows_amx, &few_rows_amx_blocks, .is_fast = true, .few_rows = 16},
    {&oct_gemm_kernels_amx, &amx_blocks, .is_fast = true, .takes_bf16 = true},
    {&oct_gemm_kernels_avx512, &avx512_blocks},
};
TUNING(amx, "avx512+amx");
#endif

/* --- choosing --- */

static bool is_8bit(const oct_operand *x) {
    return x->dtype == OCT_E4M3 || x->dtype == OCT_E5M2 || x->dtype == OCT_HIF8;
}

static bool takes(const oct_gemm_choice *c, const oct_operand *a, const oct_operand *b) {
    if (c->takes_bf16 && a->dtype == OCT_BF16 && b->dtype == OCT_BF16)
        return true;
    return is_8bit(a) && is_8bit(b);
}

static bool fits(const oct_gemm_choice *c, const oct_gemm_problem *p, oct_gemm_mode mode) {
    if (c->is_fast && (mode == OCT_GEMM_EXACT || !takes(c, &p->a, &p->b)))
        return false;
    if (c->few_rows > 0 && (p->M > c->few_rows || p->b.layout != OCT_K_CONTIGUOUS))
        return false;
    return c->b_formats == 0 || (c->b_formats & OCT_GEMM_FORMAT(p->b.dtype)) != 0;
}

const oct_gemm_choice *oct_gemm_choose(const oct_gemm_tuning *tuning, const oct_gemm_problem *p,
                                       oct_gemm_mode mode) {
    const oct_gemm_choice *c = tuning->choices;
    while (!fits(c, p, mode))
        c++;
    return c;
}

const oct_gemm_kernels *oct_gemm_exact_kernels(const oct_gemm_tuning *tuning) {
    return tuning->choices[tuning->n_choices - 1].kernels;
}

bool oct_gemm_has_fast(const oct_gemm_tuning *tuning) {
    return tuning->choices[0].is_fast;
}
