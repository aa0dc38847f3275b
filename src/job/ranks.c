/* The processes of a run: see ranks.h. */
#include "job/ranks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/log.h"
#include "config/together.h"
#include "job/setup.h"

static oct_status check_expert_degree(const oct_job *job, int n_shards, oct_error *err) {
    static const char key[] = "parallelism.expert_parallel_degree";
    int64_t degree = job->parallelism.expert_parallel_degree;
    if (degree <= n_shards && n_shards % degree == 0)
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "%s: expected a divisor of the number of processes that share one copy of "
                    "the model, %d; got %" PRId64,
                    oct_job_at(job, key), n_shards, degree);
}

/* A dense model in a job that quantizes experts trains; what the command line says of how it should
 * quantize them would do nothing. */
static oct_status check_expert_options(const oct_job *job, const oct_model_args *args,
                                       oct_together *together) {
    static const char section[] = "quantize.grouped_mm.mx.";
    oct_job_effect effect;
    oct_status status = OCT_OK;
    const char *key;
    for (size_t i = 0; !status && !args->num_experts && (key = oct_job_key(job, i, &effect)); i++) {
        oct_error cause = {0};
        if (strncmp(key, section, sizeof section - 1) != 0 || !oct_job_asks_for(job, key))
            continue;
        status = oct_fail(&cause, OCT_INVALID,
                          "%s: the model has no experts to quantize; expected nothing of them",
                          oct_job_at(job, key));
        status = oct_together_add(together, status, &cause);
    }
    return status;
}

oct_status oct_ranks_check_experts(const oct_job *job, const oct_model_args *args, oct_error *err) {
    static const char key[] = "parallelism.expert_parallel_degree";
    int64_t degree = job->parallelism.expert_parallel_degree;
    if (degree > 1 && args->num_experts == 0)
        return oct_fail(err, OCT_INVALID, "%s: the model has no experts; expected 1; got %" PRId64,
                        oct_job_at(job, key), degree);
    if (degree > 1 && args->num_experts % degree != 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: expected a divisor of the number of experts, %" PRId64
                        "; got %" PRId64,
                        oct_job_at(job, key), args->num_experts, degree);
    return OCT_OK;
}

/* How `n_ranks` processes share the work as [parallelism] says, and how many groups they make.
 * OCT_INVALID: the job is for another number of them, or its degrees don't divide. */
static oct_status share_work(const oct_job *job, int n_ranks, oct_sharding *sharding,
                             int *n_replicas, oct_error *err) {
    int64_t replicate = job->parallelism.data_parallel_replicate_degree;
    int64_t shard = job->parallelism.data_parallel_shard_degree;
    const char *key = replicate > 1 ? "parallelism.data_parallel_replicate_degree"
                                    : "parallelism.data_parallel_shard_degree";
    int64_t needed = replicate;
    if (shard > 0 && !oct_mul_i64(replicate, shard, &needed))
        needed = INT64_MAX;
    if (shard > 0 && needed != n_ranks)
        return oct_fail(err, OCT_INVALID,
                        "%s: the job is for %" PRId64
                        " processes (replicate x shard degree: %" PRId64 " x %" PRId64
                        "); expected as many as run, %d",
                        oct_job_at(job, key), needed, replicate, shard, n_ranks);
    if (n_ranks % replicate != 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: expected a divisor of the number of processes, %d; got %" PRId64,
                        oct_job_at(job, key), n_ranks, replicate);
    *n_replicas = (int)replicate;
    oct_status status = check_expert_degree(job, n_ranks / (int)replicate, err);
    if (status)
        return status;
    *sharding = (oct_sharding){.n_ranks = n_ranks / (int)replicate,
                               .expert_degree = (int)job->parallelism.expert_parallel_degree};
    return OCT_OK;
}

static oct_status check_tokens(const oct_job *job, oct_error *err) {
    int64_t n;
    if (oct_mul_i64(job->training.local_batch_size, job->training.seq_len, &n) && n <= INT32_MAX)
        return OCT_OK;
    static const char *const keys[] = {"training.seq_len", "training.local_batch_size"};
    return oct_fail(err, OCT_INVALID, "%s: a batch of as many tokens is too large",
                    oct_job_at(job, oct_job_blame(job, keys, OCT_COUNT(keys))));
}

/* FSDP2 reduces in reduce_dtype, or in that of the gradients, which is param_dtype's. octet rounds
 * a micro-batch's gradient to that and sums in fp32, which is the same on one rank alone. */
static oct_status check_reduction(const oct_job *job, int n_ranks, oct_error *err) {
    static const char key[] = "parallel.fsdp_plan.reduce_dtype";
    const bool said = job->training.reduce_dtype != OCT_JOB_UNSAID;
    const bool half = job->training.mixed_precision_param == OCT_JOB_BFLOAT16;
    const bool bf16 = said ? job->training.reduce_dtype == OCT_JOB_BFLOAT16 : half;
    if (job->form != OCT_JOB_MINDSPEED || !bf16 || (half && n_ranks == 1))
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "%s: gradients would be summed in bf16, which isn't supported; expected fp32; "
                    "got %s",
                    oct_job_at(job, key), said ? "bf16" : "none, which is that of param_dtype");
}

void oct_ranks_log_framework(const oct_job *job, int n_ranks) {
    oct_sharding sharding = {0};
    oct_error ignored = {0};
    int n_replicas;
    if (share_work(job, n_ranks, &sharding, &n_replicas, &ignored) != OCT_OK)
        return;
    if (oct_job_framework_drops_masters(job, sharding.n_ranks))
        oct_log_warning("Masters are fp32; MindSpeed MM, where one rank holds the model and "
                        "init_model_with_meta_device is off, casts the parameters themselves to "
                        "bf16 and keeps none");
}

static const oct_gather_mode gather_modes[] = {[OCT_JOB_GATHER_ON_DEMAND] = OCT_GATHER_ON_DEMAND,
                                               [OCT_JOB_GATHER_ALL] = OCT_GATHER_ALL,
                                               [OCT_JOB_GATHER_MINIMAL] = OCT_GATHER_MINIMAL};

/* Of the two modes the one that was written last is to blame: the command line's. */
static oct_status fail_modes(const oct_job *job, oct_error *err) {
    static const char *const keys[] = {"quantize.grouped_mm.mx.fsdp_low_precision_all_gather_mode",
                                       "quantize.linear.mx.fsdp_low_precision_all_gather_mode"};
    static const char *const names[] = {[OCT_JOB_GATHER_ON_DEMAND] = "on-demand",
                                        [OCT_JOB_GATHER_ALL] = "all",
                                        [OCT_JOB_GATHER_MINIMAL] = "minimal"};
    const char *modes[] = {names[job->quantize.grouped_mm.mx.fsdp_low_precision_all_gather_mode],
                           names[job->quantize.linear.mx.fsdp_low_precision_all_gather_mode]};
    int blamed = oct_job_blame(job, keys, 2) == keys[1];
    return oct_fail(err, OCT_INVALID,
                    "%s: a layer is gathered as one; expected '%s' as in %s; got '%s'",
                    oct_job_at(job, keys[blamed]), modes[!blamed], oct_job_at(job, keys[!blamed]),
                    modes[blamed]);
}

/* What [parallelism] and the quantization tables say of gathers. A recompute turns on-demand into
 * all: *turned tells. OCT_INVALID: the tables disagree. */
static oct_status read_gathers(const oct_job *job, oct_fsdp_config *config, bool *turned,
                               oct_error *err) {
    const oct_job_mx *linear = &job->quantize.linear.mx, *experts = &job->quantize.grouped_mm.mx;
    *turned = false;
    *config = (oct_fsdp_config){
        .activation = oct_setup_activation(job),
        .reshard = job->parallelism.fsdp_reshard_after_forward == OCT_JOB_RESHARD_NEVER
                       ? OCT_RESHARD_NEVER
                       : OCT_RESHARD_AFTER_FORWARD,
        .low_precision_linears = linear->enable_fsdp_low_precision_all_gather,
        .low_precision_experts = experts->enable_fsdp_low_precision_all_gather};
    bool both = config->low_precision_linears && config->low_precision_experts;
    const oct_job_gather mode = config->low_precision_linears
                                    ? linear->fsdp_low_precision_all_gather_mode
                                    : experts->fsdp_low_precision_all_gather_mode;
    if (both && mode != experts->fsdp_low_precision_all_gather_mode)
        return fail_modes(job, err);
    config->mode = gather_modes[mode];
    *turned = config->mode == OCT_GATHER_ON_DEMAND &&
              job->activation_checkpoint.mode != OCT_JOB_RECOMPUTE_NONE &&
              (config->low_precision_linears || config->low_precision_experts);
    if (*turned)
        config->mode = OCT_GATHER_ALL;
    return OCT_OK;
}

oct_status oct_ranks_check_fit(const oct_job *job, int n_ranks, oct_error *err) {
    oct_together together = {.job = job};
    oct_error cause = {0};
    oct_model_args args;
    oct_sharding sharding;
    oct_fsdp_config config;
    int n_replicas;
    int64_t n;
    bool turned;
    oct_status status = oct_setup_model_args(job, &args, &cause);
    bool has_model = !status;
    status = oct_together_add(&together, status, &cause);
    if (!status)
        status = oct_setup_check_patterns(job, &together);
    if (!status)
        status = oct_together_add(&together,
                                  share_work(job, n_ranks, &sharding, &n_replicas, &cause), &cause);
    if (!status && has_model)
        status = oct_together_add(&together, oct_ranks_check_experts(job, &args, &cause), &cause);
    if (!status && has_model)
        status = check_expert_options(job, &args, &together);
    if (!status)
        status =
            oct_together_add(&together, oct_ranks_micro_batches(job, n_ranks, &n, &cause), &cause);
    if (!status)
        status = oct_together_add(&together, check_reduction(job, n_ranks, &cause), &cause);
    if (!status)
        status = oct_together_add(&together, check_tokens(job, &cause), &cause);
    if (!status)
        status = oct_together_add(&together, read_gathers(job, &config, &turned, &cause), &cause);
    if (status)
        return oct_fail(err, status, "%s", cause.message);
    return oct_together_conclude(&together, err);
}

oct_status oct_ranks_micro_batches(const oct_job *job, int n_ranks, int64_t *n, oct_error *err) {
    static const char *const keys[] = {"training.global_batch_size", "training.local_batch_size"};
    int64_t global = job->training.global_batch_size, per_round;
    if (!oct_mul_i64(job->training.local_batch_size, n_ranks, &per_round))
        return oct_fail(err, OCT_INVALID, "%s: too large",
                        oct_job_at(job, "training.local_batch_size"));
    int64_t steps = job->training.gradient_accumulation_steps;
    *n = steps > 0 ? steps : global < 0 ? 1 : global / per_round;
    if (global > 0 && global % per_round != 0)
        return oct_fail(
            err, OCT_INVALID,
            "%s: expected a global batch that is a multiple of local_batch_size x ranks = %" PRId64
            "; got %" PRId64,
            oct_job_at(job, oct_job_blame(job, keys, OCT_COUNT(keys))), per_round, global);
    if (global > 0 && global / per_round != *n)
        return oct_fail(
            err, OCT_INVALID,
            "%s: expected local_batch_size x gradient_accumulation_steps x ranks = %" PRId64
            " x %" PRId64 " x %d; got %" PRId64,
            oct_job_at(job, keys[0]), job->training.local_batch_size, *n, n_ranks, global);
    return OCT_OK;
}

/* Whether counts of bytes may pass 64 bits. Far above what a step moves: a parameter is gathered
 * thrice at most and reduced once, 4 bytes or fewer each; a layer's tokens move eight times. */
static bool overflows_counts(const oct_model *model, const oct_wire *wire, int n_replicas,
                             int64_t n_tokens) {
    const oct_model_args *args = oct_model_get_args(model);
    double weights = 16.0 * (double)oct_model_n_parameters(model) * n_replicas;
    double rows = (double)n_tokens * (double)args->top_k;
    double tokens = 32.0 * rows * (double)args->dim * (double)args->n_layers;
    return (weights + tokens) * wire->n_ranks * (double)wire->n_passes >= 0x1p62;
}

static double ratio(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : NAN;
}

oct_status oct_ranks_plan_wire(const oct_job *job, oct_model *model, const oct_plan *plan,
                               int n_ranks, oct_wire *wire, oct_error *err) {
    int n_replicas = 1;
    oct_sharding sharding;
    oct_fsdp_config config;
    oct_fsdp_traffic t;
    int64_t n_tokens;
    *wire = (oct_wire){.n_ranks = n_ranks};
    oct_status status = share_work(job, n_ranks, &sharding, &n_replicas, err);
    if (!status)
        status = oct_ranks_check_experts(job, oct_model_get_args(model), err);
    if (!status)
        status = oct_ranks_micro_batches(job, n_ranks, &wire->n_passes, err);
    if (!status)
        status = read_gathers(job, &config, &wire->turned, err);
    if (status)
        return status;
    status = check_tokens(job, err);
    if (status)
        return status;
    n_tokens = job->training.local_batch_size * job->training.seq_len;
    if (overflows_counts(model, wire, n_replicas, n_tokens))
        return oct_fail(err, OCT_INVALID,
                        "%s: %" PRId64
                        " micro-batches on %d processes move more bytes than 64 bits count",
                        oct_job_at(job, "training.global_batch_size"), wire->n_passes, n_ranks);
    if (oct_fsdp_plan_traffic(model, plan, &config, &sharding, n_replicas, n_tokens, &t))
        return oct_fail_memory(err);
    wire->expert_degree = sharding.expert_degree;
    wire->all_to_all = wire->n_passes * t.all_to_all;
    wire->gather_8bit = wire->n_passes * t.gather_8bit;
    wire->gather_high = wire->n_passes * t.gather_high;
    wire->reduce_scatter = wire->n_passes * t.reduce_scatter + t.replicate;
    wire->converted_ratio = ratio(t.converted, t.converted_in_bf16);
    wire->whole_ratio = ratio(t.gather_8bit + t.gather_high, t.all_in_bf16);
    return OCT_OK;
}

static oct_status split(oct_ranks *ranks, const oct_sharding *sharding, int n_replicas) {
    oct_fsdp_comms *comms = &ranks->comms;
    int n_shards = sharding->n_ranks;
    oct_status status = oct_comm_split(ranks->world, ranks->rank / n_shards, &comms->shard);
    if (!status && n_replicas > 1)
        status = oct_comm_split(ranks->world, ranks->rank % n_shards, &comms->replicate);
    if (!status && sharding->expert_degree > 1)
        status = oct_fsdp_split_experts(comms, sharding->expert_degree);
    return status;
}

oct_status oct_ranks_open(oct_comm *world, const oct_job *job, oct_ranks *ranks, oct_error *err) {
    int n_replicas;
    oct_sharding sharding;
    *ranks = (oct_ranks){.world = world};
    if (!world && oct_comm_create_serial(&ranks->own) != OCT_OK)
        return oct_fail_memory(err);
    if (!world)
        ranks->world = ranks->own;
    ranks->rank = oct_comm_rank(ranks->world);
    ranks->n_ranks = oct_comm_size(ranks->world);
    oct_status status = oct_ranks_check_job(ranks->world, job, err);
    if (status)
        return status;
    status = oct_ranks_check_fit(job, ranks->n_ranks, err);
    if (!status)
        status = share_work(job, ranks->n_ranks, &sharding, &n_replicas, err);
    status = oct_ranks_agree(ranks, status, err);
    if (status || ranks->n_ranks == 1)
        return status;
    status = split(ranks, &sharding, n_replicas);
    return status ? oct_fail(err, status, "the processes can't be grouped") : OCT_OK;
}

void oct_ranks_close(oct_ranks *ranks) {
    oct_fsdp_destroy(ranks->fsdp);
    oct_comm_destroy(ranks->comms.experts);
    oct_comm_destroy(ranks->comms.team);
    oct_comm_destroy(ranks->comms.replicate);
    oct_comm_destroy(ranks->comms.shard);
    oct_comm_destroy(ranks->own);
    *ranks = (oct_ranks){0};
}

oct_status oct_ranks_shard(oct_ranks *ranks, const oct_job *job, oct_model *model,
                           const oct_plan *plan, oct_step *step, oct_error *err) {
    const oct_fsdp_comms *comms = &ranks->comms;
    oct_fsdp_config config;
    bool turned;
    if (ranks->n_ranks == 1)
        return OCT_OK;
    const oct_sharding sharding = oct_fsdp_sharding(comms);
    oct_status status = read_gathers(job, &config, &turned, err);
    if (status)
        return status;
    if (turned)
        oct_log_info("Activation checkpointing is on: fsdp_low_precision_all_gather_mode "
                     "'on-demand' becomes 'all'");
    if (oct_fsdp_shard(model, &sharding, oct_comm_rank(comms->shard)) ||
        oct_fsdp_create(model, plan, &config, comms, &ranks->fsdp))
        return oct_fail_memory(err);
    oct_fsdp_attach(ranks->fsdp, step);
    oct_log_info("Sharded over %d processes, %d of such groups", sharding.n_ranks,
                 comms->replicate ? oct_comm_size(comms->replicate) : 1);
    if (comms->team)
        oct_log_info("Experts spread over teams of %d processes, each expert sharded over %d",
                     sharding.expert_degree, sharding.n_ranks / sharding.expert_degree);
    return OCT_OK;
}

static oct_status fail_exchange(oct_status status, oct_error *err) {
    return status ? oct_fail(err, status, "the exchange between processes broke") : OCT_OK;
}

oct_status oct_ranks_sum(const oct_ranks *ranks, double *values, int64_t n, oct_error *err) {
    return fail_exchange(oct_comm_sum_f64(ranks->world, values, n), err);
}

oct_status oct_ranks_sum_shards(const oct_ranks *ranks, double *value, oct_error *err) {
    if (!ranks->comms.shard)
        return OCT_OK;
    return fail_exchange(oct_comm_sum_f64(ranks->comms.shard, value, 1), err);
}

/* Copies the amaxes of all rows to or from one array; returns how many there are. */
static int64_t move_amaxes(const oct_plan *plan, float *to, const float *from) {
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        oct_tensor own = oct_plan_row_amaxes(&plan->rows[i]);
        if (!own.data)
            continue;
        if (to)
            memcpy(to + n, own.data, oct_tensor_bytes(&own));
        if (from)
            memcpy(own.data, from + n, oct_tensor_bytes(&own));
        n += oct_tensor_elements(&own);
    }
    return n;
}

oct_status oct_ranks_reduce_amaxes(const oct_ranks *ranks, const oct_plan *plan, oct_error *err) {
    int64_t n = move_amaxes(plan, NULL, NULL);
    if (n == 0 || ranks->n_ranks == 1)
        return OCT_OK;
    float *all = oct_malloc_array((size_t)n, sizeof *all);
    if (!all)
        return oct_fail_memory(err);
    move_amaxes(plan, all, NULL);
    oct_status status = oct_comm_max_f32(ranks->world, all, n);
    if (!status)
        move_amaxes(plan, NULL, all);
    oct_free(all);
    return fail_exchange(status, err);
}

oct_status oct_ranks_sum_routing(const oct_ranks *ranks, oct_model *model, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(model);
    oct_status status = OCT_OK;
    double *counts = NULL;
    if (ranks->n_ranks == 1 || args->num_experts == 0)
        return OCT_OK;
    int64_t E = args->num_experts, n = args->n_layers * E;
    counts = oct_calloc_array((size_t)n, sizeof *counts);
    if (!counts)
        return oct_fail_memory(err);
    for (int64_t i = 0; i < n; i++) {
        const oct_moe *moe = oct_model_moe(model, i / E);
        counts[i] = moe ? (double)moe->tokens_per_expert[i % E] : 0;
    }
    status = oct_ranks_sum(ranks, counts, n, err);
    for (int64_t i = 0; i < n && !status; i++) {
        oct_moe *moe = oct_model_moe(model, i / E);
        if (moe)
            moe->tokens_per_expert[i % E] = (int64_t)counts[i];
    }
    oct_free(counts);
    return status;
}
