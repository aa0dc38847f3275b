/* From config.json to a model's arguments, and one held against the other: see hf_args.h. */
#include "job/hf_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "model/args_list.h"

/* ---- config.json to arguments ---- */

static const char *model_of(oct_hf_family family) {
    if (family == OCT_HF_DEEPSEEK_V3)
        return "deepseek_v3";
    return family == OCT_HF_QWEN3 || family == OCT_HF_QWEN3_MOE ? "qwen3" : "llama3";
}

static void set_rope(const oct_hf_config *config, oct_model_args *args) {
    static const oct_rope_scaling scalings[] = {[OCT_HF_ROPE_DEFAULT] = OCT_ROPE_UNSCALED,
                                                [OCT_HF_ROPE_LINEAR] = OCT_ROPE_LINEAR,
                                                [OCT_HF_ROPE_DYNAMIC] = OCT_ROPE_DYNAMIC,
                                                [OCT_HF_ROPE_LLAMA3] = OCT_ROPE_LLAMA3,
                                                [OCT_HF_ROPE_YARN] = OCT_ROPE_YARN};
    args->rope_theta = config->rope_theta;
    args->rope_halves = args->family == OCT_MODEL_DEEPSEEK_V3 && !config->rope_interleave;
    args->rope_scaling = scalings[config->rope_type];
    if (config->rope_type == OCT_HF_ROPE_DEFAULT)
        return;
    args->rope_scaling_factor = config->rope_factor;
    args->rope_original_max_position_embeddings = config->rope_original_max_position_embeddings;
    if (config->rope_type == OCT_HF_ROPE_LLAMA3) {
        args->rope_low_freq_factor = config->rope_low_freq_factor;
        args->rope_high_freq_factor = config->rope_high_freq_factor;
    }
    if (config->rope_type != OCT_HF_ROPE_YARN)
        return;
    args->beta_fast = config->rope_beta_fast;
    args->beta_slow = config->rope_beta_slow;
    args->mscale = config->rope_mscale_all_dim; /* the one that scales the scores */
    args->rope_attention_factor = oct_hf_config_rope_factor(config);
    args->yarn_always = true;
    args->yarn_untruncated = !config->rope_truncate;
}

static void set_latent_attention(const oct_hf_config *config, oct_model_args *args) {
    args->q_lora_rank = config->q_lora_rank;
    args->kv_lora_rank = config->kv_lora_rank;
    args->qk_nope_head_dim = config->qk_nope_head_dim;
    args->qk_rope_head_dim = config->qk_rope_head_dim;
    args->v_head_dim = config->v_head_dim;
    /* transformers builds these norms without the configuration's epsilon. */
    args->latent_norm_eps = 1e-6;
}

static void set_experts(const oct_hf_config *config, oct_model_args *args) {
    bool deepseek = args->family == OCT_MODEL_DEEPSEEK_V3, experts = config->n_experts > 0;
    args->num_experts = config->n_experts;
    args->top_k = experts ? config->num_experts_per_tok : 0;
    args->num_shared_experts = experts && deepseek ? config->n_shared_experts : 0;
    args->moe_inter_dim = config->moe_intermediate_size;
    args->n_dense_layers = deepseek ? config->first_k_dense_replace : 0;
    args->num_expert_groups = deepseek && config->n_group > 1 ? config->n_group : 0;
    args->num_limited_groups = deepseek ? config->topk_group : 0;
    args->score_func =
        config->scoring_func == OCT_HF_SCORING_SIGMOID ? OCT_SCORE_SIGMOID : OCT_SCORE_SOFTMAX;
    args->route_norm = config->norm_topk_prob;
    args->route_scale = deepseek ? config->routed_scaling_factor : 1.0;
    args->score_before_experts = false;
    args->load_balance_coeff = 0;
    for (int64_t i = args->n_dense_layers;
         experts && i < config->num_hidden_layers && i < OCT_LAYER_SET_MAX; i++)
        if (!oct_hf_config_has_experts(config, i))
            oct_layer_set_add(&args->dense, i);
}

static void set_all(const oct_hf_config *config, oct_model_args *args) {
    snprintf(args->flavor, sizeof args->flavor, "%s", "config.json");
    args->vocab_size = config->vocab_size;
    args->dim = config->hidden_size;
    args->n_layers = config->num_hidden_layers;
    args->n_heads = config->num_attention_heads;
    args->n_kv_heads = config->num_key_value_heads;
    args->head_dim = config->head_dim;
    args->hidden_dim = config->intermediate_size;
    args->norm_eps = config->rms_norm_eps;
    args->max_seq_len = config->max_position_embeddings;
    args->enable_weight_tying = config->tie_word_embeddings;
    args->qkv_bias = config->attention_bias || config->family == OCT_HF_QWEN2;
    args->wo_bias = config->attention_bias;
    args->mlp_bias = config->mlp_bias;
    args->window = config->sliding_window;
    args->windowed = config->windowed;
    args->unrotated = config->no_rope;
    set_rope(config, args);
    set_experts(config, args);
    if (args->family == OCT_MODEL_DEEPSEEK_V3)
        set_latent_attention(config, args);
}

/* Puts the path before messages about arguments, whose names are octet's. */
static oct_status fail_here(const char *folder, const oct_error *cause, oct_error *err) {
    return oct_fail(err, cause->status, "%s/config.json: %s", folder, cause->message);
}

oct_status oct_setup_model_args_of_config(const oct_hf_config *config, oct_model_args *args,
                                          oct_error *err) {
    const char *name = model_of(config->family);
    /* A flavor gives what config.json doesn't say: how parameters start. */
    oct_status status = oct_model_args_flavor(name, oct_model_flavors(name)[0], args, err);
    if (!status)
        set_all(config, args);
    return status;
}

oct_status oct_setup_model_args_from_hf(const char *folder, oct_model_args *args, oct_error *err) {
    oct_hf_config config;
    oct_error cause = {0};
    oct_status status = oct_hf_config_read(folder, &config, err);
    if (!status)
        status = oct_setup_model_args_of_config(&config, args, err);
    if (status)
        return status;
    oct_model_args resolved = *args;
    if (oct_model_args_resolve(&resolved, &cause) != OCT_OK)
        return fail_here(folder, &cause, err);
    return OCT_OK;
}

/* ---- held against arguments ---- */

/* When an argument says something of the model. */
typedef enum matter { ALWAYS, NEVER, SCALED, LLAMA3, YARN, EXPERTS, GROUPS, DENSE, LATENT } matter;

/* Those that don't always. config.json can't say how parameters start, how a router's bias moves
 * and how long sequences are; whether yarn is in force and documents see each other is the job's
 * affair. */
static const struct {
    const char *name;
    matter when;
} rules[] = {
    {"max_seq_len", NEVER},
    {"depth_init", NEVER},
    {"multiple_of", NEVER},
    {"ffn_dim_multiplier", NEVER},
    {"load_balance_coeff", NEVER},
    {"moe_force_load_balance", NEVER},
    {"yarn_always", NEVER},
    {"attn_mask_type", NEVER},
    {"hidden_dim", DENSE},
    {"mlp_bias", DENSE},
    {"rope_scaling_factor", SCALED},
    {"rope_original_max_position_embeddings", SCALED},
    {"rope_low_freq_factor", LLAMA3},
    {"rope_high_freq_factor", LLAMA3},
    {"beta_fast", YARN},
    {"beta_slow", YARN},
    {"mscale", YARN},
    {"yarn_untruncated", YARN},
    {"rope_attention_factor", YARN},
    {"rope_halves", LATENT},
    {"latent_norm_eps", LATENT},
    {"q_lora_rank", LATENT},
    {"kv_lora_rank", LATENT},
    {"qk_nope_head_dim", LATENT},
    {"qk_rope_head_dim", LATENT},
    {"v_head_dim", LATENT},
    {"top_k", EXPERTS},
    {"moe_inter_dim", EXPERTS},
    {"num_shared_experts", EXPERTS},
    {"n_dense_layers", EXPERTS},
    {"num_expert_groups", EXPERTS},
    {"num_limited_groups", GROUPS},
    {"score_func", EXPERTS},
    {"route_norm", EXPERTS},
    {"score_before_experts", EXPERTS},
    {"route_scale", EXPERTS},
};

static bool matters(const char *name, const oct_model_args *a) {
    matter when = ALWAYS;
    for (size_t i = 0; i < OCT_COUNT(rules); i++)
        if (strcmp(rules[i].name, name) == 0)
            when = rules[i].when;
    switch (when) {
    case ALWAYS:
        return true;
    case NEVER:
        return false;
    case SCALED:
        return a->rope_scaling != OCT_ROPE_UNSCALED;
    case LLAMA3:
        return a->rope_scaling == OCT_ROPE_LLAMA3;
    case YARN:
        return a->rope_scaling == OCT_ROPE_YARN;
    case EXPERTS:
        return a->num_experts > 0;
    case GROUPS:
        return a->num_expert_groups > 0;
    case DENSE:
        return a->num_experts == 0 || a->n_dense_layers > 0 || !oct_layer_set_is_empty(&a->dense);
    case LATENT:
        return a->family == OCT_MODEL_DEEPSEEK_V3;
    }
    return true;
}

/* Fills in what a 0 stands for, so that values compare. */
static oct_model_args spelled_out(const oct_model_args *args) {
    oct_model_args a = *args;
    if (a.latent_norm_eps == 0)
        a.latent_norm_eps = a.norm_eps;
    if (a.rope_attention_factor == 0)
        a.rope_attention_factor = 1;
    if (a.num_expert_groups == 1)
        a.num_expert_groups = 0;
    if (oct_layer_set_is_empty(&a.windowed))
        a.window = 0;
    return a;
}

static bool is_asked_for(const oct_job *job, const char *name) {
    const oct_value *item = job && job->model.args ? job->model.args->items.first : NULL;
    for (; item; item = item->next)
        if (oct_model_args_is(item->key, name))
            return true;
    return false;
}

/* The key is a switch, as in torchtitan. */
static bool is_unscaled(const char *name, const char *there) {
    return strcmp(name, "rope_scaling") == 0 && strcmp(there, "\"none\"") == 0;
}

static void compare(const oct_job *job, const char *name, const char *there, const char *here,
                    oct_strbuf *to) {
    if (strcmp(there, here) == 0)
        return;
    if (is_asked_for(job, name))
        oct_log_warning("model.args.%s: %s, where the weights' config.json says %s", name, here,
                        there);
    else
        oct_strbuf_printf(to, "%s%s is %s there and %s here%s", to->length ? ", " : "", name, there,
                          here, is_unscaled(name, there) ? " (false is none)" : "");
}

static void compare_all(const oct_job *job, const oct_model_args *at_there,
                        const oct_model_args *at_here, oct_strbuf *to) {
    const oct_model_args all_there = spelled_out(at_there), all_here = spelled_out(at_here);
    const oct_model_args *there = &all_there, *here = &all_here;
    const char *name;
    for (size_t i = 0; (name = oct_model_args_name(i)); i++) {
        oct_strbuf a = {0}, b = {0};
        if (!matters(name, there) || !matters(name, here))
            continue;
        oct_model_args_put(there, i, &a);
        oct_model_args_put(here, i, &b);
        to->failed |= a.failed || b.failed;
        if (!to->failed)
            compare(job, name, a.text, b.text, to);
        oct_strbuf_free(&a);
        oct_strbuf_free(&b);
    }
}

void oct_setup_compare_args(const oct_model_args *there, const oct_model_args *here,
                            oct_strbuf *to) {
    compare_all(NULL, there, here, to);
}

static oct_status has_config(const char *folder, bool *exists, oct_error *err) {
    char *path = oct_path_join(folder, "config.json");
    *exists = path && oct_path_exists(path);
    oct_free(path);
    return path ? OCT_OK : oct_fail_memory(err);
}

/* A flavor keeps torchtitan's rule, which leaves yarn out of short sequences. */
static void warn_of_yarn(const oct_job *job, const oct_model_args *there,
                         const oct_model_args *here) {
    if (oct_model_args_uses_yarn(there) && !oct_model_args_uses_yarn(here))
        oct_log_warning("yarn isn't in force: training.seq_len is %" PRId64
                        ", and torchtitan's rule is to leave it out up to the %" PRId64
                        " tokens of the weights' first training; transformers applies it at any "
                        "length, and so its logits of this model are others",
                        job->training.seq_len, here->rope_original_max_position_embeddings);
}

oct_status oct_setup_check_hf(const char *folder, const oct_job *job, const oct_model_args *args,
                              oct_error *err) {
    oct_model_args there;
    oct_strbuf list = {0};
    bool exists;
    oct_status status = has_config(folder, &exists, err);
    if (status)
        return status;
    if (!exists) {
        oct_log_warning("%s has no config.json: only names and shapes of its weights say whether "
                        "they are of this model",
                        folder);
        return OCT_OK;
    }
    status = oct_setup_model_args_from_hf(folder, &there, err);
    if (!status)
        status = oct_model_args_resolve(&there, err);
    if (status)
        return status;
    compare_all(job, &there, args, &list);
    if (list.failed)
        status = oct_fail_memory(err);
    else if (list.length)
        status = oct_fail(err, OCT_INVALID,
                          "%s/config.json: another model than the job's (%s %s; [model.args] may "
                          "change it): %s",
                          folder, oct_model_family_name(args->family), args->flavor, list.text);
    else
        warn_of_yarn(job, &there, args);
    oct_strbuf_free(&list);
    return status;
}
