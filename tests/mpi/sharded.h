/* A whole model and the same one in shards, side by side on every rank. */
#ifndef OCT_TESTS_SHARDED_H
#define OCT_TESTS_SHARDED_H

#include "../unit/story.h"

#include "base/alloc.h"
#include "comm/comm.h"
#include "convert/plan.h"
#include "fsdp/fsdp.h"
#include "kernel/select.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/ranks.h"

enum { SEED = 11, S = 8, N_SEQUENCES = 12 }; /* 12: any of 1 to 4 ranks takes as many */

typedef struct setup {
    const char *recipe; /* NULL: high precision */
    oct_fsdp_config config;
    oct_recompute recompute;
    int tied;
    int convert_head;
    int experts; /* 5 of them a layer, of 40 hidden rows */
} setup;

typedef struct replica {
    oct_model *model;
    oct_recipe recipe;
    oct_plan *plan;
    oct_weights *weights;
    oct_step *step;
    oct_optimizer *optimizer;
    oct_comm *comm; /* NULL: whole */
    oct_fsdp *fsdp;
} replica;

/* Rows that are no multiples of 32, fewer blocks than ranks, heads that share keys. */
static inline oct_model_args small_args(const setup *s) {
    oct_model_args args;
    assert_int_equal(oct_model_args_flavor(s->experts ? "qwen3" : "llama3",
                                           s->experts ? "demo_moe" : "demo", &args, NULL),
                     OCT_OK);
    if (s->experts) {
        args.num_experts = 5;
        args.top_k = 2;
        args.moe_inter_dim = 40;
    }
    args.vocab_size = 90;
    args.dim = 80;
    args.n_layers = 2;
    args.n_heads = 4;
    args.n_kv_heads = 2;
    args.head_dim = 20;
    args.hidden_dim = 100;
    args.max_seq_len = 64;
    args.enable_weight_tying = s->tied;
    return args;
}

static inline oct_plan *plan_model(oct_model *model, const setup *s, oct_recipe *recipe) {
    static const char *const kept[] = {"router.gate", "output"};
    oct_error err = {0};
    oct_plan *plan = NULL;
    if (s->recipe && oct_recipe_parse(s->recipe, recipe, &err))
        fail_msg("%s", err.message);
    recipe->amax_history_len = 2;
    const oct_pattern_list exclude = {
        .kind = OCT_PATTERN_SUBSTRING, .patterns = kept, .n = s->convert_head ? 1 : 2};
    const oct_converter_spec specs[] = {{.kind = OCT_CONVERT_LINEAR,
                                         .name = "quantize.linear.mx",
                                         .where = "test",
                                         .recipe = recipe,
                                         .exclude = exclude},
                                        {.kind = OCT_CONVERT_GROUPED_MM, .name = "npu_gmm"},
                                        {.kind = OCT_CONVERT_EXPERTS,
                                         .name = "quantize.grouped_mm.mx",
                                         .where = "test",
                                         .recipe = recipe}};
    int64_t n_specs = !s->recipe ? 0 : s->experts ? 3 : 1;
    if (oct_plan_create(oct_model_root(model), specs, n_specs, false, NULL, NULL, &plan, &err))
        fail_msg("%s", err.message);
    return plan;
}

/* comm NULL: whole. */
static inline void replica_open(replica *r, const setup *s, oct_comm *comm) {
    oct_error err = {0};
    oct_model_args args = small_args(s);
    *r = (replica){.comm = comm};
    if (oct_model_create(&args, comm ? OCT_PARAMS_SHAPES_ONLY : OCT_PARAMS_ALLOCATED, &r->model,
                         &err))
        fail_msg("%s", err.message);
    oct_model_set_recompute(r->model, s->recompute);
    r->plan = plan_model(r->model, s, &r->recipe);
    assert_int_equal(oct_plan_apply(r->plan, &err), OCT_OK);
    assert_int_equal(oct_weights_create(&r->weights), OCT_OK);
    assert_int_equal(oct_step_create(r->weights, s->config.activation, &r->step), OCT_OK);
    if (comm) {
        assert_int_equal(oct_fsdp_shard(r->model, oct_comm_rank(comm), oct_comm_size(comm)),
                         OCT_OK);
        assert_int_equal(oct_fsdp_create(r->model, r->plan, &s->config, comm, NULL, &r->fsdp),
                         OCT_OK);
        oct_fsdp_attach(r->fsdp, r->step);
    }
    int64_t n;
    oct_param *const *params = oct_model_params(r->model, &n);
    const oct_adam adam = {
        .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = OCT_DECAY_DECOUPLED};
    assert_int_equal(oct_optimizer_create(params, n, &adam, &r->optimizer), OCT_OK);
    oct_model_init(r->model, SEED);
}

static inline void replica_close(replica *r) {
    oct_optimizer_destroy(r->optimizer);
    oct_fsdp_destroy(r->fsdp);
    oct_step_destroy(r->step);
    oct_weights_destroy(r->weights);
    oct_model_destroy(r->model);
    oct_plan_destroy(r->plan);
}

#endif
