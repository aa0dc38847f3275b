/* The keys of a MindSpeed MM job (FSDP2 back end). Names and defaults are those of
 * mindspeed_mm/fsdp/params and of its low-precision guide; mindspeed.c says what the keys mean that
 * aren't stored as they are. */
#include "base/count.h"
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
/* Another spelling of a key of this form. */
#define ALSO(type, name, key, choices, fallback, meaning)                                          \
    ROW(type, OF_TARGET, name, OCT_NO_MEMBER, key, 0, choices, fallback, meaning)
#define INERT(type, name, fallback, meaning)                                                       \
    { name, OCT_KEY_##type, OCT_KEY_INERT, fallback, 0, NULL, OCT_NO_MEMBER, meaning, NULL, 0 }
#define UNSUPPORTED(type, name, choices, fallback, meaning)                                        \
    {                                                                                              \
        name, OCT_KEY_##type, OCT_KEY_UNSUPPORTED, fallback, 0, choices, OCT_NO_MEMBER, meaning,   \
            NULL, 0                                                                                \
    }

#define UNSUPPORTED_FLAG(name, meaning) UNSUPPORTED(BOOL, name, NULL, "false", meaning)

#define PLAN "training.quantization_plan."
#define STATIC "tools.profile.static_param."
#define MEMORY "tools.memory_profile."
#define BASIC "basic_parameters."
#define LOADER "data.dataloader_param."
#define VALIDATION "data.val_dataset_param."
static const char text_only[] = "texts alone are read";
static const char no_chat[] = "plain text has no roles; with chat data it is refused";
static const char no_workers[] = "tokens are mapped from the file; there are no loader processes";
static const char no_profiler[] = "there is no profiler";
static const char whole[] = "a data set is read whole";
static const char own_validation[] = "validation has a data set of its own";
static const char no_images[] = "texts alone are read; there are no images, videos or sounds";
static const char tuning[] = "tuning of another device";
static const char same_result[] = "the result doesn't depend on it";
static const char derived[] = "follows from the number of ranks";
static const char no_aux[] = "used with router_aux_loss_coef only";
static const char no_tensor[] = "used with tensor parallelism only";
static const char llm[] = "MindSpeed LLM's word for this key of training.quantization_plan";
static const char no_muon[] = "used with Muon only";
static const char no_lora[] = "used with LoRA only";

/* What a file's features and, in some, its model have. */
#define CHUNK_LOSS(section)                                                                        \
    INERT(BOOL, section "enable_chunk_loss", "false", same_result),                                \
        INERT(STRING, section "chunkloss_plan.apply_module", "lm_head", same_result),              \
        INERT(INT, section "chunkloss_plan.chunk_size", "1024", same_result),                      \
        INERT(INT, section "chunkloss_plan.total_chunk_size", "4096", same_result),                \
        INERT(STRING, section "chunkloss_plan.impl_type", "legacy", same_result),                  \
        INERT(INT, section "chunkloss_plan.vocab_tile_size", "4096", same_result)

#define LOSS "raw|default|per_sample_loss|per_token_loss"
#define LOSS_TYPE(section)                                                                         \
    UNSUPPORTED(WORD, section "loss_cfg.loss_type", LOSS, "raw",                                   \
                "the loss is the mean over tokens, which these give for full sequences")

/* A list, or a section. */
#define RECOMPUTE_PLAN(section, meaning)                                                           \
    ROW(ANY, COURSE, section "recompute_plan", OCT_NO_MEMBER, NULL, 0, NULL, "none",               \
        "a list: as its apply_modules"),                                                           \
        ROW(LIST, COURSE, section "recompute_plan.apply_modules", OCT_NO_MEMBER, NULL, 0, NULL,    \
            "", meaning),                                                                          \
        INERT(BOOL, section "recompute_plan.use_reentrant", "false", same_result), {               \
        section "recompute_plan.op_replay_scopes", OCT_KEY_ANY, OCT_KEY_INERT, "[]", 0,            \
            "name|apply_modules|save_rng|cache_ops", OCT_NO_MEMBER,                                \
            "recomputing gives the same bits", NULL                                                \
    }

/* DatasetAttr: the names of a chat file's columns and tags. */
#define ATTR(section)                                                                              \
    INERT(BOOL, section "ranking", "false", text_only),                                            \
        INERT(STRING, section "system", "none", text_only),                                        \
        INERT(STRING, section "images", "none", text_only),                                        \
        INERT(STRING, section "videos", "none", text_only),                                        \
        INERT(STRING, section "audios", "none", text_only),                                        \
        INERT(STRING, section "prompt", "none", text_only),                                        \
        INERT(STRING, section "query", "none", text_only),                                         \
        INERT(STRING, section "response", "none", text_only),                                      \
        INERT(STRING, section "history", "none", text_only),                                       \
        INERT(STRING, section "messages", "conversations", text_only),                             \
        INERT(STRING, section "tools", "none", text_only),                                         \
        INERT(STRING, section "role_tag", "from", text_only),                                      \
        INERT(STRING, section "content_tag", "value", text_only),                                  \
        INERT(STRING, section "user_tag", "human", text_only),                                     \
        INERT(STRING, section "assistant_tag", "gpt", text_only),                                  \
        INERT(STRING, section "observation_tag", "observation", text_only),                        \
        INERT(STRING, section "function_tag", "function_call", text_only),                         \
        INERT(STRING, section "system_tag", "system", text_only),                                  \
        INERT(STRING, section "chosen", "none", text_only),                                        \
        INERT(STRING, section "rejected", "none", text_only),                                      \
        INERT(STRING, section "formatting", "sharegpt", text_only)

/* ProcessorArguments. */
#define PROCESSOR(section)                                                                         \
    INERT(STRING, section "model_name_or_path", "none", "model.model_name_or_path names it"),      \
        INERT(BOOL, section "use_fast_tokenizer", "true", "there is one tokenizer"),               \
        UNSUPPORTED_FLAG(section "split_special_tokens", "special tokens of a text stay whole"),   \
        INERT(INT, section "image_resolution", "512", no_images),                                  \
        INERT(INT, section "video_resolution", "128", no_images),                                  \
        INERT(INT, section "image_max_pixels", "589824", no_images),                               \
        INERT(INT, section "image_min_pixels", "1024", no_images),                                 \
        INERT(INT, section "video_max_pixels", "65536", no_images),                                \
        INERT(INT, section "video_min_pixels", "256", no_images),                                  \
        INERT(FLOAT, section "video_fps", "2.0", no_images),                                       \
        INERT(INT, section "video_maxlen", "128", no_images),                                      \
        INERT(BOOL, section "image_do_pan_and_scan", "false", no_images),                          \
        INERT(BOOL, section "crop_to_patches", "false", no_images),                                \
        INERT(BOOL, section "use_audio_in_video", "false", no_images),                             \
        INERT(INT, section "audio_sampling_rate", "16000", no_images),                             \
        INERT(BOOL, section "trust_remote_code", "false", "no remote code is run")

/* DatasetArguments, with DataArguments as its basic_parameters, but for the keys that differ
 * between training and validation. */
#define DATASET(section)                                                                           \
    INERT(STRING, section "dataset_type", "huggingface", text_only), ATTR(section "attr."),        \
        PROCESSOR(section "preprocess_parameters."),                                               \
        INERT(STRING, section BASIC "dataset_dir", "./data",                                       \
              "paths are relative to the current folder"),                                         \
        INERT(STRING, section BASIC "template", "none", no_chat),                                  \
        INERT(STRING, section BASIC "chat_template", "none", no_chat),                             \
        INERT(STRING, section BASIC "tool_format", "none", no_chat),                               \
        INERT(BOOL, section BASIC "enable_thinking", "true", no_chat),                             \
        INERT(BOOL, section BASIC "train_on_prompt", "false", no_chat),                            \
        INERT(BOOL, section BASIC "mask_history", "false", no_chat),                               \
        INERT(STRING, section BASIC "cache_dir", "none", no_workers),                              \
        INERT(BOOL, section BASIC "overwrite_cache", "false", no_workers),                         \
        INERT(INT, section BASIC "preprocessing_batch_size", "1000", no_workers),                  \
        INERT(INT, section BASIC "preprocessing_num_workers", "none", no_workers),                 \
        INERT(BOOL, section BASIC "preprocess_on_fly", "false", no_workers),                       \
        INERT(BOOL, section BASIC "async_preprocess", "false", no_workers),                        \
        INERT(INT, section BASIC "async_preprocess_buffer_size", "none", no_workers),              \
        INERT(BOOL, section BASIC "streaming", "false", no_workers),                               \
        UNSUPPORTED(BOOL, section BASIC "packing", NULL, "true",                                   \
                    "texts are always packed into whole sequences"),                               \
        UNSUPPORTED_FLAG(section BASIC "neat_packing",                                             \
                         "tokens attend to all before them in a sequence"),                        \
        UNSUPPORTED(WORD, section BASIC "stage", "sft|pretrain", "none",                           \
                    "other stages, such as that of reward models, aren't supported"),              \
        UNSUPPORTED(INT, section BASIC "max_samples", NULL, "none", whole),                        \
        UNSUPPORTED(INT, section BASIC "val_max_samples", NULL, "0", whole),                       \
        UNSUPPORTED(FLOAT, section BASIC "val_rate", NULL, "0.0", own_validation)

static const oct_key keys[] = {
    SAME(STRING, "model.model_name_or_path", model.hf_assets_path, ANY, "./",
         "Hugging Face folder: tokenizer, config.json, weights"),
    MEANS(STRING, "model.model_id", "model.name", ANY, NULL, "none",
          "qwen3, qwen3_moe, llama, llama3 or deepseek_v3; none: as config.json says"),
    OWN(LIST, RESULT, "model.freeze", model.freeze, "", "modules that don't train"),
    INERT(BOOL, "model.trust_remote_code", "false", "no remote code is run"),
    UNSUPPORTED(WORD, "model.attn_implementation", "eager|sdpa|flash_attention_2|flash_attention_3",
                "flash_attention_2", "these are the same exact attention; others aren't supported"),
    INERT(BOOL, "model.use_triton_gdn", "false", tuning),
    UNSUPPORTED(WORD, "model.dtype", "fp32|float32", "none", "master weights are float32"),
    UNSUPPORTED(INT, "model.mtp_num_layers", NULL, "0", "multi-token prediction isn't supported"),
    INERT(FLOAT, "model.mtp_loss_scaling_factor", "0.1", "used with multi-token prediction only"),
    INERT(INT, "model.chunk_layer_chunks", "1", same_result),
    INERT(LIST, "model.chunk_layer_types", "", same_result),
    UNSUPPORTED(ANY, "model.models", NULL, "none", "models of several parts aren't supported"),
    INERT(BOOL, "model.skip_flash_attn_recompute", "false", same_result),
    CHUNK_LOSS("model."),
    LOSS_TYPE("model."),
    INERT(BOOL, "model.loss_cfg.enable_chunk_loss", "false", same_result),
    INERT(INT, "model.loss_cfg.chunk_size", "1024", same_result),
    UNSUPPORTED(FLOAT, "model.loss_cfg.router_aux_loss_coef", NULL, "0.0",
                "an auxiliary loss of the router isn't supported"),
    ALSO(STRING, "model.quant_recipe_name", PLAN "recipe_name", NULL, "none", llm),
    ALSO(STRING, "model.quant_format", PLAN "quant_format", NULL, "none", llm),
    ALSO(INT, "model.quant_block_size", PLAN "block_size", NULL, "32", llm),
    ALSO(LIST, "model.quant_apply_modules", PLAN "apply_modules", NULL, "model.layers.{*}", llm),
    ALSO(LIST, "model.quant_ignored_modules", PLAN "ignored_modules", NULL, "*lm_head,*gate", llm),
    ALSO(LIST, "model.quant_converters", PLAN "quant_converters", NULL, "quantize.linear.mx", llm),
    ALSO(BOOL, "model.enable_fsdp_low_precision_all_gather",
         PLAN "enable_fsdp_low_precision_all_gather", NULL, "true", llm),
    ALSO(CHOICE, "model.fsdp_low_precision_all_gather_mode",
         PLAN "fsdp_low_precision_all_gather_mode", "on-demand|all|minimal", "on-demand", llm),

    DATASET("data.dataset_param."),
    SAME(STRING, "data.dataset_param." BASIC "dataset", training.dataset_path, ANY, "none",
         "a text, JSONL or packed file, or a folder of them"),
    SAME(INT, "data.dataset_param." BASIC "cutoff_len", training.seq_len, COUNT, "1024",
         "tokens a sequence"),
    DATASET(VALIDATION),
    SAME(STRING, VALIDATION BASIC "dataset", validation.dataset_path, ANY, "none",
         "validation data: a text, JSONL or packed file, or a folder of them"),
    MEANS(INT, VALIDATION BASIC "cutoff_len", "validation.seq_len", COUNT, NULL, "1024",
          "tokens a sequence of it; without validation data of its own: as of the training data"),
    UNSUPPORTED(STRING, VALIDATION BASIC "val_dataset", NULL, "none", own_validation),
    MEANS(STRING, "data.dataset_param." BASIC "val_dataset", "validation.dataset_path", ANY, NULL,
          "none", "validation data, where data.val_dataset_param names none"),
    INERT(BOOL, LOADER "pin_memory", "false", no_workers),
    UNSUPPORTED(BOOL, LOADER "shuffle", NULL, "true", "sequences are always shuffled, by the seed"),
    INERT(STRING, LOADER "dataloader_mode", "sampler", no_workers),
    UNSUPPORTED(BOOL, LOADER "drop_last", NULL, "true", "a short last batch is always dropped"),
    INERT(STRING, LOADER "sampler_type", "BaseRandomBatchSampler", no_workers),
    INERT(INT, LOADER "num_workers", "2", no_workers),
    INERT(INT, LOADER "prefetch_factor", "none", no_workers),
    INERT(INT, LOADER "seed", "42", "training.seed seeds the order of data too"),
    INERT(STRING, LOADER "collate_param.collator_id", "none", text_only),
    INERT(STRING, LOADER "collate_param.model_name", "none", text_only),
    INERT(BOOL, LOADER "collate_param.ignore_pad_token_for_loss", "false", "there is no padding"),
    INERT(INT, LOADER "collate_param.pad_to_multiple_of", "8", "there is no padding"),
    INERT(BOOL, LOADER "enable_preload", "false", no_workers),

    MEANS(BOOL, "features.recompute", "activation_checkpoint.mode", ANY, NULL, "false",
          "run layers again in the backward pass to save memory"),
    RECOMPUTE_PLAN("features.", "which modules; the plan may also be the list itself"),
    INERT(FLOAT, "features.swap_plan.capacity_mb", "1024.0", tuning),
    INERT(FLOAT, "features.swap_plan.keep_rate", "0.0", tuning),
    INERT(BOOL, "features.swap_plan.enable_prefetch", "true", tuning),
    INERT(FLOAT, "features.swap_plan.cpu_arena_slab_size_mb", "2048.0", tuning),
    INERT(STRING, "features.swap_plan.cpu_arena_pool_policy", "standard", tuning),
    INERT(BOOL, "features.swap_plan.pin_memory", "true", tuning),
    INERT(STRING, "features.swap_plan.eviction_policy", "fifo", tuning),
    LOSS_TYPE("features."),
    UNSUPPORTED(FLOAT, "features.loss_cfg.router_aux_loss_coef", NULL, "0.0",
                "an auxiliary loss of the router isn't supported"),
    INERT(BOOL, "features.loss_cfg.router_aux_loss_offload", "false", tuning),
    INERT(STRING, "features.loss_cfg.router_aux_loss_type", "local", no_aux),
    INERT(BOOL, "features.loss_cfg.router_aux_loss_use_attention_mask", "false", no_aux),
    CHUNK_LOSS("features."),
    INERT(BOOL, "features.enable_dynamic_chunk_loss", "false", same_result),
    INERT(BOOL, "features.enable_activation_offload", "false", tuning),
    INERT(LIST, "features.activation_offload_plan.apply_modules", "", tuning),
    INERT(STRING, "features.activation_offload_plan.impl", "legacy", tuning),
    INERT(BOOL, "features.enable_chunk_mbs", "false", same_result),
    INERT(LIST, "features.chunkmbs_plan.apply_modules", "", same_result),
    INERT(INT, "features.chunkmbs_plan.chunk_mbs", "1", same_result),
    INERT(INT, "features.chunkmbs_plan.batch_dim", "0", same_result),
    INERT(ANY, "features.chunkmbs_plan.chunk_arg_indexs", "[0]", same_result),
    INERT(LIST, "features.chunkmbs_plan.chunk_kwarg_names", "", same_result),
    INERT(BOOL, "features.enable_ep_balance", "false", tuning),
    INERT(INT, "features.ep_balance_plan.max_dup_experts_num", "2", tuning),
    INERT(BOOL, "features.skip_moe_pad_tokens", "false", same_result),

    MEANS(ANY, "parallel.fully_shard_parallel_size", "parallelism.data_parallel_shard_degree", ANY,
          NULL, "auto", "ranks that share one copy of the model; auto: all"),
    INERT(BOOL, "parallel.pregather", "false", same_result),
    INERT(LIST, "parallel.fsdp_plan.apply_modules", "", "every layer is gathered as one"),
    INERT(LIST, "parallel.fsdp_plan.sub_modules_to_wrap", "", "every layer is gathered as one"),
    UNSUPPORTED(LIST, "parallel.fsdp_plan.ignored_modules", NULL, "", "every parameter is sharded"),
    MEANS(CHOICE, "parallel.fsdp_plan.param_dtype", "training.mixed_precision_param", ANY,
          "fp32|bf16", "none",
          "dtype of activations and of gathered high-precision weights; none: fp32"),
    ROW(CHOICE, RESULT, "parallel.fsdp_plan.reduce_dtype", AT(training.reduce_dtype), NULL, 0,
        "fp32|bf16", "none",
        "dtype in which several ranks sum gradients: fp32; none: param_dtype's, which must be fp32 "
        "then"),
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
    INERT(LIST, "parallel.tp_plan.colwise_parallel", "", no_tensor),
    INERT(LIST, "parallel.tp_plan.rowwise_parallel", "", no_tensor),
    INERT(LIST, "parallel.tp_plan.sequence_parallel", "", no_tensor),
    UNSUPPORTED(INT, "parallel.context_parallel_size", NULL, "1",
                "context parallelism isn't supported"),
    UNSUPPORTED(INT, "parallel.ring_attention_size", NULL, "1",
                "context parallelism isn't supported"),
    UNSUPPORTED(INT, "parallel.ulysses_parallel_size", NULL, "1",
                "context parallelism isn't supported"),
    MEANS(BOOL, "parallel.recompute", "activation_checkpoint.mode", ANY, NULL, "false",
          "as features.recompute"),
    RECOMPUTE_PLAN("parallel.", "as features.recompute_plan.apply_modules"),

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
        "adamw|adam|adamw_swap", "adamw",
        "the update rule; adamw_swap is adamw, whose states needn't be swapped here"),
    INERT(FLOAT, "training.mem_fraction_static", "0.8", tuning),
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
    MEANS(WORD, "training.load_format", "checkpoint.initial_load_in_hf", ANY, "auto|hf|dcp", "auto",
          "of training.load: a Hugging Face folder (hf), a checkpoint (dcp), or what it is"),
    ROW(WORD, COURSE, "training.save_format", OCT_NO_MEMBER, NULL, 0, "auto|hf|dcp", "auto",
        "hf only where nothing is saved: a run saves checkpoints of its own form"),
    ROW(WORD, COURSE, "training.save_ckpt_dtype", OCT_NO_MEMBER, NULL, 0, "fp32|fp16|bf16", "none",
        "others than fp32 only where nothing is saved: a checkpoint holds the fp32 masters"),
    INERT(BOOL, "training.load_strict", "false", "a checkpoint is always checked whole"),
    INERT(BOOL, "training.load_rank0_and_broadcast", "false", same_result),
    INERT(STRING, "training.ckpt_manager", "dcp", "there is one form of checkpoint"),
    INERT(BOOL, "training.save_async", "false", "a save is done before the next step"),
    UNSUPPORTED(STRING, "training.load_checkpoint_path", NULL, "none", "training.load names it"),
    INERT(INT, "training.save_steps", "0", "training.save_interval counts"),
    MEANS(INT, "training.val_interval", "validation.freq", INDEX, NULL, "0",
          "steps between validations; 0: none"),
    MEANS(INT, "training.val_micro_batch_size", "validation.local_batch_size", COUNT, NULL, "none",
          "sequences a rank takes at a time; none: training.micro_batch_size"),
    INERT(INT, "training.manual_gc_interval", "0", "there is no garbage collector"),
    SAME(INT, "training.log_interval", metrics.log_freq, COUNT, "1", "steps between log lines"),
    INERT(BOOL, "training.use_deter_comp", "false", "results are always deterministic"),
    INERT(BOOL, "training.enable_full_determinism", "false", "results are always deterministic"),
    INERT(BOOL, "training.allow_hf32", "none", tuning),
    INERT(BOOL, "training.init_model_with_meta_device", "false",
          "masters are fp32 either way; one line says where MindSpeed MM would keep none"),
    INERT(LIST, "training.plugin", "", "models and data readers are built in"),
    INERT(BOOL, "training.profile.enable", "false", no_profiler),
    INERT(INT, "training.profile.start_step", "1", no_profiler),
    INERT(INT, "training.profile.end_step", "2", no_profiler),
    INERT(STRING, "training.profile.save_path", "./profiling", no_profiler),
    INERT(BOOL, "training.profile.record_shapes", "true", no_profiler),
    INERT(BOOL, "training.profile.with_memory", "true", no_profiler),
    INERT(BOOL, "training.profile.with_stack", "true", no_profiler),
    INERT(ANY, "training.profile.ranks", "[0]", no_profiler),
    UNSUPPORTED(BOOL, "training.lora.enable", NULL, "false", "LoRA isn't supported"),
    INERT(INT, "training.lora.rank", "8", no_lora),
    INERT(FLOAT, "training.lora.alpha", "16", no_lora),
    INERT(LIST, "training.lora.target_modules", "", no_lora),
    INERT(FLOAT, "training.lora.dropout", "0.0", no_lora),
    INERT(ANY, "training.lora.init_lora_weights", "true", no_lora),
    INERT(STRING, "training.lora.pretrained_lora_path", "none", no_lora),
    INERT(LIST, "training.lora.lora_target_modules_support", "", no_lora),
    INERT(BOOL, "training.lora.disable_peft_moe_conversion", "true", no_lora),

    ROW(STRING, OF_TARGET, PLAN "recipe_name", AT(quantization_plan.recipe_name),
        "quantize.linear.mx.recipe_name", 0, NULL, "none", "the recipe; required in a plan"),
    OWN(LIST, RESULT, PLAN "apply_modules", quantization_plan.apply_modules, "model.layers.{*}",
        "modules to quantize, and all below them"),
    OWN(LIST, RESULT, PLAN "ignored_modules", quantization_plan.ignored_modules, "lm_head,gate",
        "modules that stay in high precision, and all below them"),
    OWN(LIST, RESULT, PLAN "quant_converters", quantization_plan.quant_converters,
        "quantize.linear.mx,quantize.moe.mx", "what is quantized"),
    ROW(BOOL, OF_TARGET, PLAN "enable_fsdp_low_precision_all_gather",
        AT(quantization_plan.enable_fsdp_low_precision_all_gather),
        "quantize.linear.mx.enable_fsdp_low_precision_all_gather", 0, NULL, "true",
        "gather weights in 8 bits"),
    ROW(CHOICE, OF_TARGET, PLAN "fsdp_low_precision_all_gather_mode",
        AT(quantization_plan.fsdp_low_precision_all_gather_mode),
        "quantize.linear.mx.fsdp_low_precision_all_gather_mode", 0, "on-demand|all|minimal",
        "on-demand", "which orientations are gathered"),
    ALSO(STRING, PLAN "quant_recipe", PLAN "recipe_name", NULL, "none", "as recipe_name"),
    ALSO(LIST, PLAN "quant_apply_modules", PLAN "apply_modules", NULL, "model.layers.{*}",
         "as apply_modules"),
    ALSO(LIST, PLAN "quant_ignored_modules", PLAN "ignored_modules", NULL, "lm_head,gate",
         "as ignored_modules"),
    ALSO(LIST, PLAN "converters", PLAN "quant_converters", NULL,
         "quantize.linear.mx,quantize.moe.mx", "as quant_converters"),
    ROW(STRING, RESULT, PLAN "quant_format", OCT_NO_MEMBER, NULL, 0, NULL, "none",
        "formats of an mxfp8 recipe: E4M3, E5M2 or HYBRID (gradients in E5M2); none: the recipe's "
        "own"),
    ROW(INT, RESULT, PLAN "block_size", OCT_NO_MEMBER, NULL, OCT_RANGE_COUNT, NULL, "32",
        "of an mxfp8 recipe: 32 alone"),
    ROW(BOOL, RESULT, PLAN "quant_gmm", OCT_NO_MEMBER, NULL, 0, NULL, "false",
        "true: experts are quantized too, as with quantize.moe.mx"),
    UNSUPPORTED(TABLE, PLAN "extra_args", NULL, "none", "nothing reads them"),

    INERT(BOOL, "tools.profile.enable", "false", no_profiler),
    INERT(STRING, "tools.profile.profile_type", "static", no_profiler),
    INERT(ANY, "tools.profile.ranks", "[0]", no_profiler),
    INERT(STRING, STATIC "level", "level1", no_profiler),
    INERT(BOOL, STATIC "with_stack", "false", no_profiler),
    INERT(BOOL, STATIC "with_memory", "false", no_profiler),
    INERT(BOOL, STATIC "record_shapes", "false", no_profiler),
    INERT(BOOL, STATIC "with_cpu", "false", no_profiler),
    INERT(STRING, STATIC "save_path", "./profiling", no_profiler),
    INERT(INT, STATIC "start_step", "10", no_profiler),
    INERT(INT, STATIC "end_step", "11", no_profiler),
    INERT(BOOL, STATIC "data_simplification", "false", no_profiler),
    INERT(STRING, STATIC "aic_metrics_type", "PipeUtilization", no_profiler),
    INERT(BOOL, STATIC "analyse_flag", "true", no_profiler),
    INERT(BOOL, MEMORY "enable", "false", no_profiler),
    INERT(INT, MEMORY "start_step", "1", no_profiler),
    INERT(INT, MEMORY "end_step", "2", no_profiler),
    INERT(STRING, MEMORY "save_path", "./memory_snapshot", no_profiler),
    INERT(ANY, MEMORY "dump_ranks", "[0]", no_profiler),
    INERT(STRING, MEMORY "stacks", "all", no_profiler),
    INERT(INT, MEMORY "max_entries", "none", no_profiler),
    INERT(BOOL, MEMORY "mem_info", "false", no_profiler),

    UNSUPPORTED(TABLE, "gpt_args", NULL, "none", "jobs of the Megatron back end aren't read"),

    ROW(WORD, OF_TARGET, "quantize.rules", AT(quantize.rules), "quantize.rules", 0,
        OCT_QUANTIZE_RULES, "framework",
        "whose scales and rounding hold (numerics.md); framework: MindSpeed's"),
    ROW(INT, OF_TARGET, "quantize.stats_freq", AT(quantize.stats_freq), "quantize.stats_freq",
        OCT_RANGE_INDEX, NULL, "0",
        "steps between statistics of what 8 bits lose, in metrics.jsonl (statistics.md); 0: none"),
};

const oct_schema oct_schema_mindspeed = {keys, OCT_COUNT(keys)};
