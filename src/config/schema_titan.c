/* The keys of torchtitan v0.2.2's job file, those that torchtitan-npu adds, and octet's own.
 * Names and defaults are torchtitan's (torchtitan/config/job_config.py) and torchtitan-npu's
 * (torchtitan_npu/config/custom_config.py); what is octet's own says so in docs/configuration.md.
 */
#include "base/count.h"
#include "config/schema.h"

#define AT(member) offsetof(oct_job, member)
#define USED_IN(type, effect, key, range, choices, fallback, meaning)                              \
    {                                                                                              \
#key, type, OCT_KEY_USED, fallback, range, choices, AT(key), meaning, NULL,                \
            OCT_EFFECT_##effect                                                                    \
    }
#define BOOL(effect, key, fallback, meaning)                                                       \
    USED_IN(OCT_KEY_BOOL, effect, key, 0, NULL, fallback, meaning)
#define INT(effect, key, range, fallback, meaning)                                                 \
    USED_IN(OCT_KEY_INT, effect, key, OCT_RANGE_##range, NULL, fallback, meaning)
#define FLOAT(effect, key, range, fallback, meaning)                                               \
    USED_IN(OCT_KEY_FLOAT, effect, key, OCT_RANGE_##range, NULL, fallback, meaning)
#define STRING(effect, key, fallback, meaning)                                                     \
    USED_IN(OCT_KEY_STRING, effect, key, 0, NULL, fallback, meaning)
#define LIST(effect, key, fallback, meaning)                                                       \
    USED_IN(OCT_KEY_LIST, effect, key, 0, NULL, fallback, meaning)
#define CHOICE(effect, key, choices, fallback, meaning)                                            \
    USED_IN(OCT_KEY_CHOICE, effect, key, 0, choices, fallback, meaning)
#define WORD(effect, key, choices, fallback, meaning)                                              \
    USED_IN(OCT_KEY_WORD, effect, key, 0, choices, fallback, meaning)
#define INERT(type, key, fallback, meaning)                                                        \
    { #key, OCT_KEY_##type, OCT_KEY_INERT, fallback, 0, NULL, OCT_NO_MEMBER, meaning, NULL, 0 }
#define UNSUPPORTED(type, key, choices, fallback, meaning)                                         \
    {                                                                                              \
#key, OCT_KEY_##type, OCT_KEY_UNSUPPORTED, fallback, 0, choices, OCT_NO_MEMBER, meaning,   \
            NULL, 0                                                                                \
    }

#define NPU_CONFIG "torchtitan_npu.config.custom_config"
static const char no_profiler[] = "there is no profiler";
static const char no_compiler[] = "there is nothing to compile";
static const char no_device_comm[] = "tuning of the device's communication";
static const char no_fault_tolerance[] = "used with fault_tolerance.enable only";
static const char no_pipeline[] = "used with pipeline parallelism only";
static const char no_context[] = "used with context parallelism only";
static const char no_workers[] = "tokens are mapped from the file; there are no loader processes";
static const char no_float8[] = "read; its converter is refused";
static const char no_swap[] = "memory tuning of an NPU";
static const char no_muon[] = "used with Muon only";
static const char no_budget[] = "used with the compiler's memory budget only";

static const oct_key keys[] = {
    INERT(STRING, job.config_file, "none", "names the job file, on the command line"),
    STRING(COURSE, job.dump_folder, "./outputs", "folder of everything a run writes"),
    STRING(WORDS, job.description, "default job", "a text for the log"),
    BOOL(WORDS, job.print_config, "false", "log every effective value at start"),
    STRING(WORDS, job.save_config_file, "none",
           "write every effective value to this file of the folder"),
    STRING(COURSE, job.device, "cpu", "cpu is the only device"),
    UNSUPPORTED(STRING, job.custom_config_module, "|" NPU_CONFIG, "",
                "Python can't be imported; the keys of torchtitan-npu are built in"),

    INERT(BOOL, profiling.enable_profiling, "false", no_profiler),
    INERT(STRING, profiling.save_traces_folder, "profile_traces", no_profiler),
    INERT(INT, profiling.profile_freq, "10", no_profiler),
    INERT(INT, profiling.profiler_active, "1", no_profiler),
    INERT(INT, profiling.profiler_warmup, "3", no_profiler),
    INERT(BOOL, profiling.enable_memory_snapshot, "false", no_profiler),
    INERT(STRING, profiling.save_memory_snapshot_folder, "memory_snapshot", no_profiler),
    INERT(INT, profiling.profile_step_start, "0", no_profiler),
    INERT(INT, profiling.profile_step_end, "0", no_profiler),
    INERT(ANY, profiling.profile_ranks, "-1", no_profiler),
    INERT(BOOL, profiling.profile_record_shapes, "true", no_profiler),
    INERT(BOOL, profiling.profile_with_memory, "false", no_profiler),
    INERT(BOOL, profiling.profile_with_stack, "false", no_profiler),
    INERT(BOOL, profiling.enable_online_parse, "true", no_profiler),

    INT(WORDS, metrics.log_freq, COUNT, "10", "steps between log lines"),
    BOOL(WORDS, metrics.enable_tensorboard, "false", "write TensorBoard events"),
    BOOL(WORDS, metrics.disable_color_printing, "false", "no colours on a terminal"),
    STRING(WORDS, metrics.save_tb_folder, "tb",
           "folder of the events, relative to job.dump_folder"),
    INERT(BOOL, metrics.save_for_all_ranks, "false", "metrics are reduced; rank 0 writes them"),
    INERT(BOOL, metrics.enable_wandb, "false", "nothing is sent over the network"),

    WORD(MODEL, model.name, "llama3|qwen3|deepseek_v3", "llama3", "which kind of model"),
    STRING(MODEL, model.flavor, "debugmodel", "which size of it"),
    STRING(SOURCE, model.hf_assets_path, "./tests/assets/tokenizer",
           "Hugging Face folder: tokenizer, config.json, weights"),
    STRING(SOURCE, model.tokenizer_path, "none",
           "tokenizer.json or its folder; wins over hf_assets_path"),
    LIST(RESULT, model.converters, "",
         "in order: npu_gmm (or grouped_mm), quantize.linear.mx, quantize.grouped_mm.mx; "
         "torchtitan-npu's fused kernels (npu_rope, ...) are accepted without effect"),
    BOOL(WORDS, model.print_after_conversion, "false", "log the modules after conversion"),
    USED_IN(OCT_KEY_TABLE, MODEL, model.args, 0, NULL, "none",
            "overrides of the flavor's dimensions, e.g. model.args.n_layers = 4"),

    CHOICE(RESULT, optimizer.name, "AdamW|Adam", "AdamW", "the update rule"),
    FLOAT(RESULT, optimizer.lr, NOT_NEGATIVE, "8e-4", "peak learning rate"),
    FLOAT(RESULT, optimizer.beta1, BELOW_ONE, "0.9", "decay of the first moment"),
    FLOAT(RESULT, optimizer.beta2, BELOW_ONE, "0.95", "decay of the second moment"),
    FLOAT(RESULT, optimizer.eps, NORMAL, "1e-8", "added to the denominator; above 0"),
    FLOAT(RESULT, optimizer.weight_decay, NOT_NEGATIVE, "0.1", "weight decay"),
    INERT(STRING, optimizer.implementation, "fused", "there is one implementation"),
    UNSUPPORTED(BOOL, optimizer.early_step_in_backward, NULL, "false",
                "an update inside the backward pass can't clip gradients"),
    INERT(BOOL, optimizer.swap_optimizer, "false", no_swap),
    INERT(INT, optimizer.swap_optimizer_times, "16", no_swap),
    INERT(INT, optimizer.swap_merge_buckets, "1", no_swap),
    INERT(BOOL, optimizer.virtual_optimizer, "false", no_swap),
    INERT(ANY, optimizer.virtual_optimizer_size, "none", no_swap),
    INERT(BOOL, optimizer.virtual_allocator, "false", no_swap),
    UNSUPPORTED(ANY, optimizer.extra_param_group_split_rules, NULL, "none",
                "all parameters have the same learning rate and update rule"),
    INERT(FLOAT, optimizer.muon_lr, "none", no_muon),
    INERT(FLOAT, optimizer.muon_momentum, "0.95", no_muon),
    INERT(BOOL, optimizer.muon_enable_nesterov, "true", no_muon),
    INERT(INT, optimizer.muon_ns_steps, "5", no_muon),
    INERT(STRING, optimizer.muon_adjust_lr_fn, "match_rms_adamw", no_muon),
    INERT(BOOL, optimizer.muon_hybrid_ns, "false", no_muon),

    INT(RESULT, lr_scheduler.warmup_steps, INDEX, "200", "steps of linear warm-up"),
    INT(RESULT, lr_scheduler.total_steps, COUNT, "none",
        "length of the schedule; none: training.steps"),
    FLOAT(RESULT, lr_scheduler.decay_ratio, FRACTION, "none",
          "share of the steps that decay, at the end; none: all after the warm-up"),
    CHOICE(RESULT, lr_scheduler.decay_type, "linear|sqrt|cosine", "linear",
           "the form of the decay"),
    FLOAT(RESULT, lr_scheduler.min_lr_factor, FRACTION, "0.0",
          "last learning rate, as a share of the peak"),

    STRING(WORDS, training.dataset, "c4_test", "name of the data set; training reads dataset_path"),
    STRING(SOURCE, training.dataset_path, "none",
           "a text, JSONL or packed file, or a folder of them"),
    INT(RESULT, training.local_batch_size, COUNT, "8", "sequences a rank takes at a time"),
    INT(RESULT, training.global_batch_size, COUNT_OR_1M, "-1",
        "sequences a step, reached by accumulation; -1: local_batch_size x data-parallel ranks"),
    INT(RESULT, training.seq_len, COUNT, "2048", "tokens a sequence"),
    FLOAT(RESULT, training.max_norm, POSITIVE, "1.0", "gradients are clipped to this norm"),
    INT(COURSE, training.steps, COUNT, "10000", "optimizer steps"),
    CHOICE(RESULT, training.mixed_precision_param, "float32|bfloat16", "bfloat16",
           "dtype of activations and of gathered high-precision weights"),
    UNSUPPORTED(WORD, training.mixed_precision_reduce, "float32", "float32",
                "gradients are reduced in float32"),
    UNSUPPORTED(WORD, training.dtype, "float32", "float32",
                "master weights and optimizer states are float32"),
    INERT(BOOL, training.enable_cpu_offload, "false", "all memory is the CPU's"),
    INERT(INT, training.gc_freq, "50", "there is no garbage collector"),
    INERT(BOOL, training.gc_debug, "false", "there is no garbage collector"),
    INERT(INT, training.dataloader.num_workers, "0", no_workers),
    INERT(BOOL, training.dataloader.persistent_workers, "false", no_workers),
    INERT(BOOL, training.dataloader.pin_memory, "false", no_workers),
    INERT(INT, training.dataloader.prefetch_factor, "none", no_workers),
    INERT(FLOAT, training.torch_npu_memory_ratio, "1.0", no_swap),
    UNSUPPORTED(INT, training.num_mtp_modules, NULL, "0", "multi-token prediction isn't supported"),
    INERT(FLOAT, training.mtp_loss_weight, "0.3", "used with multi-token prediction only"),

    INT(COURSE, parallelism.data_parallel_replicate_degree, COUNT, "1",
        "copies of the sharded model"),
    INT(COURSE, parallelism.data_parallel_shard_degree, COUNT_OR_1M, "-1",
        "ranks that share one copy; -1: all that are left"),
    CHOICE(COURSE, parallelism.fsdp_reshard_after_forward, "default|always|never", "default",
           "whether gathered weights are dropped after the forward pass"),
    INT(RESULT, parallelism.expert_parallel_degree, COUNT, "1",
        "ranks over which experts are spread"),
    UNSUPPORTED(INT, parallelism.tensor_parallel_degree, NULL, "1",
                "tensor parallelism isn't supported"),
    INERT(BOOL, parallelism.disable_loss_parallel, "false", "used with tensor parallelism only"),
    INERT(BOOL, parallelism.enable_async_tensor_parallel, "false",
          "used with tensor parallelism only"),
    UNSUPPORTED(INT, parallelism.pipeline_parallel_degree, NULL, "1",
                "pipeline parallelism isn't supported"),
    INERT(ANY, parallelism.module_fqns_per_model_part, "none", no_pipeline),
    INERT(INT, parallelism.pipeline_parallel_first_stage_less_layers, "1", no_pipeline),
    INERT(INT, parallelism.pipeline_parallel_last_stage_less_layers, "1", no_pipeline),
    INERT(INT, parallelism.pipeline_parallel_layers_per_stage, "none", no_pipeline),
    INERT(STRING, parallelism.pipeline_parallel_schedule, "1F1B", no_pipeline),
    INERT(STRING, parallelism.pipeline_parallel_schedule_csv, "", no_pipeline),
    INERT(INT, parallelism.pipeline_parallel_microbatch_size, "1", no_pipeline),
    INERT(BOOL, parallelism.pipeline_parallel_expert_parallel_overlap, "true", no_pipeline),
    UNSUPPORTED(INT, parallelism.context_parallel_degree, NULL, "1",
                "context parallelism isn't supported"),
    INERT(STRING, parallelism.context_parallel_load_balancer, "headtail", no_context),
    INERT(STRING, parallelism.context_parallel_rotate_method, "allgather", no_context),
    INERT(BOOL, parallelism.enable_custom_context_parallel, "false", no_context),
    INERT(STRING, parallelism.custom_context_parallel_path, "", no_context),
    UNSUPPORTED(INT, parallelism.expert_tensor_parallel_degree, NULL, "1",
                "tensor parallelism inside experts isn't supported"),
    INERT(STRING, parallelism.expert_parallel_comm_backend, "standard", no_device_comm),
    INERT(BOOL, parallelism.enable_compiled_autograd, "false", no_compiler),

    BOOL(COURSE, checkpoint.enable, "false", "save and resume"),
    STRING(COURSE, checkpoint.folder, "checkpoint",
           "folder of the checkpoints, relative to job.dump_folder"),
    INT(COURSE, checkpoint.interval, COUNT, "500", "steps between saves"),
    STRING(COURSE, checkpoint.initial_load_path, "none",
           "checkpoint or Hugging Face folder to start from when there is none to resume; read "
           "without enable too"),
    BOOL(COURSE, checkpoint.initial_load_model_only, "true", "take the weights alone from it"),
    BOOL(COURSE, checkpoint.initial_load_in_hf, "false", "it is a Hugging Face folder"),
    BOOL(COURSE, checkpoint.initial_load_in_hf_quantized, "false",
         "its weights are in 8 bits (F8_E4M3 and scales); they are dequantized"),
    BOOL(COURSE, checkpoint.last_save_model_only, "true", "the last save holds the weights alone"),
    BOOL(COURSE, checkpoint.last_save_in_hf, "false",
         "write the last step as a Hugging Face folder too, step-N-hf beside step-N"),
    CHOICE(COURSE, checkpoint.export_dtype, "float32|bfloat16|float16", "float32",
           "dtype of a last save of weights alone and of a Hugging Face folder; float16: of that "
           "alone, the save beside it is in float32"),
    INT(COURSE, checkpoint.keep_latest_k, INDEX, "10",
        "how many checkpoints to keep; 0: all; not 1"),
    INT(COURSE, checkpoint.load_step, INDEX_OR_1M, "-1",
        "step to resume from; -1: the newest valid one"),
    BOOL(COURSE, checkpoint.enable_first_step_checkpoint, "false", "save after step 1 too"),
    BOOL(COURSE, checkpoint.load_only, "false", "load, but save nothing"),
    INERT(STRING, checkpoint.async_mode, "disabled", "a save is done before the next step"),
    UNSUPPORTED(LIST, checkpoint.exclude_from_loading, NULL, "",
                "a checkpoint is loaded whole; initial_load_model_only takes the weights alone"),
    UNSUPPORTED(BOOL, checkpoint.create_seed_checkpoint, NULL, "false",
                "the same seed gives the same weights on any number of ranks"),
    INERT(BOOL, checkpoint.enable_ft_dataloader_checkpoints, "true", no_fault_tolerance),
    INERT(BOOL, checkpoint.sync_files, "true", "files are always synced"),
    INERT(BOOL, checkpoint.drop_page_cache_after_save, "false", no_swap),
    INERT(BOOL, checkpoint.empty_cache_after_save, "true", no_swap),

    CHOICE(COURSE, activation_checkpoint.mode, "none|selective|full", "selective",
           "which layers are run again in the backward pass to save memory"),
    STRING(COURSE, activation_checkpoint.selective_ac_option, "2",
           "selective: every n-th layer, or op: all but the products"),
    INERT(LIST, activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns,
          "moe.router.gate", "recomputing gives the same bits"),
    INERT(BOOL, activation_checkpoint.early_stop, "false", "recomputing gives the same bits"),
    INERT(FLOAT, activation_checkpoint.memory_budget, "0.5", no_budget),
    INERT(BOOL, activation_checkpoint.visualize_memory_budget_pareto, "false", no_budget),
    INERT(BOOL, activation_checkpoint.preserve_rng_state, "false",
          "random numbers are counted, so recomputing draws the same ones"),
    INERT(STRING, activation_checkpoint.determinism_check, "default",
          "recomputing gives the same bits"),
    INERT(BOOL, activation_checkpoint.debug, "false", "recomputing gives the same bits"),

    INERT(BOOL, compile.enable, "false", no_compiler),
    INERT(LIST, compile.components, "model,loss", no_compiler),
    INERT(STRING, compile.backend, "inductor", no_compiler),

    BOOL(RESULT, validation.enable, "false", "measure the loss on other data"),
    STRING(WORDS, validation.dataset, "c4_validation",
           "name of the data set; dataset_path is read"),
    STRING(SOURCE, validation.dataset_path, "none",
           "a text, JSONL or packed file, or a folder of them"),
    INT(RESULT, validation.local_batch_size, COUNT, "8", "sequences a rank takes at a time"),
    INT(RESULT, validation.seq_len, COUNT, "2048", "tokens a sequence"),
    INT(COURSE, validation.freq, COUNT, "10", "steps between validations"),
    INT(RESULT, validation.steps, COUNT_OR_1M, "-1",
        "batches to take, all ranks together; -1: all"),
    INERT(INT, validation.dataloader.num_workers, "0", no_workers),
    INERT(BOOL, validation.dataloader.persistent_workers, "false", no_workers),
    INERT(BOOL, validation.dataloader.pin_memory, "false", no_workers),
    INERT(INT, validation.dataloader.prefetch_factor, "none", no_workers),

    INT(COURSE, debug.seed, SEED, "none", "seed of weights and data order"),
    INERT(BOOL, debug.deterministic, "false", "results are always deterministic"),
    INERT(BOOL, debug.deterministic_warn_only, "false", "results are always deterministic"),
    BOOL(MODEL, debug.moe_force_load_balance, "false", "experts take tokens in turn"),

    WORD(RESULT, quantize.rules, OCT_QUANTIZE_RULES, "framework",
         "whose scales and rounding hold (numerics.md); framework: those of the job's "
         "form"),
    INT(WORDS, quantize.stats_freq, INDEX, "0",
        "steps between statistics of what 8 bits lose, in metrics.jsonl (statistics.md); 0: none"),
    STRING(RESULT, quantize.linear.mx.recipe_name, "mxfp8",
           "recipe of the linears; rules torchtitan: mxfp8_cublas by default"),
    LIST(RESULT, quantize.linear.mx.filter_fqns, "output",
         "a linear whose name contains one of these stays in high precision; rules octet: "
         "router.gate by default too"),
    CHOICE(RESULT, quantize.linear.mx.scale_mode, "floor|ceil|even|rceil", "none",
           "rounding of MX block scales; none: as the recipe's name or quantize.rules say"),
    CHOICE(RESULT, quantize.linear.mx.gemm, "auto|exact|fast|aligned", "auto",
           "arithmetic of the products; aligned: the former name of fast"),
    BOOL(RESULT, quantize.linear.mx.enable_fsdp_low_precision_all_gather, "false",
         "gather weights in 8 bits"),
    CHOICE(COURSE, quantize.linear.mx.fsdp_low_precision_all_gather_mode, "on-demand|all|minimal",
           "on-demand", "which orientations are gathered"),
    INT(RESULT, quantize.linear.mx.amax_history_len, COUNT, "16",
        "steps that a delayed recipe looks back"),
    USED_IN(OCT_KEY_TABLES, RESULT, quantize.linear.mx.override, 0, NULL, "none",
            "[[...override]] with fqns and recipe_name: linears whose name contains one of fqns "
            "get that recipe, or bf16; a later one wins"),
    INT(RESULT, quantize.linear.mx.num_layers_at_start_in_bf16, INDEX, "0",
        "linears of so many first layers stay in high precision"),
    INT(RESULT, quantize.linear.mx.num_layers_at_end_in_bf16, INDEX, "0",
        "linears of so many last layers stay in high precision"),
    INERT(STRING, quantize.linear.mx.mxfp8_dim1_cast_kernel_choice, "triton",
          "kernels are chosen by the CPU"),
    STRING(RESULT, quantize.grouped_mm.mx.recipe_name, "mxfp8", "recipe of the experts"),
    LIST(RESULT, quantize.grouped_mm.mx.fqns, "",
         "only expert modules whose name contains one of these; none: all"),
    CHOICE(RESULT, quantize.grouped_mm.mx.scale_mode, "floor|ceil|even|rceil", "none",
           "rounding of MX block scales; none: as the recipe's name or quantize.rules say"),
    CHOICE(RESULT, quantize.grouped_mm.mx.groups, "true|upstream", "none",
           "which rows share a scale of a per-tensor recipe; none: as quantize.rules say; true: an "
           "expert's own; upstream: as torchtitan-npu cuts them"),
    CHOICE(RESULT, quantize.grouped_mm.mx.gemm, "auto|exact|fast|aligned", "auto",
           "arithmetic of the products; aligned: the former name of fast"),
    BOOL(RESULT, quantize.grouped_mm.mx.enable_fsdp_low_precision_all_gather, "false",
         "gather weights in 8 bits"),
    CHOICE(COURSE, quantize.grouped_mm.mx.fsdp_low_precision_all_gather_mode,
           "on-demand|all|minimal", "on-demand", "which orientations are gathered"),
    INT(RESULT, quantize.grouped_mm.mx.amax_history_len, COUNT, "16",
        "steps that a delayed recipe looks back"),
    INERT(BOOL, quantize.linear.float8.enable_fsdp_float8_all_gather, "false", no_float8),
    INERT(BOOL, quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp, "false",
          no_float8),
    INERT(STRING, quantize.linear.float8.recipe_name, "none", no_float8),
    INERT(LIST, quantize.linear.float8.filter_fqns, "", no_float8),
    INERT(BOOL, quantize.linear.float8.emulate, "false", no_float8),
    INERT(LIST, quantize.grouped_mm.float8.fqns, "", no_float8),

    INERT(INT, comm.init_timeout_seconds, "300", no_device_comm),
    INERT(INT, comm.train_timeout_seconds, "100", no_device_comm),
    INERT(INT, comm.trace_buf_size, "20000", no_device_comm),
    INERT(STRING, comm.save_traces_folder, "comm_traces", no_device_comm),
    INERT(STRING, comm.save_traces_file_prefix, "rank_", no_device_comm),
    UNSUPPORTED(WORD, comm.mode, "default", "default", "ranks are real processes"),

    INERT(BOOL, memory_estimation.enable, "false", "octet plan shows the memory"),
    INERT(BOOL, memory_estimation.disable_fake_mode, "false", "octet plan shows the memory"),

    UNSUPPORTED(BOOL, fault_tolerance.enable, NULL, "false", "torchft isn't supported"),
    INERT(STRING, fault_tolerance.process_group, "gloo", no_fault_tolerance),
    INERT(INT, fault_tolerance.process_group_timeout_ms, "10000", no_fault_tolerance),
    INERT(INT, fault_tolerance.replica_id, "0", no_fault_tolerance),
    INERT(INT, fault_tolerance.group_size, "0", no_fault_tolerance),
    INERT(INT, fault_tolerance.min_replica_size, "1", no_fault_tolerance),
    UNSUPPORTED(STRING, fault_tolerance.semi_sync_method, NULL, "none",
                "semi-synchronous training isn't supported"),
    INERT(INT, fault_tolerance.sync_steps, "5", no_fault_tolerance),
    INERT(BOOL, fault_tolerance.should_quantize, "false", no_fault_tolerance),
    INERT(INT, fault_tolerance.fragment_sync_delay, "0", no_fault_tolerance),
    INERT(FLOAT, fault_tolerance.fragment_update_alpha, "0.0", no_fault_tolerance),

    UNSUPPORTED(STRING, experimental.custom_import, "", "", "Python can't be imported"),
    UNSUPPORTED(STRING, experimental.custom_args_module, "|" NPU_CONFIG, "",
                "Python can't be imported; the keys of torchtitan-npu are built in"),
};

const oct_schema oct_schema_titan = {keys, OCT_COUNT(keys)};
