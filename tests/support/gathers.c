/* See gathers.h. */
#include "gathers.h"

const char *const recipes[N_RECIPES] = {"mxfp8",
                                        "mxfp8-32x32",
                                        "hif8",
                                        "hif8_full_range",
                                        "dynamic_mx-1-1-32_E5M2_E5M2_E5M2",
                                        "dynamic_per_tensor_E4M3_E4M3_E5M2",
                                        "dynamic_per_channel_E4M3_E4M3_E4M3",
                                        "delayed_per_tensor_E4M3_E4M3_E4M3"};

const oct_fsdp_config low = {
    .activation = OCT_BF16, .low_precision_linears = true, .low_precision_experts = true};

oct_fsdp_config with(oct_gather_mode mode, oct_reshard reshard) {
    oct_fsdp_config config = low;
    config.mode = mode;
    config.reshard = reshard;
    return config;
}

static void check_copy(const oct_qmatrix *got, const oct_qmatrix *expected, const char *recipe) {
    assert_non_null(got->codes);
    assert_int_equal(got->rows, expected->rows);
    assert_int_equal(got->transposed, expected->transposed);
    if (memcmp(got->codes, expected->codes, (size_t)(got->rows * got->cols)) != 0 ||
        memcmp(got->scales, expected->scales, oct_qmatrix_scale_bytes(expected)) != 0)
        fail_msg("%s: gathered codes or scales differ", recipe);
}

/* `expert`: of those that are here; `first`: the first of these. */
static void check_matrix(replica *sharded, replica *whole, const oct_param *param, int64_t expert,
                         int64_t first, oct_along which) {
    const oct_param *reference = oct_model_find_param(whole->model, param->name);
    oct_quantized got, expected;
    oct_amax got_amax = {.use = -1.0f}, amax = {.use = -1.0f};
    assert_int_equal(oct_weights_quantized(sharded->weights, param, expert, &sharded->recipe, which,
                                           &got_amax, &got),
                     OCT_OK);
    assert_int_equal(oct_weights_quantized(whole->weights, reference, first + expert,
                                           &whole->recipe, OCT_ALONG_BOTH, &amax, &expected),
                     OCT_OK);
    for (int dim = 0; dim < 2; dim++)
        if (which & (dim ? OCT_ALONG_1 : OCT_ALONG_0))
            check_copy(&got.along[dim], &expected.along[dim], sharded->recipe.name);
    if (sharded->recipe.granularity == OCT_PER_TENSOR)
        assert_true(got_amax.seen == amax.seen);
}

typedef struct check {
    replica *sharded, *whole;
    oct_along which;
    int n;
} check;

static oct_status check_module(oct_module *m, void *context) {
    check *c = context;
    const oct_linear *linear = oct_linear_from(m);
    const oct_experts *experts = oct_experts_from(m);
    if (linear && linear->recipe) {
        check_matrix(c->sharded, c->whole, linear->weight, 0, 0, c->which);
        c->n++;
    }
    oct_comm *team = c->sharded->comms.team;
    int64_t first = experts && team ? oct_comm_rank(team) * experts->n_experts : 0;
    for (int w = 0; experts && w < OCT_N_EXPERT_WEIGHTS; w++)
        for (int64_t e = 0; e < experts->n_experts; e++, c->n++)
            check_matrix(c->sharded, c->whole, experts->w[w], e, first, c->which);
    return OCT_OK;
}

static void check_dense(replica *sharded, replica *whole, const char *name) {
    oct_tensor got, expected;
    const oct_param *param = oct_model_find_param(sharded->model, name);
    const oct_param *reference = oct_model_find_param(whole->model, name);
    assert_int_equal(oct_weights_dense(sharded->weights, param, OCT_BF16, &got), OCT_OK);
    assert_int_equal(oct_weights_dense(whole->weights, reference, OCT_BF16, &expected), OCT_OK);
    assert_memory_equal(got.data, expected.data, oct_tensor_bytes(&expected));
}

void before(replica *r, int64_t unit, oct_phase phase) {
    assert_int_equal(oct_step_before(r->step, unit, phase), OCT_OK);
}

void after(replica *r, int64_t unit, oct_phase phase) {
    assert_int_equal(oct_step_after(r->step, unit, phase), OCT_OK);
}

void check_gathers(const setup *s) {
    replica whole, sharded;
    replica_open(&whole, s, NULL);
    replica_open(&sharded, s, world);
    sharded.step->save = OCT_SAVE_FOR_BACKWARD;
    check c = {&sharded, &whole, OCT_ALONG_1, 0};
    before(&sharded, 0, OCT_PHASE_FORWARD);
    check_dense(&sharded, &whole, "tok_embeddings.weight");
    after(&sharded, 0, OCT_PHASE_FORWARD);
    for (int64_t i = 0; i < 2; i++) {
        before(&sharded, 1 + i, OCT_PHASE_FORWARD);
        oct_module_visit(&oct_model_layer(sharded.model, i)->base, check_module, &c);
        after(&sharded, 1 + i, OCT_PHASE_FORWARD);
    }
    before(&sharded, 3, OCT_PHASE_FORWARD);
    check_dense(&sharded, &whole, "norm.weight");
    check_dense(&sharded, &whole, "output.weight");
    before(&sharded, 3, OCT_PHASE_BACKWARD);
    after(&sharded, 3, OCT_PHASE_FORWARD);
    after(&sharded, 3, OCT_PHASE_BACKWARD);
    c.which = s->recompute == OCT_RECOMPUTE_FULL ? OCT_ALONG_BOTH : OCT_ALONG_0;
    for (int64_t i = 1; i >= 0; i--) {
        before(&sharded, 1 + i, OCT_PHASE_BACKWARD);
        oct_module_visit(&oct_model_layer(sharded.model, i)->base, check_module, &c);
        after(&sharded, 1 + i, OCT_PHASE_BACKWARD);
    }
    before(&sharded, 0, OCT_PHASE_BACKWARD);
    after(&sharded, 0, OCT_PHASE_BACKWARD);
    int n_experts = s->expert_degree > 1 ? 8 / s->expert_degree : 5;
    assert_int_equal(c.n, s->experts ? 4 * (4 + 3 * n_experts) : 4 * 7);
    replica_close(&sharded);
    replica_close(&whole);
}
