/* octet bench: this machine's kernels against the fp32 libraries one would use instead. */
#include <stdio.h>

#include "base/count.h"
#include "base/thread.h"
#include "bench.h"
#include "cli.h"
#include "options.h"

oct_status cli_bench(int argc, char **argv, oct_error *err) {
    int64_t threads = oct_threads();
    const char *only = NULL;
    bool large = false, json = false;
    const cli_option options[] = {
        {"threads", CLI_INTEGER, &threads, "N", "threads of all candidates (default: all CPUs)", 1,
         1024},
        {"only", CLI_NAME, &only, "WHAT", "products, skinny, linear, grouped, quantizers or errors",
         0, 0},
        {"large", CLI_FLAG, &large, NULL, "widths of 4096 too, which take minutes", 0, 0},
        {"json", CLI_FLAG, &json, NULL, "print JSON", 0, 0},
    };
    const cli_spec spec = {
        .usage = "octet bench [options]",
        .summary =
            "Measures products and quantizers against oneDNN, OpenBLAS and memcpy, whichever "
            "are\ninstalled: interleaved in one process, medians. The ratios are the result; "
            "rates vary\nwith the machine's load.",
        .examples = "bench --only products\n"
                    "bench --threads 1 --json\n",
        .options = options,
        .n_options = OCT_COUNT(options)};
    cli_args args;
    json_t *result = NULL;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        bench_options what = {
            .threads = (int)threads, .large = large, .print = !json, .only = only};
        status = bench_run(&what, &result, err);
    }
    if (result && json) {
        json_dumpf(result, stdout, JSON_INDENT(1));
        putchar('\n');
    }
    json_decref(result);
    cli_args_free(&args);
    return status;
}
