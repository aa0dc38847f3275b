/* octet info: what this machine has and which kernels are used. */
#include <jansson.h>
#include <libfyaml.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>
#include <octet/version.h>
#include <xxhash.h>

#include "base/cgroup.h"
#include "base/thread.h"
#include "cli.h"
#include "comm/comm.h"
#include "kernel/gemm.h"
#include "kernel/select.h"
#include "options.h"

/* The kernels of 8-bit products, and why these: OCTET_CPU, or the best that there is. */
static void print_product(const oct_cpu_features *cpu, const char *cap) {
    const oct_cpu_features *chosen = &oct_kernels_current()->features;
    const char *why = cap && *cap           ? "as OCTET_CPU says"
                      : chosen->amx_bf16    ? "this CPU has AMX-BF16"
                      : chosen->avx512_bf16 ? "this CPU has AVX512-BF16 at full rate"
                      : !cpu->avx512_bf16   ? "this CPU has nothing beyond it"
                      : !cpu->slow_bf16     ? "the compiler built nothing beyond it"
                                            : "its AVX512-BF16 is slower than that";
    printf("8-bit product: %s (%s): %s\n", oct_gemm_supports(OCT_GEMM_FAST) ? "fast" : "exact",
           chosen->amx_bf16                   ? "AMX-BF16"
           : chosen->avx512_bf16              ? "AVX512-BF16"
           : oct_gemm_supports(OCT_GEMM_FAST) ? "AVX512-VNNI"
                                              : oct_cpu_level_name(chosen->level),
           why);
}

static void print_cpu(void) {
    oct_cpu_features cpu = oct_cpu_detect();
    const oct_kernels *kernels = oct_kernels_current();
    const char *cap = getenv("OCTET_CPU");
    printf("cpu: %s\n", oct_cpu_model_name());
    printf("cpu features: %s%s%s%s%s\n", oct_cpu_level_name(cpu.level),
           cpu.avx512_vnni ? " avx512-vnni" : "", cpu.avx512_vbmi ? " avx512-vbmi" : "",
           cpu.avx512_bf16 ? " avx512-bf16" : "", cpu.amx_bf16 ? " amx-bf16" : "");
    printf("kernels: %s\n", kernels->name);
    printf("OCTET_CPU: %s\n", cap && *cap ? cap : "not set");
    print_product(&cpu, cap);
}

static void print_threads(void) {
    double quota = oct_cgroup_cpus("");
    printf("cpus: %d", oct_threads_cpus());
    if (quota > 0)
        printf(", of which the control group's quota lets %.3g be used", quota);
    printf("\nthreads: %d\n", oct_threads());
}

static void print_libraries(void) {
    char pcre2_version[64] = "";
    unsigned xxh = XXH_versionNumber();
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2_version);
    printf("libraries: jansson %s, libfyaml %s, pcre2 %s, utf8proc %s, xxhash %u.%u.%u\n",
           jansson_version_str(), fy_library_version(), pcre2_version, utf8proc_version(),
           xxh / 10000, xxh / 100 % 100, xxh % 100);
}

oct_status cli_info(int argc, char **argv, oct_error *err) {
    const cli_spec spec = {.usage = "octet info",
                           .summary = "Prints what this machine has and which kernels are used.",
                           .examples = "info\n"};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err)) {
        printf("octet: %s\n", oct_version());
        print_cpu();
        print_threads();
        printf("mpi: %s\n", oct_comm_library());
        print_libraries();
    }
    cli_args_free(&args);
    return status;
}
