/* The keys of a MindSpeed MM job (FSDP2 back end). Names and defaults are those of
 * mindspeed_mm/fsdp/params and of its low-precision guide; mindspeed.c says what the keys mean that
 * aren't stored as they are. */
#include "config/schema.h"

#define AT(member) offsetof(oct_job, member)
#define ROW(type, effect, name, member, target, range, choices, fallback, meaning)                 \
    {                                                                                              \
        name, OCT_KEY_##type, OCT_KEY_USED, fallback, range, choices, member, meaning, target,     \
            OCT_EFFECT_##effect                                                                    \
    }
/* The member is the one that the TOML key names. */
#define SAME(type, name, key, range, fallback, meaning)                                            \
    ROW(type, OF_TARGET, name, AT(key), #key, OCT_RANGE_##range, NULL, fallback, meaning)
/* A member without a TOML key. */
#define OWN(type, effect, name, member, fallback, meaning)                                         \
    ROW(type, effect, name, AT(member), NULL, 0, NULL, fallback, meaning)
/* Worked into members by mindspeed.c. */
#define MEANS(type, name, target, range, choices, fallback, meaning)                               \
    ROW(type, OF_TARGET, name, OCT_NO_MEMBER, target, OCT_RANGE_##range, choices, fallback, meaning)
#define INERT(type, name, fallback, meaning)                                                       \
    { name, OCT_KEY_##type, OCT_KEY_INERT, fallback, 0, NULL, OCT_NO_MEMBER, meaning, NULL, 0 }
#define UNSUPPORTED(type, name, choices, fallback, meaning)                                        \
    {                                                                                              \
        name, OCT_KEY_##type, OCT_KEY_UNSUPPORTED, fallback, 0, choices, OCT_NO_MEMBER, meaning,   \
            NULL, 0                                                                                \
    }

#define PLAN "training.quantization_plan."
#define BASIC "data.dataset_param.basic_parameters."
#define LOADER "data.dataloader_param."
static const char text_only[] = "texts alone are read";
static const char no_workers[] = "tokens are mapped from the file; there are no loader processes";
static const char no_profiler[] = "there is no profiler";
static const char tuning[] = "tuning of another device";
static const char same_result[] = "the result doesn't depend on it";
static const char derived[] = "follows from the number of ranks";
static const char no_muon[] = "used with Muon only";
static const char no_lora[] = "used with LoRA only";

static const oct_key keys[] = {
    SAME(STRING, "model.model_name_or_path", model.hf_assets_path, ANY, "./",
         "Hugging Face folder: tokenizer, config.json, weights"),
    MEANS(STRING, "model.model_id", "model.name", ANY, NULL, "none",
          "qwen3, qwen3_moe, llama, llama3 or deepseek_v3; none: as config.json says"),
    OWN(LIST, RESULT, "model.freeze", model.freeze, "", "modules that don't train"),
    INERT(BOOL, "model.trust_remote_code", "false", "no remote code is run"),
    INERT(STRING, "model.attn_implementation", "flash_attention_2", same_result),
    INERT(BOOL, "model.use_triton_gdn", "false", tuning),
    UNSUPPORTED(WORD, "model.dtype", "fp32|float32", "none", "master weights are float32"),
    UNSUPPORTED(INT, "model.mtp_num_layers", NULL, "0", "multi-token prediction isn't supported"),
    INERT(FLOAT, "model.mtp_loss_scaling_factor", "0.1", "used with multi-token prediction only"),
    INERT(INT, "model.chunk_layer_chunks", "1", same_result),
    INERT(LIST, "model.chunk_layer_types", "", same_result),
    UNSUPPORTED(ANY, "model.models", NULL, "none", "models of several parts aren't supported"),
    INERT(STRING, "model.loss_cfg.loss_type", "raw", same_result),
    INERT(BOOL, "model.loss_cfg.enable_chunk_loss", "false", same_result),
    INERT(INT, "model.loss_cfg.chunk_size", "1024", same_result),
    UNSUPPORTED(FLOAT, "model.loss_cfg.router_aux_loss_coef", NULL, "0.0",
                "an auxiliary loss of the router isn't supported"),

    INERT(STRING, "data.dataset_param.dataset_type", "huggingface", text_only),
    INERT(TABLE, "data.dataset_param.attr", "none", text_only),
    INERT(TABLE, "data.dataset_param.preprocess_parameters", "none", text_only),
    SAME(STRING, BASIC "dataset", training.dataset_path, ANY, "none",
         "a text, JSONL or packed file, or a folder of them"),
    SAME(INT, BASIC "cutoff_len", training.seq_len, COUNT, "2048", "tokens a sequence"),
    INERT(STRING, BASIC "dataset_dir", "./data", "paths are relative to the current folder"),
    INERT(STRING, BASIC "template", "none", text_only),
    INERT(BOOL, BASIC "enable_thinking", "false", text_only),
    INERT(BOOL, BASIC "train_on_prompt", "false", text_only),
    INERT(BOOL, BASIC "mask_history", "false", text_only),
    INERT(STRING, BASIC "cache_dir", "none", no_workers),
    INERT(BOOL, BASIC "overwrite_cache", "false", no_workers),
    INERT(INT, BASIC "preprocessing_batch_size", "1000", no_workers),
    INERT(INT, BASIC "preprocessing_num_workers", "16", no_workers),
    INERT(BOOL, BASIC "preprocessing_on_fly", "false", no_workers),
    INERT(BOOL, BASIC "streaming", "false", no_workers),
    INERT(BOOL, BASIC "packing", "false", "texts are always packed"),
    INERT(ANY, BASIC "val_dataset", "none", "validation is a TOML key: validation.dataset_path"),
    INERT(FLOAT, BASIC "val_size", "0.0", "validation is a TOML key: validation.dataset_path"),
    UNSUPPORTED(INT, BASIC "max_samples", NULL, "none", "a data set is read whole"),
    INERT(BOOL, LOADER "pin_memory", "false", no_workers),
    INERT(BOOL, LOADER "shuffle", "true", "sequences are always shuffled, by the seed"),
    INERT(STRING, LOADER "dataloader_mode", "sampler", no_workers),
    INERT(BOOL, LOADER "drop_last", "true", "a short last batch is always dropped"),
    INERT(STRING, LOADER "sampler_type", "BaseRandomBatchSampler", no_workers),
    INERT(INT, LOADER "num_workers", "2", no_workers),
    INERT(INT, LOADER "prefetch_factor", "none", no_workers),
    INERT(INT, LOADER "seed", "42", "training.seed seeds the order of data too"),
    INERT(TABLE, LOADER "collate_param", "none", text_only),

    MEANS(BOOL, "features.recompute", "activation_checkpoint.mode", ANY, NULL, "false",
          "run layers again in the backward pass to save memory"),
    ROW(ANY, COURSE, "features.recompute_plan", OCT_NO_MEMBER, NULL, 0, NULL, "none",
        "which modules; a list, or a table with apply_modules"),
    INERT(TABLE, "features.swap_plan", "none", tuning),
    INERT(STRING, "features.loss_cfg.loss_type", "raw", same_result),
    UNSUPPORTED(FLOAT, "features.loss_cfg.router_aux_loss_coef", NULL, "0.0",
                "an auxiliary loss of the router isn't supported"),
    INERT(BOOL, "features.loss_cfg.router_aux_loss_offload", "false", tuning),
    INERT(BOOL, "features.enable_chunk_loss", "false", same_result),
    INERT(BOOL, "features.enable_dynamic_chunk_loss", "false", same_result),
    INERT(TABLE, "features.chunkloss_plan", "none", same_result),
    INERT(BOOL, "features.enable_activation_offload", "false", tuning),
    INERT(TABLE, "features.activation_offload_plan", "none", tuning),
    INERT(BOOL, "features.enable_chunk_mbs", "false", same_result),
    INERT(TABLE, "features.chunkmbs_plan", "none", same_result),
    INERT(BOOL, "features.enable_ep_balance", "false", tuning),
    INERT(TABLE, "features.ep_balance_plan", "none", tuning),
    INERT(BOOL, "features.skip_moe_pad_tokens", "false", same_result),

    MEANS(ANY, "parallel.fully_shard_parallel_size", "parallelism.data_parallel_shard_degree", ANY,
          NULL, "auto", "ranks that share one copy of the model; auto: all"),
    INERT(LIST, "parallel.fsdp_plan.apply_modules", "", "every layer is gathered as one"),
    UNSUPPORTED(LIST, "parallel.fsdp_plan.ignored_modules", NULL, "", "every parameter is sharded"),
    ROW(CHOICE, OF_TARGET, "parallel.fsdp_plan.param_dtype", AT(training.mixed_precision_param),
        "training.mixed_precision_param", 0, "fp32|bf16", "bf16",
        "dtype of activations and of gathered high-precision weights"),
    UNSUPPORTED(WORD, "parallel.fsdp_plan.reduce_dtype", "fp32", "fp32",
                "gradients are reduced in float32"),
    INERT(STRING, "parallel.fsdp_plan.output_dtype", "none", same_result),
    INERT(BOOL, "parallel.fsdp_plan.cast_forward_inputs", "true", same_result),
    MEANS(BOOL, "parallel.fsdp_plan.reshard_after_forward",
          "parallelism.fsdp_reshard_after_forward", ANY, NULL, "true",
          "whether gathered weights are dropped after the forward pass"),
    INERT(INT, "parallel.fsdp_plan.num_to_forward_prefetch", "0", same_result),
    INERT(INT, "parallel.fsdp_plan.num_to_backward_prefetch", "0", same_result),
    INERT(BOOL, "parallel.fsdp_plan.pregather", "false", same_result),
    INERT(LIST, "parallel.fsdp_plan.hook_modules", "", same_result),
    INERT(BOOL, "parallel.fsdp_plan.cpu_offload", "false", "all memory is the CPU's"),
    SAME(INT, "parallel.expert_parallel_size", parallelism.expert_parallel_degree, COUNT, "1",
         "ranks over which experts are spread"),
    INERT(LIST, "parallel.ep_plan.apply_modules", "", "the experts of all layers are spread"),
    INERT(LIST, "parallel.ep_plan.apply_efsdp_modules", "", same_result),
    INERT(BOOL, "parallel.ep_plan.use_npu_fused_ops", "true", tuning),
    INERT(STRING, "parallel.ep_plan.dispatcher", "alltoall", same_result),
    INERT(INT, "parallel.data_parallel_size", "none", derived),
    INERT(INT, "parallel.expert_fully_shard_parallel_size", "none", derived),
    INERT(INT, "parallel.expert_data_parallel_size", "1", derived),
    UNSUPPORTED(INT, "parallel.tensor_parallel_size", NULL, "1",
                "tensor parallelism isn't supported"),
    INERT(TABLE, "parallel.tp_plan", "none", "used with tensor parallelism only"),
    UNSUPPORTED(INT, "parallel.ring_attention_size", NULL, "1",
                "context parallelism isn't supported"),
    UNSUPPORTED(INT, "parallel.ulysses_parallel_size", NULL, "1",
                "context parallelism isn't supported"),
    MEANS(BOOL, "parallel.recompute", "activation_checkpoint.mode", ANY, NULL, "false",
          "as features.recompute"),
    ROW(ANY, COURSE, "parallel.recompute_plan", OCT_NO_MEMBER, NULL, 0, NULL, "none",
        "as features.recompute_plan"),

    SAME(INT, "training.micro_batch_size", training.local_batch_size, COUNT, "1",
         "sequences a rank takes at a time"),
    ROW(INT, RESULT, "training.gradient_accumulation_steps",
        AT(training.gradient_accumulation_steps), NULL, OCT_RANGE_COUNT, NULL, "1",
        "micro-batches a step"),
    SAME(INT, "training.seed", debug.seed, SEED, "42", "seed of weights and data order"),
    SAME(FLOAT, "training.lr", optimizer.lr, NOT_NEGATIVE, "5e-5", "peak learning rate"),
    MEANS(FLOAT, "training.lr_min", "lr_scheduler.min_lr_factor", NOT_NEGATIVE, NULL, "0.0",
          "last learning rate"),
    UNSUPPORTED(FLOAT, "training.lr_start", NULL, "0.0", "the warm-up starts at 0"),
    ROW(CHOICE, OF_TARGET, "training.lr_decay_style", AT(lr_scheduler.decay_type),
        "lr_scheduler.decay_type", 0, "linear|sqrt|cosine|constant", "constant",
        "the form of the decay"),
    UNSUPPORTED(FLOAT, "training.lr_decay_ratio", NULL, "1.0", "the decay ends with the last step"),
    MEANS(FLOAT, "training.lr_warmup_ratio", "lr_scheduler.warmup_steps", FRACTION, NULL, "0.0",
          "share of the steps that warm up"),
    UNSUPPORTED(ANY, "training.lr_scaling_plan", NULL, "none",
                "one learning rate serves all layers"),
    SAME(FLOAT, "training.weight_decay", optimizer.weight_decay, NOT_NEGATIVE, "0.0",
         "weight decay"),
    UNSUPPORTED(LIST, "training.no_decay_modules", NULL, "", "weight decay is for all or none"),
    UNSUPPORTED(LIST, "training.no_decay_params", NULL, "", "weight decay is for all or none"),
    SAME(FLOAT, "training.adam_beta1", optimizer.beta1, BELOW_ONE, "0.9",
         "decay of the first moment"),
    SAME(FLOAT, "training.adam_beta2", optimizer.beta2, BELOW_ONE, "0.999",
         "decay of the second moment"),
    SAME(FLOAT, "training.adam_eps", optimizer.eps, NORMAL, "1e-8",
         "added to the denominator; above 0"),
    ROW(CHOICE, OF_TARGET, "training.optimizer", AT(optimizer.name), "optimizer.name", 0,
        "adamw|adam", "adamw", "the update rule"),
    INERT(BOOL, "training.adam_fused", "true", "there is one implementation"),
    INERT(FLOAT, "training.matched_adamw_rms", "0.2", no_muon),
    INERT(FLOAT, "training.muon_momentum", "0.95", no_muon),
    INERT(INT, "training.ns_steps", "5", no_muon),
    SAME(INT, "training.train_iters", training.steps, COUNT, "10000", "optimizer steps"),
    UNSUPPORTED(INT, "training.train_epochs", NULL, "none", "a run is train_iters steps"),
    UNSUPPORTED(INT, "training.max_steps", NULL, "none", "a run is train_iters steps"),
    MEANS(FLOAT, "training.clip_grad", "training.max_norm", NOT_NEGATIVE, NULL, "1.0",
          "gradients are clipped to this norm; 0: they aren't"),
    INERT(BOOL, "training.clip_grad_foreach", "true", same_result),
    MEANS(STRING, "training.save", "job.dump_folder", ANY, NULL, "none",
          "folder of everything a run writes; none: ./outputs, and no checkpoints"),
    SAME(STRING, "training.load", checkpoint.initial_load_path, ANY, "none",
         "checkpoint or Hugging Face folder to start from when there is none to resume"),
    SAME(INT, "training.save_interval", checkpoint.interval, COUNT, "1", "steps between saves"),
    SAME(BOOL, "training.no_load_optim", checkpoint.initial_load_model_only, ANY, "false",
         "take the weights alone from training.load"),
    INERT(BOOL, "training.no_load_rng", "false", "random numbers follow from seed and step"),
    SAME(BOOL, "training.no_save_optim", checkpoint.last_save_model_only, ANY, "false",
         "the last save holds the weights alone"),
    INERT(BOOL, "training.no_save_rng", "false", "random numbers follow from seed and step"),
    INERT(BOOL, "training.load_strict", "false", "a checkpoint is always checked whole"),
    INERT(BOOL, "training.load_rank0_and_broadcast", "false", same_result),
    INERT(STRING, "training.ckpt_manager", "dcp", "there is one form of checkpoint"),
    INERT(BOOL, "training.save_async", "false", "a save is done before the next step"),
    UNSUPPORTED(STRING, "training.load_checkpoint_path", NULL, "none", "training.load names it"),
    INERT(INT, "training.save_steps", "0", "training.save_interval counts"),
    SAME(INT, "training.log_interval", metrics.log_freq, COUNT, "1", "steps between log lines"),
    INERT(BOOL, "training.use_deter_comp", "false", "results are always deterministic"),
    INERT(BOOL, "training.enable_full_determinism", "false", "results are always deterministic"),
    INERT(BOOL, "training.allow_hf32", "none", tuning),
    INERT(BOOL, "training.init_model_with_meta_device", "false", same_result),
    INERT(LIST, "training.plugin", "", "models and data readers are built in"),
    INERT(TABLE, "training.profile", "none", no_profiler),
    UNSUPPORTED(BOOL, "training.lora.enable", NULL, "false", "LoRA isn't supported"),
    INERT(INT, "training.lora.rank", "8", no_lora),
    INERT(FLOAT, "training.lora.alpha", "16", no_lora),
    INERT(LIST, "training.lora.target_modules", "", no_lora),
    INERT(FLOAT, "training.lora.dropout", "0.0", no_lora),
    INERT(ANY, "training.lora.init_lora_weights", "true", no_lora),
    INERT(STRING, "training.lora.pretrained_lora_path", "none", no_lora),

    OWN(STRING, RESULT, PLAN "recipe_name", quantization_plan.recipe_name, "none",
        "the recipe; required in a plan"),
    OWN(LIST, RESULT, PLAN "apply_modules", quantization_plan.apply_modules, "model.layers.{*}",
        "modules to quantize, and all below them"),
    OWN(LIST, RESULT, PLAN "ignored_modules", quantization_plan.ignored_modules, "lm_head,gate",
        "modules that stay in high precision, and all below them"),
    OWN(LIST, RESULT, PLAN "quant_converters", quantization_plan.quant_converters,
        "quantize.linear.mx,quantize.moe.mx", "what is quantized"),
    OWN(BOOL, RESULT, PLAN "enable_fsdp_low_precision_all_gather",
        quantization_plan.enable_fsdp_low_precision_all_gather, "true", "gather weights in 8 bits"),
    ROW(WORD, COURSE, PLAN "fsdp_low_precision_all_gather_mode",
        AT(quantization_plan.fsdp_low_precision_all_gather_mode), NULL, 0, "on-demand|all|minimal",
        "on-demand", "which orientations are gathered"),

    INERT(TABLE, "tools", "none", no_profiler),
};

const oct_schema oct_schema_mindspeed = {keys, sizeof keys / sizeof keys[0]};
