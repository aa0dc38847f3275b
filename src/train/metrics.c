/* What a run reports: see metrics.h. Sources of names and forms: torchtitan v0.2.2,
 * components/metrics.py. */
#include "train/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/clock.h"
#include "train/run_stats.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* The largest that this process has had so far. */
static double peak_resident_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

double oct_machine_memory_bytes(void) {
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static oct_status open_events(const oct_job *job, int64_t last_step, oct_metrics *metrics,
                              oct_error *err) {
    char name[32];
    time_t now = time(NULL);
    struct tm local;
    oct_status status = OCT_NO_MEMORY;
    localtime_r(&now, &local);
    strftime(name, sizeof name, "%Y%m%d-%H%M", &local);
    char *parent = oct_path_join(job->job.dump_folder, job->metrics.save_tb_folder);
    char *folder = parent ? oct_path_join(parent, name) : NULL;
    if (folder) {
        oct_error cause = {0};
        status = oct_event_file_create(folder, last_step, &metrics->events, &cause);
        if (status)
            oct_fail(err, status, "%s: %s", oct_job_at(job, "metrics.save_tb_folder"),
                     cause.message);
        else
            oct_log_info("TensorBoard logging enabled. Logs will be saved at %s", folder);
    } else {
        oct_fail_memory(err);
    }
    oct_free(folder);
    oct_free(parent);
    return status;
}

oct_status oct_metrics_open(const oct_job *job, int64_t last_step, oct_metrics_dropped dropped,
                            oct_colour colour, double flops_per_token, oct_metrics *metrics,
                            oct_error *err) {
    *metrics = (oct_metrics){.colour = colour,
                             .log_freq = job->metrics.log_freq,
                             .flops_per_token = flops_per_token,
                             .since = oct_clock_s()};
    oct_status status = oct_make_folders(job->job.dump_folder, err);
    if (status)
        return status;
    if (job->metrics
            .enable_tensorboard) /* first: it must not fail when the older metrics are gone */
        status = open_events(job, last_step, metrics, err);
    if (status)
        return status;
    char *path = oct_path_join(job->job.dump_folder, "metrics.jsonl");
    if (!path)
        return oct_fail_memory(err);
    status = oct_metrics_file_open(path, last_step, dropped, &metrics->file, err);
    oct_free(path);
    return status;
}

void oct_metrics_close(oct_metrics *metrics) {
    oct_metrics_file_close(metrics->file);
    oct_event_file_close(metrics->events);
    *metrics = (oct_metrics){0};
}

void oct_append_grouped(oct_strbuf *b, int64_t n) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0)
            oct_strbuf_puts(b, ",");
        oct_strbuf_append(b, &digits[i], 1);
    }
}

/* The escape sequence, or nothing. */
static const char *paint(oct_colour colour, const char *sequence) {
    return colour == OCT_COLOUR_ON ? sequence : "";
}
#define RED "\033[31m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define BLUE "\033[34m"
#define CYAN "\033[36m"
#define ORANGE "\033[38;2;180;60;0m"
#define TURQUOISE "\033[38;2;54;234;195m"
#define RESET "\033[39m"

static void render_memory(const oct_step_line *line, oct_colour colour, oct_strbuf *b) {
    oct_strbuf_printf(b, "%smemory: %5.2fGiB(%.2f%%)  %stps: ", paint(colour, TURQUOISE),
                      line->memory / GIB, 100 * line->memory / line->machine_memory,
                      paint(colour, BLUE));
    oct_append_grouped(b, llround(line->tokens_per_s));
}

void oct_step_line_render(const oct_step_line *line, oct_colour colour, oct_strbuf *b) {
    oct_strbuf_printf(b, "%sstep: %2" PRId64 "  %sloss: %8.5f  %sgrad_norm: %7.4f  ",
                      paint(colour, RED), line->step, paint(colour, GREEN), line->loss,
                      paint(colour, ORANGE), line->grad_norm);
    render_memory(line, colour, b);
    oct_strbuf_printf(b, "  %stflops: %.2f%s", paint(colour, CYAN), line->flops_per_s / 1e12,
                      paint(colour, RESET));
}

static void render_validation(const oct_step_line *line, oct_colour colour, oct_strbuf *b) {
    oct_strbuf_printf(b, "%svalidate step: %2" PRId64 "  %sloss: %8.5f  ", paint(colour, YELLOW),
                      line->step, paint(colour, GREEN), line->loss);
    render_memory(line, colour, b);
    oct_strbuf_puts(b, paint(colour, RESET));
}

static oct_status log_and_free(oct_strbuf *b, oct_error *err) {
    oct_status status = b->failed ? oct_fail_memory(err) : OCT_OK;
    if (!status)
        oct_log_info("%s", b->text);
    oct_strbuf_free(b);
    return status;
}

static oct_status append_line(oct_metrics *metrics, const oct_step_result *result,
                              const oct_validation *validation, int64_t n_tokens_seen,
                              oct_error *err) {
    oct_metric values[18 + 2 * OCT_N_TRAFFIC];
    size_t n = 0;
    values[n++] = oct_metric_real("loss", result->loss);
    values[n++] = oct_metric_real("grad_norm", result->grad_norm);
    values[n++] = oct_metric_real("lr", result->lr);
    values[n++] = oct_metric_integer("n_tokens", result->n_tokens);
    values[n++] = oct_metric_integer("n_tokens_seen", n_tokens_seen);
    values[n++] = oct_metric_real("tps", (double)result->n_tokens / result->duration_s);
    values[n++] = oct_metric_real("duration_s", result->duration_s);
    values[n++] = oct_metric_real("data_s", result->data_s);
    values[n++] = oct_metric_real("memory_gib", peak_resident_bytes() / GIB);
    if (result->expert_load.n_experts > 0) {
        values[n++] =
            oct_metric_real("expert_largest_over_mean", result->expert_load.largest_over_mean);
        values[n++] = oct_metric_real("expert_idle_share", result->expert_load.idle_share);
    }
    if (validation) {
        values[n++] = oct_metric_real("validation_loss", validation->loss);
        values[n++] = oct_metric_integer("validation_tokens", validation->n_tokens);
    }
    static const char *const names[OCT_N_TRAFFIC] = {"bytes_gather_8bit", "bytes_gather_high",
                                                     "bytes_reduce_scatter", "bytes_all_to_all",
                                                     "bytes_other"};
    static const char *const wire_names[OCT_N_TRAFFIC] = {
        "wire_s_gather_8bit", "wire_s_gather_high", "wire_s_reduce_scatter", "wire_s_all_to_all",
        "wire_s_other"};
    for (int i = 0; i < OCT_N_TRAFFIC && result->n_ranks > 1; i++) {
        values[n++] = oct_metric_integer(names[i], result->traffic[i]);
        values[n++] = oct_metric_real(wire_names[i], result->wire_s[i]);
    }
    oct_strbuf tensors = {0}, experts = {0};
    oct_status status = OCT_OK;
    if (result->stats) {
        oct_run_stats_render_tensors(result->stats, &tensors);
        oct_run_stats_render_experts(result->stats, &experts);
        status = tensors.failed || experts.failed ? oct_fail_memory(err) : OCT_OK;
        values[n++] = oct_metric_json("quantized", tensors.text);
        if (result->expert_load.n_experts > 0)
            values[n++] = oct_metric_json("experts", experts.text);
    }
    if (!status)
        status = oct_metrics_file_append(metrics->file, result->step, values, n, err);
    oct_strbuf_free(&tensors);
    oct_strbuf_free(&experts);
    return status;
}

static oct_status append_events(oct_metrics *metrics, const oct_step_result *result,
                                const oct_step_line *line, double elapsed_s, int64_t n_tokens_seen,
                                oct_error *err) {
    if (!metrics->events)
        return OCT_OK;
    double memory_gib = line->memory / GIB;
    double memory_percent = 100 * line->memory / line->machine_memory;
    const oct_metric values[] = {
        oct_metric_real("loss_metrics/global_avg_loss", result->loss),
        oct_metric_real("loss_metrics/global_max_loss", result->loss),
        oct_metric_real("grad_norm", result->grad_norm),
        oct_metric_real("lr", result->lr),
        oct_metric_integer("n_tokens_seen", n_tokens_seen),
        oct_metric_real("throughput(tps)", line->tokens_per_s),
        oct_metric_real("tflops", line->flops_per_s / 1e12),
        oct_metric_real("time_metrics/end_to_end(s)", elapsed_s / (double)metrics->log_freq),
        oct_metric_real("time_metrics/data_loading(s)",
                        metrics->data_s / (double)metrics->log_freq),
        oct_metric_real("time_metrics/data_loading(%)", 100 * metrics->data_s / elapsed_s),
        oct_metric_real("memory/max_active(GiB)", memory_gib),
        oct_metric_real("memory/max_active(%)", memory_percent),
        oct_metric_real("memory/max_reserved(GiB)", memory_gib),
        oct_metric_real("memory/max_reserved(%)", memory_percent),
        oct_metric_real("expert_load/largest_over_mean", result->expert_load.largest_over_mean),
        oct_metric_real("expert_load/idle_share", result->expert_load.idle_share),
    };
    size_t n = OCT_COUNT(values);
    if (result->expert_load.n_experts == 0)
        n -= 2;
    return oct_event_file_append(metrics->events, result->step, values, n, err);
}

/* How even the step's tokens were spread; nothing in a dense model. */
static void log_expert_load(const oct_step_result *result) {
    const oct_expert_load *load = &result->expert_load;
    if (load->n_experts > 0)
        oct_log_info("step: %2" PRId64 "  expert load: largest %.2f of the mean, %.1f%% idle",
                     result->step, load->largest_over_mean, 100 * load->idle_share);
}

/* The log line and the events of the steps since the last ones. */
static oct_status log_step(oct_metrics *metrics, const oct_step_result *result,
                           int64_t n_tokens_seen, double elapsed_s, oct_error *err) {
    oct_strbuf b = {0};
    oct_step_line line = {.step = result->step,
                          .loss = result->loss,
                          .grad_norm = result->grad_norm,
                          .memory = peak_resident_bytes(),
                          .machine_memory = oct_machine_memory_bytes(),
                          .tokens_per_s = (double)metrics->n_tokens / elapsed_s};
    line.flops_per_s = line.tokens_per_s * metrics->flops_per_token;
    oct_status status = append_events(metrics, result, &line, elapsed_s, n_tokens_seen, err);
    if (status)
        return status;
    oct_step_line_render(&line, metrics->colour, &b);
    status = log_and_free(&b, err);
    if (!status)
        log_expert_load(result);
    return status;
}

static oct_status log_validation(oct_metrics *metrics, int64_t step,
                                 const oct_validation *validation, oct_error *err) {
    oct_strbuf b = {0};
    double tokens_per_s = (double)validation->n_tokens / validation->duration_s;
    const oct_step_line line = {.step = step,
                                .loss = validation->loss,
                                .memory = peak_resident_bytes(),
                                .machine_memory = oct_machine_memory_bytes(),
                                .tokens_per_s = tokens_per_s};
    const oct_metric values[] = {
        oct_metric_real("validation_metrics/loss", validation->loss),
        oct_metric_real("validation_metrics/throughput(tps)", tokens_per_s),
        oct_metric_real("validation_metrics/memory/max_active(GiB)", line.memory / GIB),
        oct_metric_real("validation_metrics/memory/max_reserved(GiB)", line.memory / GIB),
    };
    if (metrics->events) {
        oct_status status =
            oct_event_file_append(metrics->events, step, values, OCT_COUNT(values), err);
        if (status)
            return status;
    }
    render_validation(&line, metrics->colour, &b);
    return log_and_free(&b, err);
}

/* "bytes of step 10: gather_8bit 1,234, ..." */
static oct_status log_traffic(const oct_step_result *result, oct_error *err) {
    oct_strbuf b = {0};
    oct_strbuf_printf(&b, "bytes of step %" PRId64 ":", result->step);
    for (int i = 0; i < OCT_N_TRAFFIC; i++) {
        oct_strbuf_printf(&b, "%s %s ", i ? "," : "", oct_traffic_name((oct_traffic)i));
        oct_append_grouped(&b, result->traffic[i]);
    }
    return log_and_free(&b, err);
}

oct_status oct_metrics_step(oct_metrics *metrics, const oct_step_result *result,
                            const oct_validation *validation, int64_t n_tokens_seen,
                            oct_error *err) {
    bool due = result->step == 1 || result->step % metrics->log_freq == 0;
    double elapsed_s = oct_clock_s() - metrics->since - (validation ? validation->duration_s : 0);
    metrics->n_tokens += result->n_tokens;
    metrics->data_s += result->data_s;
    oct_status status = append_line(metrics, result, validation, n_tokens_seen, err);
    if (!status && result->stats && metrics->events)
        status = oct_run_stats_append_events(result->stats, result->step, metrics->events, err);
    if (!status && due)
        status = log_step(metrics, result, n_tokens_seen, elapsed_s, err);
    if (!status && due && result->n_ranks > 1)
        status = log_traffic(result, err);
    if (!status && validation)
        status = log_validation(metrics, result->step, validation, err);
    if (due || validation) {
        metrics->n_tokens = 0;
        metrics->data_s = 0;
        metrics->since = oct_clock_s();
    }
    return status;
}
