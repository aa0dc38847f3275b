/* What the frameworks' rules compute, against the rules written down again here in integers and
 * fp64: roundings, scales, codes and products, of plain and of expert linears. What is expected
 * uses nothing of the library; what was got is decoded by its scalar codec. */
#include "gradient_support.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/count.h"
#include "convert/mx_experts.h"
#include "format/fp8.h"
#include "nn/experts.h"
#include "quant/rules.h"

/* ---- numbers ---- */

/* fp32 to bf16, to nearest, ties to even, by its bits. */
static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t low = bits & 0xffff, kept = bits >> 16;
    if (low > 0x8000 || (low == 0x8000 && (kept & 1)))
        kept++;
    bits = kept << 16;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* A format as its finite values of one sign in order of their codes. */
typedef struct grid {
    double values[128];
    int n;
    bool ties_away; /* else to the even code */
} grid;

static grid e4m3(void) {
    grid g = {.n = 127};
    for (int code = 0; code < g.n; code++) {
        int e = code >> 3, m = code & 7;
        g.values[code] = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    }
    return g;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From docs/numerics.md's table of dot fields. */
static grid hif8(void) {
    static const struct {
        int low, high, bits; /* magnitudes of the exponent, mantissa bits */
    } rows[] = {{8, 15, 1}, {4, 7, 2}, {2, 3, 3}, {1, 1, 3}};
    grid g = {.ties_away = true};
    g.values[g.n++] = 0;
    for (int m = 1; m < 8; m++)
        g.values[g.n++] = ldexp(1, m - 23);
    for (int m = 0; m < 8; m++)
        g.values[g.n++] = 1 + m / 8.0;
    for (int row = 0; row < 4; row++)
        for (int e = rows[row].low; e <= rows[row].high; e++)
            for (int sign = -1; sign <= 1; sign += 2)
                for (int m = 0; m < 1 << rows[row].bits; m++) {
                    double x = ldexp(1 + ldexp(m, -rows[row].bits), sign * e);
                    if (x <= 32768)
                        g.values[g.n++] = x;
                }
    qsort(g.values, (size_t)g.n, sizeof g.values[0], by_value);
    return g;
}

static double nearest(const grid *g, double x) {
    double size = fabs(x);
    int i = 0;
    while (i + 1 < g->n && g->values[i + 1] <= size)
        i++;
    if (i + 1 < g->n) {
        double down = size - g->values[i], up = g->values[i + 1] - size;
        if (up < down || (up == down && (g->ties_away || (i & 1))))
            i++;
    }
    return copysign(g->values[i], x);
}

/* ---- quantizing ---- */

typedef struct rule {
    bool mx, rceil;
    double target;
    bool rounds;
} rule;

static double scale_of(const rule *r, float amax) {
    if (!r->mx)
        return amax > 0 ? (double)(float)(amax / (float)r->target) : 1.0;
    if (amax == 0)
        return ldexp(1, -127);
    int e;
    if (!r->rceil) {
        frexp(amax, &e); /* amax = f 2^e, f in [1/2, 1) */
        return ldexp(1, e - 1 - 8);
    }
    float d = amax * (float)(1.0f / 448.0f);
    double f = frexp(d, &e);
    return ldexp(1, f == 0.5 ? e - 1 : e);
}

/* Dequantized rows first .. end-1 of x (.., C), with blocks or a scale along `dim`, into y. `amax`
 * not NULL: given, per tensor. */
static void quantize(const rule *r, const float *x, int64_t first, int64_t end, int64_t C, int dim,
                     const float *amax, double *y) {
    const grid g = r->mx ? e4m3() : hif8();
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < C; j++) {
            int64_t i0 = first, i1 = end, j0 = 0, j1 = C;
            if (r->mx && dim == 1)
                i0 = i, i1 = i + 1, j0 = j / 32 * 32, j1 = j0 + 32 < C ? j0 + 32 : C;
            if (r->mx && dim == 0)
                j0 = j, j1 = j + 1, i0 = first + (i - first) / 32 * 32,
                i1 = i0 + 32 < end ? i0 + 32 : end;
            float largest = 0;
            for (int64_t a = i0; a < i1; a++)
                for (int64_t b = j0; b < j1; b++) {
                    float v = fabsf(x[a * C + b]);
                    v = r->rounds ? to_bf16(v) : v;
                    largest = v > largest ? v : largest;
                }
            double scale = scale_of(r, amax ? *amax : largest);
            float v = x[i * C + j];
            v = r->rounds ? to_bf16(v) : v;
            y[i * C + j] = nearest(&g, (double)(float)(v / scale)) * scale;
        }
}

/* ---- products ---- */

/* c(i,j) = sum over k of a(i,k) b(j,k), within the bound of docs/numerics.md; `rounded`: then to
 * bf16, so that half a place of that is more error. */
static void expect(const char *what, const double *a, int64_t a_row, int64_t a_k, const double *b,
                   int64_t b_row, int64_t b_k, int64_t M, int64_t N, int64_t K, bool rounded,
                   const float *got) {
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                double term = a[i * a_row + k * a_k] * b[j * b_row + k * b_k];
                sum += term;
                size += fabs(term);
            }
            double bound = 4 * (double)K * 0x1p-24 * size;
            if (rounded) {
                assert_true(got[i * N + j] == to_bf16(got[i * N + j]));
                bound = bound * (1 + 0x1p-7) + 0x1p-8 * fabs(sum);
            }
            if (fabs(got[i * N + j] - sum) > bound)
                fail_msg("%s (%" PRId64 ",%" PRId64 "): %.9g, expected %.9g +- %.2g", what, i, j,
                         got[i * N + j], sum, bound);
        }
}

/* ---- what is expected of each set ---- */

typedef struct expected_rules {
    oct_rule_set set;
    bool rceil, experts_rceil, experts_wgrad_rceil;
    double targets[OCT_N_ROLES];
    bool rounds;
    oct_groups groups;
} expected_rules;

static const expected_rules sets[] = {
    {OCT_RULES_OCTET, true, true, true, {15, 15, 224}, false, OCT_GROUPS_TRUE},
    {OCT_RULES_TORCHTITAN_NPU, true, true, false, {32768, 32768, 32768}, true, OCT_GROUPS_TRUE},
    {OCT_RULES_MINDSPEED, false, false, false, {15, 15, 224}, true, OCT_GROUPS_ONE},
    {OCT_RULES_TORCHTITAN, false, true, true, {15, 15, 224}, true, OCT_GROUPS_TRUE},
};
enum { N_SETS = OCT_COUNT(sets) };

static rule rule_of(const expected_rules *e, bool mx, bool experts, oct_role role, int dim) {
    bool wgrad = role != OCT_ROLE_WEIGHT && dim == 0;
    bool rceil = !experts ? e->rceil : wgrad ? e->experts_wgrad_rceil : e->experts_rceil;
    return (rule){mx, rceil, e->targets[role], e->rounds && role == OCT_ROLE_WEIGHT};
}

static void parse(const char *name, oct_rule_set set, oct_module_use use, oct_recipe *recipe) {
    oct_error err = {0};
    if (oct_recipe_parse(name, recipe, &err))
        fail_msg("%s", err.message);
    oct_rules_apply(oct_rules_of(set), use, OCT_BF16, recipe);
}

static double *zeros(int64_t n) {
    return oct_calloc_array((size_t)n, sizeof(double));
}

/* ---- linears ---- */

enum { T = 70, K = 72, N = 40 };

typedef struct bed {
    oct_module *root;
    oct_linear *linear;
    oct_recipe recipe;
    oct_weights *weights;
    oct_step *step;
    float x[T * K], dy[T * N], y[T * N], dx[T * K], dw[N * K];
} bed;

static void bed_open(bed *b, const char *recipe, oct_rule_set set) {
    const oct_init any = {.kind = OCT_INIT_ZEROS};
    memset(b, 0, sizeof *b);
    b->root = new_root();
    assert_int_equal(oct_linear_create(b->root, "w", K, N, any, NULL, &b->linear), OCT_OK);
    fill(b->linear->weight->value, N * K, 1, 0.05f);
    b->linear->weight->version++;
    b->linear->weight->grad = oct_calloc_array((size_t)N * K, sizeof(float));
    if (recipe) {
        parse(recipe, set, OCT_FOR_LINEARS, &b->recipe);
        make_mx(&b->linear->base, &b->recipe);
    }
    assert_int_equal(oct_weights_create(&b->weights), OCT_OK);
    assert_int_equal(oct_step_create(b->weights, OCT_F32, &b->step), OCT_OK);
    b->step->gradient = oct_rules_gradient(oct_rules_of(set), OCT_BF16);
    b->step->save = OCT_SAVE_FOR_BACKWARD;
}

static void bed_run(bed *b, uint64_t stream) {
    fill(b->x, T * K, stream, 1);
    fill(b->dy, T * N, stream + 1, 1e-3f);
    oct_tensor x = oct_tensor_2d(OCT_F32, T, K, b->x), y = oct_tensor_2d(OCT_F32, T, N, b->y);
    oct_tensor dy = oct_tensor_2d(OCT_F32, T, N, b->dy), dx = oct_tensor_2d(OCT_F32, T, K, b->dx);
    assert_int_equal(oct_forward(&b->linear->base, b->step, &x, &y), OCT_OK);
    assert_int_equal(oct_backward(&b->linear->base, b->step, &dy, &dx, OCT_OVERWRITE), OCT_OK);
}

static void bed_close(bed *b) {
    oct_step_destroy(b->step);
    oct_weights_destroy(b->weights);
    oct_module_destroy(b->root);
}

static void check_linear(const expected_rules *e, bool mx) {
    bed *b = oct_malloc(sizeof *b);
    bed_open(b, mx ? "mxfp8" : "hif8", e->set);
    bed_run(b, 3);
    const float *sources[] = {b->x, b->linear->weight->value, b->dy};
    const int64_t rows[] = {T, N, T}, cols[] = {K, K, N};
    double *q[OCT_N_ROLES][2];
    for (int role = 0; role < OCT_N_ROLES; role++)
        for (int dim = 0; dim < 2; dim++) {
            const rule r = rule_of(e, mx, false, (oct_role)role, dim);
            q[role][dim] = zeros(rows[role] * cols[role]);
            quantize(&r, sources[role], 0, rows[role], cols[role], dim, NULL, q[role][dim]);
        }
    expect("y", q[OCT_ROLE_INPUT][1], K, 1, q[OCT_ROLE_WEIGHT][1], K, 1, T, N, K, false, b->y);
    expect("dx", q[OCT_ROLE_GRAD][1], N, 1, q[OCT_ROLE_WEIGHT][0], 1, K, T, K, N, false, b->dx);
    expect("dw", q[OCT_ROLE_GRAD][0], 1, N, q[OCT_ROLE_INPUT][0], 1, K, N, K, T, e->rounds,
           b->linear->weight->grad);
    for (int i = 0; i < 2 * OCT_N_ROLES; i++)
        oct_free(q[i / 2][i % 2]);
    bed_close(b);
    oct_free(b);
}

static void given_any_rules_a_linears_products_are_those_of_its_framework(void **state) {
    (void)state;
    for (int i = 0; i < N_SETS; i++)
        for (int mx = 0; mx < 2; mx++)
            check_linear(&sets[i], mx);
}

/* Each micro-batch's gradient is one bf16 number; they are added in fp32. Converted or not. */
static void given_two_micro_batches_each_gradient_is_rounded_then_they_are_summed(void **state) {
    (void)state;
    const char *recipes[] = {NULL, "mxfp8", "hif8"};
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < N_SETS; s++) {
            bed *once = oct_malloc(sizeof *once), *twice = oct_malloc(sizeof *twice);
            float *first = oct_malloc(N * K * sizeof(float));
            bed_open(once, recipes[k], sets[s].set);
            bed_open(twice, recipes[k], sets[s].set);
            bed_run(once, 3);
            memcpy(first, once->linear->weight->grad, N * K * sizeof(float));
            memset(once->linear->weight->grad, 0, N * K * sizeof(float));
            bed_run(once, 5);
            bed_run(twice, 3);
            bed_run(twice, 5);
            const float *second = once->linear->weight->grad;
            bool all_short = true;
            for (int i = 0; i < N * K; i++) {
                all_short &= first[i] == to_bf16(first[i]) && second[i] == to_bf16(second[i]);
                if (twice->linear->weight->grad[i] != first[i] + second[i])
                    fail_msg("set %d, element %d: %.9g, expected %.9g + %.9g", s, i,
                             twice->linear->weight->grad[i], first[i], second[i]);
            }
            assert_true(all_short == sets[s].rounds);
            bed_close(once);
            bed_close(twice);
            oct_free(once);
            oct_free(twice);
            oct_free(first);
        }
}

/* ---- experts ---- */

enum { E = 4, D = 40, F = 72 };
static const int64_t group_sizes[E] = {70, 0, 33, 9};

typedef struct field {
    oct_module *root;
    oct_experts *experts;
    oct_recipe recipe;
    oct_weights *weights;
    oct_step *step;
    int64_t offsets[E + 1];
} field;

static void field_open(field *f, const char *recipe, oct_rule_set set) {
    const oct_init any = {.kind = OCT_INIT_ZEROS};
    *f = (field){.root = new_root()};
    assert_int_equal(oct_experts_create(f->root, "experts", E, D, F, any, any, &f->experts),
                     OCT_OK);
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++) {
        oct_param *param = f->experts->w[i];
        fill(param->value, oct_param_elements(param), 20 + (uint64_t)i, 0.2f);
        param->version++;
        param->grad = oct_calloc_array((size_t)oct_param_elements(param), sizeof(float));
    }
    for (int e = 0; e < E; e++)
        f->offsets[e + 1] = f->offsets[e] + group_sizes[e];
    parse(recipe, set, OCT_FOR_EXPERTS, &f->recipe);
    f->experts->recipe = &f->recipe;
    f->experts->products = &oct_mx_expert_products;
    assert_int_equal(oct_weights_create(&f->weights), OCT_OK);
    assert_int_equal(oct_step_create(f->weights, OCT_F32, &f->step), OCT_OK);
    f->step->gradient = oct_rules_gradient(oct_rules_of(set), OCT_BF16);
    f->step->save = OCT_SAVE_FOR_BACKWARD;
}

static void field_close(field *f) {
    oct_step_destroy(f->step);
    oct_weights_destroy(f->weights);
    oct_module_destroy(f->root);
}

/* What an operand of rows (or, with dim 1 of a weight, of one expert's weight) is, decoded. */
static void decode(const oct_operand *q, int64_t rows, int64_t cols, int dim, double *out) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            bool turned = dim == 0 && q->layout == OCT_K_CONTIGUOUS;
            int64_t a = turned ? c : r, b = turned ? r : c;
            uint8_t code = ((const uint8_t *)q->data)[a * q->ld + b];
            double scale;
            if (q->scaling == OCT_SCALING_MX)
                scale = ldexp(1, ((const uint8_t *)q->scales)[a * q->ld_scales + b / 32] - 127);
            else
                scale = *(const float *)q->scales;
            out[r * cols + c] = (double)oct_fp8_value(q->dtype, code) * scale;
        }
}

/* The operands that the experts' products see of rows x and of the weights, per group. */
static void check_operands(const expected_rules *e, bool mx) {
    field f;
    field_open(&f, mx ? "mxfp8" : "hif8", e->set);
    int64_t n = f.offsets[E];
    float *x = oct_malloc_array((size_t)(n * D), sizeof *x);
    double *got = zeros(n * D), *expected = zeros(n * D);
    fill(x, n * D, 30, 1);
    const oct_tensor xt = oct_tensor_2d(OCT_F32, n, D, x);
    oct_arena *const arenas[2] = {f.step->scratch, f.step->scratch};
    const oct_role roles[] = {OCT_ROLE_INPUT, OCT_ROLE_GRAD};
    for (int k = 0; k < 2; k++)
        for (int dim = 0; dim < 2; dim++) {
            oct_group_operands operands;
            const rule r = rule_of(e, mx, true, roles[k], dim);
            assert_int_equal(oct_mx_expert_products.rows(f.experts, f.step, OCT_EXPERT_W1, roles[k],
                                                         OCT_ALONG_BOTH, &xt, f.offsets, arenas,
                                                         &operands),
                             OCT_OK);
            float all = 0;
            for (int64_t i = 0; i < n * D; i++)
                all = fabsf(x[i]) > all ? fabsf(x[i]) : all;
            for (int g = 0; g < E; g++) {
                int64_t rows = group_sizes[g], at = f.offsets[g] * D;
                quantize(&r, x, f.offsets[g], f.offsets[g + 1], D, dim,
                         !mx && e->groups == OCT_GROUPS_ONE ? &all : NULL, expected);
                decode(&operands.along[dim][g], rows, D, dim, got + at);
                for (int64_t i = 0; i < rows * D; i++)
                    if (got[at + i] != expected[at + i])
                        fail_msg("set %d mx %d role %d dim %d group %d element %" PRId64
                                 ": %.9g, expected %.9g",
                                 (int)e->set, mx, k, dim, g, i, got[at + i], expected[at + i]);
            }
        }
    oct_free(x);
    oct_free(got);
    oct_free(expected);
    field_close(&f);
}

static void check_expert_weights(const expected_rules *e, bool mx) {
    field f;
    field_open(&f, mx ? "mxfp8" : "hif8", e->set);
    double *got = zeros(F * D), *expected = zeros(F * D);
    for (int dim = 0; dim < 2; dim++) {
        oct_operand operands[E];
        const rule r = rule_of(e, mx, true, OCT_ROLE_WEIGHT, dim);
        assert_int_equal(
            oct_mx_expert_products.weights(f.experts, f.step, OCT_EXPERT_W1, dim, operands),
            OCT_OK);
        for (int g = 0; g < E; g++) {
            quantize(&r, f.experts->w[OCT_EXPERT_W1]->value + g * F * D, 0, F, D, dim, NULL,
                     expected);
            decode(&operands[g], F, D, dim, got);
            for (int64_t i = 0; i < F * D; i++)
                if (got[i] != expected[i])
                    fail_msg("set %d mx %d dim %d expert %d element %" PRId64
                             ": %.9g, expected %.9g",
                             (int)e->set, mx, dim, g, i, got[i], expected[i]);
        }
    }
    oct_free(got);
    oct_free(expected);
    field_close(&f);
}

static void given_any_rules_experts_operands_are_those_of_their_framework(void **state) {
    (void)state;
    for (int i = 0; i < N_SETS; i++)
        for (int mx = 0; mx < 2; mx++) {
            check_operands(&sets[i], mx);
            check_expert_weights(&sets[i], mx);
        }
}

/* dW2 of each expert, of the rows that it alone has: rounded, and by wgrad's own scales. */
static void given_experts_their_weight_gradients_are_rounded_too(void **state) {
    (void)state;
    for (int s = 0; s < N_SETS; s++) {
        field f;
        field_open(&f, "mxfp8", sets[s].set);
        int64_t n = f.offsets[E];
        float *x = oct_malloc_array((size_t)(n * D), sizeof *x);
        float *y = oct_malloc_array((size_t)(n * D), sizeof *y);
        fill(x, n * D, 30, 1);
        oct_tensor xt = oct_tensor_2d(OCT_F32, n, D, x), yt = oct_tensor_2d(OCT_F32, n, D, y);
        assert_int_equal(oct_experts_forward(f.experts, f.step, &xt, f.offsets, &yt), OCT_OK);
        fill(x, n * D, 31, 1e-3f); /* as dy; its dx goes to y */
        assert_int_equal(oct_experts_backward(f.experts, f.step, &xt, &yt), OCT_OK);
        for (int w = 0; w < OCT_N_EXPERT_WEIGHTS; w++) {
            bool all_short = true, some = false;
            for (int64_t i = 0; i < E * D * F; i++) {
                float g = f.experts->w[w]->grad[i];
                all_short &= g == to_bf16(g);
                some |= g != 0;
                if (i / (D * F) == 1) /* no tokens */
                    assert_true(g == 0);
            }
            assert_true(some && all_short == sets[s].rounds);
        }
        oct_free(x);
        oct_free(y);
        field_close(&f);
    }
}

/* torchtitan-npu's reshape(experts, -1): codes by the part that an element lies in, wherever its
 * row belongs; decoded by the scale of the part that has the expert's number. */
static void given_groups_as_upstream_cuts_them_uneven_ones_get_other_experts_scales(void **state) {
    (void)state;
    field f;
    field_open(&f, "hif8", OCT_RULES_TORCHTITAN_NPU);
    f.recipe.groups = oct_rules_of(OCT_RULES_TORCHTITAN_NPU)->upstream_groups;
    int64_t n = f.offsets[E], part = n * D / E; /* 112 rows: 28 a part */
    const grid g = hif8();
    float *x = oct_malloc_array((size_t)(n * D), sizeof *x);
    double *got = zeros(n * D), scales[E];
    fill(x, n * D, 30, 1);
    for (int64_t i = 0; i < part; i++) /* so that parts differ much */
        x[i] *= 100;
    for (int p = 0; p < E; p++) {
        float amax = 0;
        for (int64_t i = p * part; i < (p + 1) * part; i++)
            amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
        scales[p] = (double)(float)(amax / 32768.0f);
    }
    const oct_tensor xt = oct_tensor_2d(OCT_F32, n, D, x);
    oct_arena *const arenas[2] = {f.step->scratch, f.step->scratch};
    oct_group_operands operands;
    assert_int_equal(oct_mx_expert_products.rows(f.experts, f.step, OCT_EXPERT_W1, OCT_ROLE_INPUT,
                                                 OCT_ALONG_BOTH, &xt, f.offsets, arenas, &operands),
                     OCT_OK);
    bool differs = false;
    for (int e = 0; e < E; e++) {
        decode(&operands.along[1][e], group_sizes[e], D, 1, got);
        for (int64_t i = 0; i < group_sizes[e] * D; i++) {
            int64_t at = f.offsets[e] * D + i;
            double right = nearest(&g, (double)(float)(x[at] / scales[at / part]));
            assert_true(got[i] == right * scales[e]);
            differs |= at / part != e;
        }
    }
    assert_true(differs);
    oct_free(x);
    oct_free(got);
    field_close(&f);
}

/* ---- names that mean the same everywhere ---- */

static void given_names_that_say_it_no_rules_change_it(void **state) {
    (void)state;
    for (int set = 0; set < OCT_N_RULE_SETS; set++)
        for (int use = 0; use < 2; use++) {
            oct_recipe r;
            const oct_module_use u = (oct_module_use)use;
            parse("mxfp8_cublas", (oct_rule_set)set, u, &r);
            assert_true(r.scale_mode == OCT_SCALE_FLOOR && r.wgrad_scale_mode == OCT_SCALE_FLOOR);
            parse("MXFP8_cublas_rceil", (oct_rule_set)set, u, &r);
            assert_true(r.scale_mode == OCT_SCALE_RCEIL && r.wgrad_scale_mode == OCT_SCALE_RCEIL);
            parse("hif8_full_range", (oct_rule_set)set, u, &r);
            for (int role = 0; role < OCT_N_ROLES; role++)
                assert_true(r.target[role] == 32768);
            parse("hif8_15_224", (oct_rule_set)set, u, &r);
            assert_true(r.target[0] == 15 && r.target[1] == 15 && r.target[2] == 224);
            assert_int_equal(r.strategy, OCT_DYNAMIC);
            parse("delayed_hif8_pertensor", (oct_rule_set)set, u, &r);
            assert_true(r.target[0] == 15 && r.target[1] == 15 && r.target[2] == 224);
            assert_int_equal(r.strategy, OCT_DELAYED);
            assert_int_equal(r.granularity, OCT_PER_TENSOR);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_rules_a_linears_products_are_those_of_its_framework),
        cmocka_unit_test(given_two_micro_batches_each_gradient_is_rounded_then_they_are_summed),
        cmocka_unit_test(given_any_rules_experts_operands_are_those_of_their_framework),
        cmocka_unit_test(given_experts_their_weight_gradients_are_rounded_too),
        cmocka_unit_test(given_groups_as_upstream_cuts_them_uneven_ones_get_other_experts_scales),
        cmocka_unit_test(given_names_that_say_it_no_rules_change_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
