/* Jobs in the form of those that torchtitan v0.2.2 and torchtitan-npu ship (train_configs): the
 * same sections and keys, written for this test. Each loads, or gives the one line that says why
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/count.h"
#include "config/job.h"
#include "file_support.h"

/* What every file opens with. */
#define HEAD                                                                                       \
    "[job]\ndump_folder = \"./outputs\"\ndescription = \"a run\"\nprint_config = false\n"          \
    "[profiling]\nenable_profiling = false\nsave_traces_folder = \"profile_trace\"\n"              \
    "profile_freq = 10\nenable_memory_snapshot = false\n"                                          \
    "save_memory_snapshot_folder = \"memory_snapshot\"\n"                                          \
    "[metrics]\nlog_freq = 1\ndisable_color_printing = false\nenable_tensorboard = false\n"        \
    "save_tb_folder = \"tb\"\nenable_wandb = false\n"
#define MODEL(name, flavor, more)                                                                  \
    "[model]\nname = \"" name "\"\nflavor = \"" flavor "\"\n"                                      \
    "hf_assets_path = \"./assets/hf/Some-Model\"\n" more
#define OPTIMIZER "[optimizer]\nname = \"AdamW\"\nlr = 3e-4\neps = 1e-8\n"
#define WARMUP "[lr_scheduler]\nwarmup_steps = 200\n"
#define DECAY WARMUP "decay_ratio = 0.8\ndecay_type = \"cosine\"\nmin_lr_factor = 0.1\n"
#define TRAINING(more)                                                                             \
    "[training]\nlocal_batch_size = 4\nseq_len = 4096\nmax_norm = 1.0\nsteps = 10_000\n"           \
    "dataset = \"c4\"\n" more
#define PARALLEL(tp, more)                                                                         \
    "[parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1\n"         \
    "fsdp_reshard_after_forward = \"default\"\ntensor_parallel_degree = " tp "\n"                  \
    "enable_async_tensor_parallel = false\npipeline_parallel_degree = 1\n"                         \
    "context_parallel_degree = 1\n" more
#define EXPERTS                                                                                    \
    "pipeline_parallel_schedule = \"Interleaved1F1B\"\nexpert_parallel_degree = 1\n"               \
    "expert_tensor_parallel_degree = 1\n"
#define CHECKPOINT(more)                                                                           \
    "[checkpoint]\nenable = false\nfolder = \"checkpoint\"\ninterval = 500\n"                      \
    "last_save_model_only = true\nexport_dtype = \"float32\"\nasync_mode = \"disabled\"\n" more
#define RECOMPUTE(mode) "[activation_checkpoint]\nmode = \"" mode "\"\nselective_ac_option = 'op'\n"
#define COMPILE "[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n"
#define FLOAT8                                                                                     \
    "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = false\n"                            \
    "precompute_float8_dynamic_scale_for_fsdp = false\nfilter_fqns = [\"output\"]\n"               \
    "[quantize.grouped_mm.float8]\nfqns = [\"experts\"]\n"
#define VALIDATION                                                                                 \
    "[validation]\nenable = false\ndataset = \"c4_validation\"\nfreq = 500\nsteps = 1200\n"
#define TAIL CHECKPOINT("") COMPILE RECOMPUTE("selective") FLOAT8 VALIDATION
#define NPU_MODULE "[job]\ncustom_config_module = \"torchtitan_npu.config.custom_config\"\n"
#define NPU_PROFILING                                                                              \
    "[profiling]\nprofile_ranks = [0]\nprofile_step_start = 5\nprofile_step_end = 6\n"             \
    "profile_record_shapes = true\nprofile_with_memory = false\nprofile_with_stack = false\n"      \
    "enable_online_parse = false\n"
#define NPU_OPTIMIZER OPTIMIZER "swap_optimizer = true\nswap_optimizer_times = 16\n"
#define NPU_CONVERTERS                                                                             \
    "converters = [\"npu_rms_norm\", \"npu_permute\", \"npu_gmm\", \"npu_rope\"]\n"
#define COMM "[comm]\ntrace_buf_size = 0\n"
#define EVERY_MX                                                                                   \
    "recipe_name = \"mxfp8\"\nscale_mode = \"rceil\"\ngemm = \"auto\"\namax_history_len = 16\n"    \
    "enable_fsdp_low_precision_all_gather = true\n"                                                \
    "fsdp_low_precision_all_gather_mode = \"minimal\"\n"

typedef struct shipped_job {
    const char *name, *text, *message; /* NULL: it loads */
    const char *others;                /* NULL: nothing more is wrong */
} shipped_job;

#define NAME_ERROR(line, name)                                                                     \
    "job.toml:" line ": model.name: the model isn't supported; expected one of llama3, qwen3, "    \
    "deepseek_v3; got \"" name "\""
#define TP_ERROR(line, got)                                                                        \
    "job.toml:" line ": parallelism.tensor_parallel_degree: tensor parallelism isn't supported; "  \
    "expected 1; got " got

#define FLOAT8_ERROR                                                                               \
    "job.toml:21: model.converters: float8 converters aren't supported; expected "                 \
    "quantize.linear.mx or quantize.grouped_mm.mx with recipe_name = "                             \
    "\"dynamic_per_tensor_E4M3_E4M3_E4M3\", the closest; got quantize.linear.float8"

static const shipped_job jobs[] = {
    {"llama3 debug",
     HEAD MODEL("llama3", "debugmodel", "converters = []\n") OPTIMIZER
     "[lr_scheduler]\nwarmup_steps = 2\ndecay_ratio = 0.8\ndecay_type = \"linear\"\n"
     "min_lr_factor = 0.0\n" TRAINING("") PARALLEL("1", "") TAIL,
     NULL},
    {"llama3 8b",
     HEAD MODEL("llama3", "8B", "") OPTIMIZER WARMUP TRAINING("") PARALLEL("1", "") TAIL, NULL},
    {"llama3 70b",
     HEAD MODEL("llama3", "70B", "") OPTIMIZER WARMUP TRAINING("") PARALLEL("8", "") TAIL,
     TP_ERROR("37", "8")},
    {"llama3 405b",
     HEAD MODEL("llama3", "405B", "converters = [\"quantize.linear.float8\"]\n")
         OPTIMIZER WARMUP TRAINING("") PARALLEL("8", "") TAIL,
     FLOAT8_ERROR, TP_ERROR("38", "8")},
    {"llama3 with float8 linears",
     HEAD MODEL("llama3", "8B", "converters = [\"quantize.linear.float8\"]\n")
         OPTIMIZER WARMUP TRAINING("") PARALLEL("1", "") TAIL,
     FLOAT8_ERROR},
    {"qwen3 dense",
     HEAD MODEL("qwen3", "0.6B", "") OPTIMIZER WARMUP TRAINING("") PARALLEL("1", "") TAIL, NULL},
    {"qwen3 experts",
     HEAD MODEL("qwen3", "debugmodel_moe", "") OPTIMIZER WARMUP TRAINING("") PARALLEL("1", EXPERTS)
         TAIL,
     NULL},
    {"deepseek_v3 debug",
     HEAD MODEL("deepseek_v3", "debugmodel", "") OPTIMIZER DECAY TRAINING("") PARALLEL("1", EXPERTS)
         TAIL "[debug]\nseed = 0\ndeterministic = true\n",
     NULL},
    {"deepseek_v3 16b",
     HEAD MODEL("deepseek_v3", "16B", "") OPTIMIZER DECAY TRAINING("") PARALLEL(
         "1", "pipeline_parallel_schedule = \"Interleaved1F1B\"\nexpert_parallel_degree = 8\n")
         TAIL,
     NULL},
    {"deepseek_v3 671b",
     HEAD MODEL("deepseek_v3", "671B", "") OPTIMIZER DECAY TRAINING("") PARALLEL("1", EXPERTS)
         CHECKPOINT("initial_load_in_hf = true\ninitial_load_path = \"/models/V3\"\n")
             RECOMPUTE("full") COMPILE FLOAT8,
     NULL},
    {"a quantized Hugging Face start",
     HEAD MODEL("deepseek_v3", "671B", "") CHECKPOINT("initial_load_in_hf_quantized = true\n"),
     "job.toml:28: checkpoint.initial_load_in_hf_quantized: has an effect only with a Hugging Face "
     "folder; expected checkpoint.initial_load_in_hf = true beside it; got true"},
    {"a quantized Hugging Face start, as published",
     HEAD MODEL("deepseek_v3", "671B", "")
         CHECKPOINT("initial_load_in_hf = true\ninitial_load_in_hf_quantized = true\n"
                    "initial_load_path = \"/models/V3\"\n"),
     NULL},
    {"mxfp8 of torchao",
     MODEL("llama3", "8B",
           "converters = [\"quantize.linear.mx\"]\n") "[quantize.linear.mx]\nmxfp8_dim1_cast_"
                                                      "kernel_choice = \"cuda\"\n"
                                                      "recipe_name = \"mxfp8_cublas\"\nfilter_fqns "
                                                      "= [\"output\"]\n"
                                                      "[quantize.grouped_mm.mx]\nrecipe_name = "
                                                      "\"mxfp8\"\nfqns = \"experts\"\n",
     NULL},
    {"flux",
     HEAD MODEL("flux", "flux-debug", "") "[encoder]\nt5_encoder = \"google/t5-v1_1-base\"\n"
                                          "[training]\nclassifier_free_guidance_prob = 0.1\n",
     NAME_ERROR("18", "flux"),
     "job.toml:21: encoder: unknown section; `octet train --help-all` lists the known ones\n"
     "job.toml:24: training.classifier_free_guidance_prob: unknown key; `octet train --help-all` "
     "lists "
     "the known ones"},
    {"llama4", HEAD MODEL("llama4", "debugmodel", "") OPTIMIZER, NAME_ERROR("18", "llama4")},
    {"gpt_oss", HEAD MODEL("gpt_oss", "20b", "") OPTIMIZER, NAME_ERROR("18", "gpt_oss")},
    {"simple_fsdp", HEAD MODEL("simple_fsdp.llama3", "8B", "") OPTIMIZER,
     NAME_ERROR("18", "simple_fsdp.llama3")},
    {"vision", MODEL("vlm", "debugmodel", "") "[data]\nmax_images_per_batch = 10\n",
     NAME_ERROR("2", "vlm"),
     "job.toml:5: data: unknown section; `octet train --help-all` lists the known ones"},
    {"a module of its own",
     "[job]\ncustom_config_module = \"torchtitan.experiments.other.job_config\"\n"
     "[hf_transformers]\nmodel = \"meta-llama/Llama-3.2-1B\"\n",
     "job.toml:2: job.custom_config_module: Python can't be imported; the keys of torchtitan-npu "
     "are built in; expected one of \"\", torchtitan_npu.config.custom_config; got "
     "\"torchtitan.experiments.other.job_config\"",
     "job.toml:3: hf_transformers: unknown section; `octet train --help-all` lists the known ones"},
    {"npu: deepseek_v3 debug",
     NPU_MODULE MODEL("deepseek_v3", "671B_debug", NPU_CONVERTERS) OPTIMIZER DECAY TRAINING("")
         PARALLEL("1", EXPERTS "enable_custom_context_parallel = true\n") TAIL COMM,
     NULL},
    {"npu: deepseek_v3 on 128 dies",
     NPU_MODULE NPU_PROFILING MODEL("deepseek_v3", "671B_debug_128die", NPU_CONVERTERS)
         NPU_OPTIMIZER DECAY TRAINING("dataset_path = \"./wiki\"\ntorch_npu_memory_ratio = 1.0\n")
             PARALLEL("4", EXPERTS) TAIL COMM "[debug]\nmoe_force_load_balance = false\n",
     TP_ERROR("39", "4")},
    {"npu: llama3 with graphs",
     NPU_MODULE MODEL("llama3", "8B",
                      "converters = [\"npu_rms_norm\", \"npu_rope\", \"npu_fusion_attention\"]\n")
         NPU_OPTIMIZER WARMUP TRAINING("") PARALLEL("1", "") CHECKPOINT("") COMPILE
     "backend = \"npugraphs\"\n" RECOMPUTE("selective") FLOAT8 VALIDATION COMM,
     NULL},
    {"npu: deepseek_v32", NPU_MODULE MODEL("deepseek_v32", "671B_debug", NPU_CONVERTERS),
     NAME_ERROR("4", "deepseek_v32")},
    {"npu: deepseek_v4 with Muon",
     NPU_MODULE MODEL("deepseek_v4", "285B_debug_4_layers",
                      "converters = [\"deepseek_v4_sfa\"]\n") "[optimizer]\nname = "
                                                              "\"Muon\"\nmuon_ns_steps = 10\n",
     NAME_ERROR("4", "deepseek_v4"),
     "job.toml:7: model.converters: an unknown converter; expected npu_gmm, quantize.linear.mx, "
     "quantize.grouped_mm.mx or one of torchtitan-npu's fused kernels; got deepseek_v4_sfa\n"
     "job.toml:9: optimizer.name: Muon isn't supported; expected one of AdamW, Adam; got \"Muon\""},
    {"npu: Muon",
     NPU_MODULE MODEL(
         "deepseek_v3", "671B_debug",
         NPU_CONVERTERS) "[optimizer]\nname = \"Muon\"\nlr = 2.2e-4\nmuon_momentum = 0.95\n"
                         "muon_enable_nesterov = true\nmuon_ns_steps = 10\nmuon_adjust_lr_fn = "
                         "\"match_rms_adamw\"\n"
                         "muon_hybrid_ns = true\nswap_merge_buckets = 4\n",
     "job.toml:9: optimizer.name: Muon isn't supported; expected one of AdamW, Adam; got \"Muon\""},
    {"npu: virtual optimizer",
     NPU_MODULE OPTIMIZER "virtual_optimizer = true\nvirtual_optimizer_size = \"all\"\n", NULL},
    {"npu: virtual optimizer by stage",
     NPU_MODULE OPTIMIZER "virtual_optimizer = true\nvirtual_optimizer_size = [1, 2.5]\n", NULL},
    {"npu: multi-token prediction", NPU_MODULE TRAINING("num_mtp_modules = 1\n"),
     "job.toml:9: training.num_mtp_modules: multi-token prediction isn't supported; expected 0; "
     "got 1"},
    {"npu: the guide's linears",
     NPU_MODULE "[model]\nconverters = [\"quantize.linear.mx\"]\n"
                "[quantize.linear.mx]\nrecipe_name = \"mxfp8\"\n"
                "filter_fqns = [\"output\", \"router.gate\"]\n",
     NULL},
    {"npu: the guide's linears and experts",
     NPU_MODULE
     "[model]\nconverters = [\"npu_gmm\", \"quantize.linear.mx\", \"quantize.grouped_mm.mx\"]\n"
     "[quantize.linear.mx]\nrecipe_name = \"hif8\"\n"
     "filter_fqns = [\"output\", \"router.gate\"]\n"
     "[quantize.grouped_mm.mx]\nrecipe_name = \"hif8\"\n",
     NULL},
    {"every quantize key", "[quantize.linear.mx]\n" EVERY_MX "[quantize.grouped_mm.mx]\n" EVERY_MX,
     NULL},
    {"fault tolerance off",
     "[fault_tolerance]\nenable = false\nsync_steps = 10\n"
     "semi_sync_method = \"\"\n[experimental]\ncustom_import = \"\"\n"
     "[memory_estimation]\nenable = false\n",
     NULL},
    {"semi-synchronous training", "[fault_tolerance]\nsemi_sync_method = \"diloco\"\n",
     "job.toml:2: fault_tolerance.semi_sync_method: semi-synchronous training isn't supported; "
     "expected none; got \"diloco\""},
    {"a seed checkpoint", "[checkpoint]\ncreate_seed_checkpoint = true\n",
     "job.toml:2: checkpoint.create_seed_checkpoint: the same seed gives the same weights on any "
     "number of ranks; expected false; got true"},
    {"loader processes",
     "[training.dataloader]\nnum_workers = 4\npin_memory = true\n"
     "persistent_workers = true\nprefetch_factor = 2\n",
     NULL},
};

static void given_a_job_in_the_form_of_each_shipped_one_it_loads_or_says_why(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        oct_job job;
        oct_error err = {0};
        put_text("job.toml", jobs[i].text);
        oct_status status = oct_job_load("job.toml", NULL, 0, &job, &err);
        bool good = status == (jobs[i].message ? OCT_INVALID : OCT_OK) &&
                    (!jobs[i].message || strcmp(err.message, jobs[i].message) == 0) &&
                    strcmp(job.others ? job.others : "", jobs[i].others ? jobs[i].others : "") == 0;
        if (!good)
            print_error("%s: %s\n%s\n", jobs[i].name, status ? err.message : "it loaded",
                        job.others ? job.others : "");
        n_wrong += !good;
        oct_job_free(&job);
    }
    assert_int_equal(n_wrong, 0);
}

static void given_a_refused_allocation_anywhere_loading_fails_cleanly(void **state) {
    (void)state;
    const char *overrides[] = {"--training.steps=3", "--model.args.dim=64",
                               "--quantize.linear.mx.filter_fqns=a,b"};
    put_text("job.toml", "[training]\nseq_len = 8\n[model]\nconverters = [\"quantize.linear.mx\"]\n"
                         "[model.args]\nn_layers = 2\n");
    size_t before = oct_alloc_live_bytes();
    oct_status status = OCT_NO_MEMORY;
    for (int64_t n = 1; status; n++) {
        oct_job job;
        oct_error err = {0};
        oct_alloc_fail_at(n);
        status = oct_job_load("job.toml", overrides, 3, &job, &err);
        oct_alloc_fail_at(0);
        assert_true(!status || status == OCT_NO_MEMORY);
        oct_job_free(&job);
        assert_int_equal(oct_alloc_live_bytes(), before);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_job_in_the_form_of_each_shipped_one_it_loads_or_says_why),
        cmocka_unit_test(given_a_refused_allocation_anywhere_loading_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
