/* All measurements, and their table. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "base/thread.h"
#include "kernel/select.h"

typedef oct_status measurement(const bench_options *options, bench_rows *rows, oct_error *err);

static const struct {
    const char *name;
    measurement *run;
} measurements[] = {{"products", bench_products},     {"skinny", bench_skinny},
                    {"linear", bench_linear},         {"grouped", bench_grouped},
                    {"quantizers", bench_quantizers}, {"errors", bench_errors}};
enum { N_MEASUREMENTS = OCT_COUNT(measurements) };

static oct_status check_choice(const char *only, oct_error *err) {
    const char *names[N_MEASUREMENTS];
    for (int i = 0; i < N_MEASUREMENTS; i++) {
        names[i] = measurements[i].name;
        if (!only || strcmp(only, names[i]) == 0)
            return OCT_OK;
    }
    const char *nearest = oct_nearest_name(only, names, N_MEASUREMENTS);
    return oct_fail(err, OCT_INVALID,
                    "--only: unknown measurement; expected products, skinny, linear, grouped, "
                    "quantizers or errors; got \"%s\"%s%s%s",
                    only, nearest ? " (did you mean " : "", nearest ? nearest : "",
                    nearest ? "?)" : "");
}

static double number(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key) {
    const char *value = json_string_value(json_object_get(row, key));
    return value ? value : "";
}

static double rate(const json_t *row, const char *name) {
    return number(json_object_get(json_object_get(row, "rates"), name), "gflops");
}

static double spread(const json_t *row, const char *name) {
    return number(json_object_get(json_object_get(row, "rates"), name), "spread");
}

static void print_product(const json_t *row) {
    printf("%-8s %-16s %-12s %5.0f x %5.0f x %5.0f  onednn %6.1f, bf16 %6.1f  openblas %6.1f  "
           "mx %7.1f  ratio %5.2f  (bf16 %7.1f; exact %4.2f, fp32 %4.2f)  spread %.0f %%\n",
           text(row, "what"), text(row, "pass"), text(row, "data"), number(row, "M"),
           number(row, "N"), number(row, "K"), rate(row, "onednn"), rate(row, "onednn_bf16"),
           rate(row, "openblas"), rate(row, "mx"), number(row, "mx_ratio"), rate(row, "bf16"),
           number(row, "mx_exact_ratio"), number(row, "fp32_ratio"), 100 * spread(row, "mx"));
}

static void print_grouped(const json_t *row) {
    printf("%-8s %-8s %-5s groups  %2.0f experts, %4.0f tokens, %4.0f x %4.0f  onednn loop %6.1f  "
           "dense %7.1f  mx %7.1f  of dense %4.2f  ratio %5.2f  spread %.0f %%\n",
           text(row, "what"), text(row, "pass"), text(row, "groups"), number(row, "experts"),
           number(row, "tokens"), number(row, "dim"), number(row, "ffn"), rate(row, "onednn"),
           rate(row, "dense"), rate(row, "mx"), number(row, "dense_ratio"), number(row, "mx_ratio"),
           100 * spread(row, "mx"));
}

static void print_quantizer(const json_t *row) {
    printf("%-10s %-6s %-9s %5.0f x %5.0f  %6.1f GB/s  memcpy %6.1f  ratio %5.2f  spread %.0f %%\n",
           text(row, "what"), text(row, "quantizer"), text(row, "dtype"), number(row, "rows"),
           number(row, "cols"), number(row, "gb_per_second"), number(row, "memcpy_gb_per_second"),
           number(row, "ratio"), 100 * number(row, "spread"));
}

static void print_error(const json_t *row) {
    printf("%-10s %-12s K %5.0f  onednn %.2g, bf16 %.2g  openblas %.2g  mx %.2g  mx_exact %.2g  "
           "bf16 %.2g\n",
           text(row, "what"), text(row, "data"), number(row, "K"), number(row, "onednn"),
           number(row, "onednn_bf16"), number(row, "openblas"), number(row, "mx"),
           number(row, "mx_exact"), number(row, "bf16"));
}

static void print_head(const json_t *result) {
    printf("cpu: %s; kernels: %s; threads: %.0f; onednn: %s; openblas: %s\n", text(result, "cpu"),
           text(result, "kernels"), number(result, "threads"),
           json_is_true(json_object_get(result, "onednn")) ? "yes" : "not installed",
           json_is_true(json_object_get(result, "openblas")) ? "yes" : "not installed");
    printf("rates in GFLOP/s; ratio: the faster library's time over ours, packing included\n");
    fflush(stdout);
}

static void print_row(const json_t *row) {
    if (strcmp(text(row, "what"), "quantizer") == 0)
        print_quantizer(row);
    else if (strcmp(text(row, "what"), "error") == 0)
        print_error(row);
    else if (strcmp(text(row, "what"), "grouped") == 0)
        print_grouped(row);
    else
        print_product(row);
    fflush(stdout);
}

void bench_add_row(bench_rows *rows, json_t *row) {
    if (rows->print && row)
        print_row(row);
    json_array_append_new(rows->array, row);
}

oct_status bench_run(const bench_options *options, json_t **result, oct_error *err) {
    oct_status status = check_choice(options->only, err);
    int threads_before = oct_threads();
    *result = NULL;
    if (status)
        return status;
    oct_threads_set(options->threads);
    bench_peers_load(options->threads);
    const oct_kernels *kernels = oct_kernels_current();
    bench_rows rows = {json_array(), options->print};
    *result = json_pack("{s:s,s:s,s:b,s:b,s:i,s:b,s:b,s:o}", "cpu", oct_cpu_model_name(), "kernels",
                        kernels->name, "fast", oct_gemm_supports(OCT_GEMM_FAST), "amx",
                        oct_gemm_supports(OCT_GEMM_FAST) && kernels->features.amx_bf16, "threads",
                        options->threads, "onednn", bench_has_onednn(), "openblas",
                        bench_has_openblas(), "rows", rows.array);
    if (!*result)
        status = oct_fail(err, OCT_NO_MEMORY, "bench: no memory for the result");
    else if (options->print)
        print_head(*result);
    for (int i = 0; i < N_MEASUREMENTS && !status; i++)
        if (!options->only || strcmp(options->only, measurements[i].name) == 0)
            status = measurements[i].run(options, &rows, err);
    oct_threads_set(threads_before);
    if (status) {
        json_decref(*result);
        *result = NULL;
    }
    return status;
}
