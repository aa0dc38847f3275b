/* Building models, their parameters and totals: see model.h. Running them is passes.c's. */
#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tree.h"
#include "nn/feed_forward.h"
#include "nn/latent_attention.h"

static void destroy_model(oct_module *m) {
    oct_model *model = (oct_model *)m;
    oct_rotary_clear(&model->rotary);
    oct_free(model->layers);
    oct_free(model->moes);
    oct_free(model->params);
}

/* Containers have no forward of their own. */
static const oct_module_ops model_ops = {.type_name = "Transformer", .destroy = destroy_model};
static const oct_module_ops layers_ops = {.type_name = "ModuleDict"};

/* torch.nn.init.trunc_normal_ cuts at -2 and 2, not at multiples of std. */
static oct_init truncated(double std, double cut) {
    return (oct_init){OCT_INIT_TRUNCATED_NORMAL, (float)std, (float)-cut, (float)cut};
}

static oct_init linear_init(void) {
    return truncated(0.02, 2.0);
}

/* wo, w2 and w3: smaller the deeper, as each layer adds to the residual stream twice. */
static oct_init deep_init(const oct_model_args *args, int64_t layer) {
    int64_t depth = args->depth_init ? layer + 1 : args->n_layers;
    return truncated(0.02 / sqrt(2.0 * (double)depth), 2.0);
}

static oct_init head_init(const oct_model_args *args) {
    double std = 1.0 / sqrt((double)args->dim);
    return truncated(std, 3.0 * std);
}

static void configure_rotary(oct_model *model) {
    const oct_model_args *args = &model->args;
    bool latent = args->family == OCT_MODEL_DEEPSEEK_V3;
    bool scaled = args->rope_scaling != OCT_ROPE_YARN || oct_model_args_uses_yarn(args);
    model->rotary.config = (oct_rope_config){
        .dims = latent ? args->qk_rope_head_dim : args->head_dim,
        .theta = args->rope_theta,
        .pairs = args->family == OCT_MODEL_QWEN3 || args->rope_halves ? OCT_ROPE_HALVES
                                                                      : OCT_ROPE_INTERLEAVED,
        .scaling = scaled ? args->rope_scaling : OCT_ROPE_UNSCALED,
        .factor = args->rope_scaling_factor,
        .original_context = (double)args->rope_original_max_position_embeddings,
        .low_freq_factor = args->rope_low_freq_factor,
        .high_freq_factor = args->rope_high_freq_factor,
        .beta_fast = args->beta_fast,
        .beta_slow = args->beta_slow,
        .untruncated = args->yarn_untruncated,
        .attention_factor = args->rope_attention_factor};
}

static oct_status build_attention(oct_model *model, oct_block *b, int64_t layer) {
    const oct_model_args *args = &model->args;
    const oct_attention_config config = {.dim = args->dim,
                                         .n_heads = args->n_heads,
                                         .n_kv_heads = args->n_kv_heads,
                                         .head_dim = args->head_dim,
                                         .qk_norm = args->qk_norm,
                                         .qkv_bias = args->qkv_bias,
                                         .wo_bias = args->wo_bias,
                                         .unrotated = oct_layer_set_has(&args->unrotated, layer),
                                         .window = oct_model_args_window(args, layer),
                                         .norm_eps = (float)args->norm_eps,
                                         .layer = layer,
                                         .rotary = &model->rotary,
                                         .qkv_init = linear_init(),
                                         .wo_init = deep_init(args, layer)};
    oct_attention *a;
    oct_status status = oct_attention_create(&b->base, "attention", &config, &a);
    if (!status)
        b->attention = &a->base;
    return status;
}

/* 1 / sqrt(elements of a head), with yarn times mscale^2. */
static float latent_scale(const oct_model_args *args) {
    double scale = 1.0 / sqrt((double)args->head_dim), mscale = 1.0;
    if (oct_model_args_uses_yarn(args))
        mscale = 0.1 * args->mscale * log(args->rope_scaling_factor) + 1.0;
    return (float)(scale * mscale * mscale);
}

static float latent_eps(const oct_model_args *args) {
    return (float)(args->latent_norm_eps > 0 ? args->latent_norm_eps : args->norm_eps);
}

static oct_status build_latent_attention(oct_model *model, oct_block *b, int64_t layer) {
    const oct_model_args *args = &model->args;
    const oct_latent_attention_config config = {.dim = args->dim,
                                                .q_rank = args->q_lora_rank,
                                                .kv_rank = args->kv_lora_rank,
                                                .heads = {.n_heads = args->n_heads,
                                                          .nope_dim = args->qk_nope_head_dim,
                                                          .rope_dim = args->qk_rope_head_dim,
                                                          .v_dim = args->v_head_dim},
                                                .scale = latent_scale(args),
                                                .bias = args->qkv_bias,
                                                .norm_eps = latent_eps(args),
                                                .layer = layer,
                                                .rotary = &model->rotary,
                                                .init = linear_init(),
                                                .wo_init = deep_init(args, layer)};
    oct_latent_attention *a;
    oct_status status = oct_latent_attention_create(&b->base, "attention", &config, &a);
    if (!status)
        b->attention = &a->base;
    return status;
}

static oct_status build_moe(oct_model *model, oct_block *b, int64_t layer) {
    const oct_model_args *args = &model->args;
    bool grouped = args->num_expert_groups > 0;
    oct_init deep = deep_init(args, layer);
    const oct_moe_config config = {
        .dim = args->dim,
        .hidden = args->moe_inter_dim,
        .n_shared = args->num_shared_experts,
        .rule = {.n_experts = args->num_experts,
                 .n_active = args->top_k,
                 .n_groups = grouped ? args->num_expert_groups : 1,
                 .n_limited_groups = grouped ? args->num_limited_groups : 1,
                 .score_func = args->score_func,
                 .normalize = args->route_norm,
                 .route_scale = (float)args->route_scale,
                 .assignment =
                     args->moe_force_load_balance ? OCT_ASSIGN_IN_TURN : OCT_ASSIGN_BY_SCORE},
        .score_before_experts = args->score_before_experts,
        .load_balance_coeff = (float)args->load_balance_coeff,
        .gate_init = deep,
        .w1_init = linear_init(),
        .w2_w3_init = deep};
    oct_status status = oct_moe_create(&b->base, "moe", &config, &model->moes[layer]);
    if (!status)
        b->feed_forward = &model->moes[layer]->base;
    return status;
}

static oct_status build_feed_forward(oct_model *model, oct_block *b, int64_t layer) {
    const oct_model_args *args = &model->args;
    oct_feed_forward *ff;
    oct_status status =
        oct_feed_forward_create(&b->base, "feed_forward", args->dim, args->hidden_dim,
                                linear_init(), deep_init(args, layer), args->mlp_bias, &ff);
    if (!status)
        b->feed_forward = &ff->base;
    return status;
}

static oct_status build_layer(oct_model *model, oct_module *layers, int64_t layer) {
    const oct_model_args *args = &model->args;
    bool latent = args->family == OCT_MODEL_DEEPSEEK_V3;
    char name[24];
    snprintf(name, sizeof name, "%" PRId64, layer);
    oct_block *b;
    float eps = (float)args->norm_eps;
    oct_status status = oct_block_create(layers, name, &b);
    if (!status)
        status = oct_norm_create(&b->base, "attention_norm", args->dim, eps, &b->attention_norm);
    if (!status)
        status =
            latent ? build_latent_attention(model, b, layer) : build_attention(model, b, layer);
    if (!status)
        status = oct_norm_create(&b->base, "ffn_norm", args->dim, eps, &b->ffn_norm);
    if (!status)
        status = oct_model_args_has_experts(args, layer) ? build_moe(model, b, layer)
                                                         : build_feed_forward(model, b, layer);
    if (status)
        return status;
    model->layers[layer] = b;
    return OCT_OK;
}

static oct_status build_layers(oct_model *model) {
    oct_module *layers = oct_module_create(sizeof *layers, OCT_MODULE_CONTAINER, &layers_ops,
                                           &model->base, "layers");
    if (!layers)
        return OCT_NO_MEMORY;
    model->layers = oct_calloc_array((size_t)model->args.n_layers, sizeof(oct_block *));
    model->moes = oct_calloc_array((size_t)model->args.n_layers, sizeof(oct_moe *));
    if (!model->layers || !model->moes)
        return OCT_NO_MEMORY;
    oct_status status = OCT_OK;
    for (int64_t i = 0; !status && i < model->args.n_layers; i++)
        status = build_layer(model, layers, i);
    return status;
}

static oct_status build_head(oct_model *model) {
    const oct_model_args *args = &model->args;
    if (args->enable_weight_tying)
        return oct_linear_create_tied(&model->base, "output", model->tok_embeddings->weight,
                                      &model->output);
    return oct_linear_create(&model->base, "output", args->dim, args->vocab_size, head_init(args),
                             NULL, &model->output);
}

static oct_status build(oct_model *model) {
    const oct_model_args *args = &model->args;
    /* A tied table starts as the head does: that's what torchtitan draws last. */
    oct_init table = args->enable_weight_tying ? head_init(args)
                                               : (oct_init){.kind = OCT_INIT_NORMAL, .std = 1.0f};
    oct_status status = oct_embedding_create(&model->base, "tok_embeddings", args->vocab_size,
                                             args->dim, table, &model->tok_embeddings);
    if (!status)
        status = build_layers(model);
    if (!status)
        status =
            oct_norm_create(&model->base, "norm", args->dim, (float)args->norm_eps, &model->norm);
    if (!status)
        status = build_head(model);
    if (status)
        return status;
    return oct_module_params(&model->base, &model->params, &model->n_params);
}

oct_status oct_model_create(const oct_model_args *args, oct_params_mode mode, oct_model **out,
                            oct_error *err) {
    oct_model_args resolved = *args;
    oct_status status = oct_model_args_resolve(&resolved, err);
    if (status)
        return status;
    oct_model *model = oct_module_create(sizeof *model, OCT_MODULE_MODEL, &model_ops, NULL, "");
    if (!model)
        return oct_fail_memory(err);
    model->args = resolved;
    model->document_end = -1;
    model->base.params_mode = mode;
    configure_rotary(model);
    if (build(model)) {
        oct_model_destroy(model);
        return oct_fail_memory(err);
    }
    *out = model;
    return OCT_OK;
}

void oct_model_destroy(oct_model *model) {
    if (model)
        oct_module_destroy(&model->base);
}

const oct_model_args *oct_model_get_args(const oct_model *model) {
    return &model->args;
}

oct_module *oct_model_root(oct_model *model) {
    return &model->base;
}

oct_param *const *oct_model_params(const oct_model *model, int64_t *n_params) {
    *n_params = model->n_params;
    return model->params;
}

oct_block *oct_model_layer(const oct_model *model, int64_t layer) {
    return model->layers[layer];
}

oct_param *oct_model_find_param(const oct_model *model, const char *name) {
    for (int64_t i = 0; i < model->n_params; i++)
        if (strcmp(model->params[i]->name, name) == 0)
            return model->params[i];
    return NULL;
}

int64_t oct_model_n_parameters(const oct_model *model) {
    int64_t n = 0;
    for (int64_t i = 0; i < model->n_params; i++)
        n += oct_param_elements(model->params[i]);
    return n;
}

/* Of all experts' elements only those of the active ones work on a token. */
static double active_parameters(const oct_model *model) {
    const oct_model_args *args = &model->args;
    double n = (double)oct_model_n_parameters(model);
    for (int64_t i = 0; i < args->n_layers; i++)
        for (int w = 0; model->moes[i] && w < OCT_N_EXPERT_WEIGHTS; w++)
            n -= (double)oct_param_elements(model->moes[i]->experts->w[w]) *
                 (1.0 - (double)args->top_k / (double)args->num_experts);
    return n;
}

double oct_model_flops_per_token(const oct_model *model, int64_t seq_len) {
    const oct_model_args *args = &model->args;
    bool latent = args->family == OCT_MODEL_DEEPSEEK_V3;
    int64_t qk_and_v = args->head_dim + (latent ? args->v_head_dim : args->head_dim);
    double n = active_parameters(model);
    if (!args->enable_weight_tying)
        n -= (double)oct_param_elements(model->tok_embeddings->weight);
    double attention =
        6.0 * (double)args->n_layers * (double)args->n_heads * (double)qk_and_v * (double)seq_len;
    return 6.0 * n + attention;
}

oct_status oct_model_enable_training(oct_model *model) {
    for (int64_t i = 0; i < model->n_params; i++) {
        oct_param *param = model->params[i];
        if (param->frozen || param->grad)
            continue;
        param->grad = oct_calloc_array((size_t)param->n_held, sizeof(float));
        if (!param->grad)
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

void oct_model_zero_gradients(oct_model *model) {
    for (int64_t i = 0; i < model->n_params; i++) {
        oct_param *param = model->params[i];
        if (param->grad)
            memset(param->grad, 0, (size_t)param->n_held * sizeof(float));
    }
}

void oct_model_changed(oct_model *model) {
    for (int64_t i = 0; i < model->n_params; i++)
        model->params[i]->version++;
}

void oct_model_set_layer_recompute(oct_model *model, int64_t layer, oct_recompute mode) {
    oct_block_set_recompute(model->layers[layer], mode);
}

void oct_model_set_recompute(oct_model *model, oct_recompute mode) {
    for (int64_t i = 0; i < model->args.n_layers; i++)
        oct_model_set_layer_recompute(model, i, mode);
}

void oct_model_set_recompute_every(oct_model *model, int64_t n) {
    for (int64_t i = 0; i < model->args.n_layers; i++)
        oct_model_set_layer_recompute(model, i,
                                      (i + 1) % n == 0 ? OCT_RECOMPUTE_FULL : OCT_RECOMPUTE_NONE);
}

void oct_model_set_document_end(oct_model *model, int32_t token) {
    model->document_end = token;
}

int32_t oct_model_document_end(const oct_model *model) {
    return model->document_end;
}

oct_status oct_model_create_cache(const oct_model *model, oct_dtype activation, int64_t B,
                                  int64_t max_len, oct_kv_cache **out) {
    const oct_model_args *args = &model->args;
    bool latent = args->family == OCT_MODEL_DEEPSEEK_V3;
    int64_t v_dim = latent ? args->v_head_dim : args->head_dim;
    return oct_kv_cache_create(args->n_layers, B, max_len, args->n_kv_heads * args->head_dim,
                               args->n_kv_heads * v_dim, activation, out);
}

oct_moe *oct_model_moe(const oct_model *model, int64_t layer) {
    return model->moes[layer];
}

void oct_model_update_routing(oct_model *model) {
    for (int64_t i = 0; i < model->args.n_layers; i++)
        if (model->moes[i])
            oct_moe_update_bias(model->moes[i], model->moes[i]->tokens_per_expert);
}

oct_expert_load oct_model_expert_load(const oct_model *model) {
    oct_expert_load load = {0};
    int64_t n_idle = 0, n_experts = 0;
    for (int64_t i = 0; i < model->args.n_layers; i++) {
        if (!model->moes[i])
            continue;
        int64_t E = model->args.num_experts, largest = 0, total = 0;
        for (int64_t e = 0; e < E; e++) {
            int64_t n = model->moes[i]->tokens_per_expert[e];
            largest = n > largest ? n : largest;
            n_idle += n == 0;
            total += n;
        }
        n_experts += E;
        if (total > 0)
            load.largest_over_mean =
                fmax(load.largest_over_mean, (double)largest * (double)E / (double)total);
    }
    load.n_experts = n_experts;
    load.idle_share = n_experts > 0 ? (double)n_idle / (double)n_experts : 0;
    return load;
}
