/* A training job: what a user wrote in a torchtitan job file (TOML) or a MindSpeed MM job file
 * (YAML) and on the command line, typed, checked and filled up with defaults.
 *
 * Fields are named as the TOML keys, one sub-struct a section: `[training] seq_len` is
 * `job.training.seq_len`. Defaults are those of torchtitan v0.2.2. Keys that have no effect here
 * or that only their default value is supported of have no field (see schema.h for the table).
 *
 * Invariant: after oct_job_load succeeded every field is inside its documented range, every string
 * that is not said to be optional is non-NULL, and all memory belongs to the job. */
#ifndef OCT_CONFIG_JOB_H
#define OCT_CONFIG_JOB_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "config/value.h"

/* A list of strings; the job owns it. */
typedef struct oct_job_list {
    const char *const *items;
    size_t n;
} oct_job_list;

typedef enum oct_job_form { OCT_JOB_TITAN, OCT_JOB_MINDSPEED } oct_job_form;
typedef enum oct_job_optimizer { OCT_JOB_ADAMW, OCT_JOB_ADAM } oct_job_optimizer;
typedef enum oct_job_decay {
    OCT_JOB_DECAY_LINEAR,
    OCT_JOB_DECAY_SQRT,
    OCT_JOB_DECAY_COSINE,
    OCT_JOB_DECAY_CONSTANT /* YAML only: no decay after the warm-up */
} oct_job_decay;
typedef enum oct_job_dtype { OCT_JOB_FLOAT32, OCT_JOB_BFLOAT16, OCT_JOB_FLOAT16 } oct_job_dtype;
typedef enum oct_job_recompute {
    OCT_JOB_RECOMPUTE_NONE,
    OCT_JOB_RECOMPUTE_SELECTIVE,
    OCT_JOB_RECOMPUTE_FULL
} oct_job_recompute;
typedef enum oct_job_reshard {
    OCT_JOB_RESHARD_DEFAULT,
    OCT_JOB_RESHARD_ALWAYS,
    OCT_JOB_RESHARD_NEVER
} oct_job_reshard;

typedef enum oct_job_gemm {
    OCT_JOB_GEMM_AUTO,
    OCT_JOB_GEMM_EXACT,
    OCT_JOB_GEMM_FAST,
    OCT_JOB_GEMM_ALIGNED /* fast's former name */
} oct_job_gemm;
typedef enum oct_job_gather {
    OCT_JOB_GATHER_ON_DEMAND,
    OCT_JOB_GATHER_ALL,
    OCT_JOB_GATHER_MINIMAL
} oct_job_gather;
typedef enum oct_job_groups { OCT_JOB_GROUPS_TRUE, OCT_JOB_GROUPS_UPSTREAM } oct_job_groups;
/* Of a word whose default is none. */
enum { OCT_JOB_UNSAID = -1 };

/* One of [[quantize.linear.mx.override]]: a recipe for the linears that it names. */
typedef struct oct_job_override {
    oct_job_list fqns; /* at least one, as filter_fqns; of a YAML job globs, as apply_modules */
    const char *recipe_name;
    bool in_high_precision; /* recipe_name is bf16 */
} oct_job_override;
typedef struct oct_job_overrides {
    const oct_job_override *items; /* a later one wins */
    size_t n;
    const struct oct_value *value; /* as it was written; NULL: none */
} oct_job_overrides;

/* The [quantize.linear.mx] and [quantize.grouped_mm.mx] tables. Recipes have names with a grammar
 * of their own (room quant): loading checks it, whoever converts reads it. */
typedef struct oct_job_mx {
    const char *recipe_name;
    oct_job_list filter_fqns; /* linear only: names kept in high precision */
    oct_job_list fqns;        /* grouped_mm only: names converted, [] = all */
    int scale_mode;           /* an oct_scale_mode; unsaid: as quantize.rules say */
    int groups; /* grouped_mm only: an oct_job_groups; unsaid: as quantize.rules say */
    oct_job_gemm gemm;
    bool enable_fsdp_low_precision_all_gather;
    oct_job_gather fsdp_low_precision_all_gather_mode;
    int64_t amax_history_len;            /* >= 1 */
    oct_job_overrides override;          /* linear only, as the two below */
    int64_t num_layers_at_start_in_bf16; /* >= 0 */
    int64_t num_layers_at_end_in_bf16;   /* >= 0 */
} oct_job_mx;

typedef struct oct_job {
    oct_job_form form; /* which kind of file it came from */
    const char *path;  /* that file */

    struct {
        const char *dump_folder;
        const char *description;
        bool print_config;            /* log oct_job_render's text at start */
        const char *save_config_file; /* optional (NULL): write it to dump_folder/this */
        const char *device;           /* "cpu" */
    } job;
    struct {
        int64_t log_freq; /* >= 1 steps */
        bool enable_tensorboard;
        bool disable_color_printing;
        const char *save_tb_folder; /* relative to job.dump_folder */
    } metrics;
    struct {
        const char *name; /* llama3 | qwen3 | deepseek_v3 */
        const char *flavor;
        const char *hf_assets_path; /* folder: tokenizer.json, config.json, weights */
        const char *tokenizer_path; /* optional (NULL): a tokenizer.json or its folder, wins */
        oct_job_list converters;
        bool print_after_conversion;
        const oct_value *args; /* optional (NULL): table of dimensions, each int, double or bool */
        oct_job_list freeze;   /* YAML only: module name patterns that don't train */
    } model;
    struct {
        oct_job_optimizer name;
        double lr;           /* >= 0 */
        double beta1, beta2; /* in [0, 1) */
        double eps;          /* >= 0 */
        double weight_decay; /* >= 0 */
    } optimizer;
    struct {
        int64_t warmup_steps; /* >= 0 */
        int64_t total_steps;  /* >= 1; -1 = training.steps */
        double decay_ratio;   /* in [0, 1]; -1 = none: decay starts right after the warm-up */
        oct_job_decay decay_type;
        double min_lr_factor; /* in [0, 1] */
    } lr_scheduler;
    struct {
        const char *dataset;
        const char *dataset_path;            /* optional (NULL): text, JSONL, packed file, folder */
        int64_t local_batch_size;            /* >= 1 sequences */
        int64_t global_batch_size;           /* >= 1; -1 = local batch x data parallel ranks */
        int64_t gradient_accumulation_steps; /* YAML only: >= 1 micro-batches a step; 0 = follow
                                                global_batch_size */
        int64_t seq_len;                     /* >= 1 tokens */
        double max_norm;                     /* > 0; a clip_grad of 0 in YAML becomes INFINITY */
        int64_t steps;                       /* >= 1 */
        oct_job_dtype mixed_precision_param; /* float32 | bfloat16: dtype of activations */
        int reduce_dtype; /* YAML only: an oct_job_dtype; unsaid: that of activations */
    } training;
    struct {
        int64_t data_parallel_replicate_degree; /* >= 1 */
        int64_t data_parallel_shard_degree;     /* >= 1; -1 = the ranks left over */
        int64_t expert_parallel_degree;         /* >= 1 */
        oct_job_reshard fsdp_reshard_after_forward;
    } parallelism;
    struct {
        bool enable;
        const char *folder;            /* relative to job.dump_folder */
        int64_t interval;              /* >= 1 steps */
        const char *initial_load_path; /* optional (NULL) */
        bool initial_load_model_only;
        bool initial_load_in_hf;
        bool initial_load_in_hf_quantized; /* weights in 8 bits, dequantized */
        bool last_save_model_only;
        bool last_save_in_hf;       /* the last step as a Hugging Face folder beside it */
        oct_job_dtype export_dtype; /* of that, and of weights alone, which float16 isn't for */
        int64_t keep_latest_k;      /* 0 = all, or >= 2 */
        int64_t load_step;          /* >= 0; -1 = the newest valid one */
        bool enable_first_step_checkpoint;
        bool load_only;
    } checkpoint;
    struct {
        oct_job_recompute mode;
        const char *selective_ac_option; /* "op", or a positive integer: every n-th layer */
        oct_job_list apply_modules;      /* YAML only: [] = every layer */
    } activation_checkpoint;
    struct {
        bool enable;
        const char *dataset;
        const char *dataset_path; /* optional (NULL) */
        int64_t local_batch_size; /* >= 1 */
        int64_t seq_len;          /* >= 1 */
        int64_t freq;             /* >= 1 steps */
        int64_t steps;            /* >= 1; -1 = all data */
    } validation;
    struct {
        int64_t seed; /* >= 0; -1 = none given */
        bool moe_force_load_balance;
    } debug;
    struct { /* of a YAML job: as training.quantization_plan says, unless the command line does */
        int64_t stats_freq; /* steps between statistics of what 8 bits lose; 0: none */
        const char *rules;  /* framework, or a name of quant/rules.h */
        struct {
            oct_job_mx mx;
        } linear, grouped_mm;
    } quantize;
    struct { /* YAML only: training.quantization_plan; recipe_name NULL = no quantization */
        const char *recipe_name;
        oct_job_list apply_modules;
        oct_job_list ignored_modules;
        oct_job_list quant_converters; /* quantize.linear.mx, quantize.moe.mx */
        bool enable_fsdp_low_precision_all_gather;
        oct_job_gather fsdp_low_precision_all_gather_mode;
    } quantization_plan;

    struct oct_job_state *state; /* memory, and where each key was set */
    char *others; /* after a failed load: what else is wrong, a line each; NULL: nothing more */
} oct_job;

/* Reads the job file `path` (NULL: named by `--job.config_file` among the overrides) and applies
 * the n overrides, command-line arguments such as `--training.steps=10`, `--training.steps 10`,
 * `--metrics.enable_tensorboard` and `--checkpoint.no-last_save_model_only`. Precedence: command
 * line > file > default. `.yaml` and `.yml` are MindSpeed MM jobs, all else torchtitan's TOML.
 * On success *job is filled and must be given to oct_job_free. On failure it is empty but for
 * `others`, and must be given to oct_job_free too; *err says in one line which key at which place
 * is wrong, `others` what is wrong beside it: a model that isn't here comes first, then all else by
 * line. Reads files, logs nothing; thread-safe on distinct jobs. */
oct_status oct_job_load(const char *path, const char *const *overrides, int n, oct_job *job,
                        oct_error *err);
/* How strictly options are taken. */
typedef enum oct_job_reading {
    OCT_JOB_READ_STRICT, /* an option that can't act in this job is refused */
    OCT_JOB_READ_ARMS,   /* it may be meant for the job in one of several recipes */
    OCT_JOB_READ_ARM,    /* the job in one of them, beside whose options stand its own */
    OCT_JOB_READ_SAVED   /* of a checkpoint: as it was taken when the run began */
} oct_job_reading;
/* The same for a job that is read for another purpose than to run as it is. A `path` of "" is
 * torchtitan's defaults. */
oct_status oct_job_load_as(oct_job_reading reading, const char *path, const char *const *overrides,
                           int n, oct_job *job, oct_error *err);
/* Whether the option, in any of its spellings, sets the key whose name has n bytes. */
bool oct_job_option_sets(const char *option, const char *key, size_t n);
/* Takes `--job.config_file CONFIG` out of the n overrides, for a job whose file is a copy of that;
 * returns how many are left. */
int oct_job_without_config_file(const char **overrides, int n);
/* The torchtitan defaults alone, as an empty file would give. */
oct_status oct_job_default(oct_job *job, oct_error *err);
void oct_job_free(oct_job *job);

/* Where `key` ("training.seq_len"; the spelling of either file form) got its value: "FILE:LINE",
 * "command line" or "default". The text belongs to the job. */
const char *oct_job_where(const oct_job *job, const char *key);
/* The same with the key, as messages begin: "FILE:LINE: training.seq_len", "command line:
 * --training.seq_len", "default: training.seq_len". The text belongs to the job. */
const char *oct_job_at(const oct_job *job, const char *key);
/* Of n keys that are wrong together, the one to name: the first that the command line set, else the
 * first that the file set, else the first. */
const char *oct_job_blame(const oct_job *job, const char *const *keys, size_t n);
/* Whether a run of this job leaves checkpoints. */
static inline bool oct_job_saves(const oct_job *job) {
    return job->checkpoint.enable && !job->checkpoint.load_only;
}

/* True if the user wrote it, in the file or on the command line. */
bool oct_job_is_set(const oct_job *job, const char *key);

/* Whether the command line asks for something by this very key; none and false ask for what is so
 * without it. */
bool oct_job_asks_for(const oct_job *job, const char *key);

/* True for a job of torchtitan-npu: it names that package's configuration module. */
bool oct_job_is_npu(const oct_job *job);
/* The rules that quantize.rules name; "framework" is that of the file's form. */
const struct oct_rules *oct_job_rules(const oct_job *job);
/* Makes these the job's: its quantize.rules, and the default that follows from them. */
void oct_job_set_rules(oct_job *job, const struct oct_rules *rules);

/* True where MindSpeed MM would wrap the model in DDP, which it does when one rank holds a copy and
 * the model isn't made on the meta device: it casts the parameters themselves to param_dtype, so
 * that no fp32 masters are left (mindspeed_mm/fsdp/distributed/fully_shard_parallel.py). */
bool oct_job_framework_drops_masters(const oct_job *job, int n_shards);

/* What the user should know once at start, one log line each: keys accepted without effect, and
 * converters that stand for fused kernels of another device. For the rank that logs. */
void oct_job_log_notes(const oct_job *job);

/* Every effective value, one `section.key = value  # where` a line. Check b->failed after. */
void oct_job_render(const oct_job *job, oct_strbuf *b);

/* The value of `key`, a row with a field, as that line has it; "none" where it holds nothing. */
void oct_job_render_value(const oct_job *job, const char *key, oct_strbuf *b);

/* What a key decides. Whoever compares two jobs asks this: the ranks of one run, which must agree
 * in all but words, and a run that is resumed with a job that isn't the one it began with. */
typedef enum oct_job_effect {
    OCT_EFFECT_OF_TARGET, /* keys that aren't used, or that stand for a TOML key */
    OCT_EFFECT_WORDS,     /* what is logged and written beside checkpoints */
    OCT_EFFECT_COURSE,    /* when, where and for how long things are done. A resumed run is free in
                             it, which the seed belongs to as well: a checkpoint has its own */
    OCT_EFFECT_SOURCE,    /* a file or folder: what is in it decides, not its name */
    OCT_EFFECT_RESULT,    /* the numbers of the steps to come */
    OCT_EFFECT_MODEL /* the model, which is compared argument by argument once it is resolved */
} oct_job_effect;
/* Key number i of those of the job's form that have an effect, and the effect; NULL past the last.
 * oct_job_render_value gives each one's value. */
const char *oct_job_key(const oct_job *job, size_t i, oct_job_effect *effect);
/* What the user calls `key`: a YAML job has names of its own. */
const char *oct_job_name(const oct_job *job, const char *key);

/* The table of all known keys of a file form: key, type, default, meaning. */
typedef enum oct_job_markup { OCT_JOB_TEXT, OCT_JOB_MARKDOWN } oct_job_markup;
void oct_job_render_keys(oct_job_form form, oct_job_markup markup, oct_strbuf *b);
/* The text of one of them. False: the form has no such key. */
bool oct_job_render_key(oct_job_form form, const char *key, oct_strbuf *b);

/* The key of a TOML job that somebody means who writes `name`: another trainer's word for it, its
 * last part alone, or a slip. NULL: none is near. */
const char *oct_job_key_like(const char *name);

#endif
