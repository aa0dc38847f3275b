/* See sharded.h. */
#include "sharded.h"

oct_model_args sharded_args(const setup *s) {
    oct_model_args args;
    assert_int_equal(oct_model_args_flavor(s->experts ? "qwen3" : "llama3",
                                           s->experts ? "demo_moe" : "demo", &args, NULL),
                     OCT_OK);
    if (s->experts) {
        args.num_experts = s->expert_degree > 1 ? 8 : 5;
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
    if (s->sizes == SIZES_WIDE) {
        args.dim = 1024;
        args.head_dim = 256;
        args.hidden_dim = 4096;
    } else if (s->sizes == SIZES_FEW_ROWS) {
        args.n_kv_heads = 1;
        args.head_dim = 2;
        args.hidden_dim = 96;
    }
    args.max_seq_len = 64;
    args.enable_weight_tying = s->tied;
    return args;
}

oct_plan *plan_model(oct_model *model, const setup *s, oct_recipe *recipe) {
    static const char *const kept[] = {"router.gate", "output"};
    oct_error err = {0};
    oct_plan *plan = NULL;
    if (s->recipe && oct_recipe_parse(s->recipe, recipe, &err))
        fail_msg("%s", err.message);
    if (s->recipe)
        oct_rules_apply(oct_rules_of(s->rules), s->experts ? OCT_FOR_EXPERTS : OCT_FOR_LINEARS,
                        OCT_BF16, recipe);
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
    int64_t n_specs = !s->recipe ? 0 : s->experts ? 3 : 1, first = s->recipe && s->plain_linears;
    if (oct_plan_create(oct_model_root(model), specs + first, n_specs - first, false, NULL, NULL,
                        &plan, &err))
        fail_msg("%s", err.message);
    return plan;
}

void replica_open(replica *r, const setup *s, oct_comm *comm) {
    oct_error err = {0};
    oct_model_args args = sharded_args(s);
    *r = (replica){.comm = comm};
    if (oct_model_create(&args, comm ? OCT_PARAMS_SHAPES_ONLY : OCT_PARAMS_ALLOCATED, &r->model,
                         &err))
        fail_msg("%s", err.message);
    oct_model_set_recompute(r->model, s->recompute);
    r->plan = plan_model(r->model, s, &r->recipe);
    assert_int_equal(oct_plan_apply(r->plan, &err), OCT_OK);
    assert_int_equal(oct_weights_create(&r->weights), OCT_OK);
    assert_int_equal(oct_step_create(r->weights, s->config.activation, &r->step), OCT_OK);
    r->step->gradient = oct_rules_gradient(oct_rules_of(s->rules), s->config.activation);
    if (comm) {
        r->comms = (oct_fsdp_comms){.shard = comm};
        if (s->expert_degree > 1)
            assert_int_equal(oct_fsdp_split_experts(&r->comms, s->expert_degree), OCT_OK);
        const oct_sharding sharding = oct_fsdp_sharding(&r->comms);
        assert_int_equal(oct_fsdp_shard(r->model, &sharding, oct_comm_rank(comm)), OCT_OK);
        assert_int_equal(oct_fsdp_create(r->model, r->plan, &s->config, &r->comms, &r->fsdp),
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

void replica_close(replica *r) {
    oct_optimizer_destroy(r->optimizer);
    oct_fsdp_destroy(r->fsdp);
    oct_comm_destroy(r->comms.experts);
    oct_comm_destroy(r->comms.team);
    oct_step_destroy(r->step);
    oct_weights_destroy(r->weights);
    oct_model_destroy(r->model);
    oct_plan_destroy(r->plan);
}

oct_comm *world;

int open_world(void **state) {
    (void)state;
    oct_error err = {0};
    if (oct_kernels_init(&err) || oct_comm_create_world(&world, &err))
        fprintf(stderr, "%s\n", err.message);
    return world ? 0 : -1;
}

int close_world(void **state) {
    (void)state;
    oct_comm_destroy(world);
    return 0;
}

int64_t total_bytes(oct_traffic traffic) {
    double n = (double)oct_comm_bytes(world, traffic);
    assert_int_equal(oct_comm_sum_f64(world, &n, 1), OCT_OK);
    return (int64_t)n;
}

void fill_tokens(int32_t *tokens, int32_t *targets) {
    for (int i = 0; i < N_SEQUENCES * S; i++) {
        tokens[i] = (int32_t)oct_rng_below(SEED, 1, (uint64_t)i, 12) + 7 * (i % 5);
        targets[i] = i % 11 == 0 ? OCT_IGNORE_LABEL : (tokens[i] * 3 + 1) % 90;
    }
}

double train_step(replica *r, const int32_t *tokens, const int32_t *targets) {
    int rank = r->comm ? oct_comm_rank(r->comm) : 0, n_ranks = r->comm ? oct_comm_size(r->comm) : 1;
    double sums[2] = {0, 0};
    int64_t n_valid = 0;
    oct_error err = {0};
    for (int i = 0; i < N_SEQUENCES * S; i++)
        n_valid += targets[i] != OCT_IGNORE_LABEL;
    oct_optimizer_clear_gradients(r->optimizer);
    for (int i = rank; i < N_SEQUENCES; i += n_ranks) {
        double loss;
        int64_t count;
        assert_int_equal(oct_model_train(r->model, r->step, 1, S, tokens + i * S, targets + i * S,
                                         1.0f / (float)n_valid, &loss, &count),
                         OCT_OK);
        sums[0] += loss;
        sums[1] += (double)count;
    }
    if (r->comm) {
        oct_ranks ranks = {.world = r->comm, .n_ranks = n_ranks};
        assert_int_equal(oct_comm_sum_f64(r->comm, sums, 2), OCT_OK);
        assert_int_equal(oct_ranks_reduce_amaxes(&ranks, r->plan, &err), OCT_OK);
        assert_int_equal(oct_ranks_sum_routing(&ranks, r->model, &err), OCT_OK);
    }
    oct_model_update_routing(r->model);
    oct_flaw flaw;
    assert_int_equal(oct_optimizer_step(r->optimizer, 1.0f, &flaw), OCT_OK);
    assert_null(flaw.param);
    oct_plan_end_step(r->plan);
    return sums[0] / sums[1];
}

double train(const setup *s, oct_comm *comm, int n_steps, double *first) {
    static int32_t tokens[N_SEQUENCES * S], targets[N_SEQUENCES * S];
    double loss = 0;
    replica r;
    fill_tokens(tokens, targets);
    replica_open(&r, s, comm);
    for (int step = 0; step < n_steps; step++) {
        loss = train_step(&r, tokens, targets);
        *first = step == 0 ? loss : *first;
    }
    replica_close(&r);
    return loss;
}

void check_training(const setup *s, int n_steps) {
    double expected = 0, first = 0, got;
    if (oct_comm_rank(world) == 0) { /* the others would only compute the same */
        expected = train(s, NULL, n_steps, &first);
        assert_true(expected < first - 0.1); /* it learns */
    }
    assert_int_equal(oct_comm_broadcast(world, 0, &expected, sizeof expected), OCT_OK);
    got = train(s, world, n_steps, &first);
    if (!(fabs(got - expected) <= 1e-3))
        fail_msg("%s: loss %.6f on %d ranks, %.6f on one", s->recipe ? s->recipe : "none", got,
                 oct_comm_size(world), expected);
}
