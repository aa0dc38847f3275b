/* octet info: what this machine has and which kernels are used. */
#include <jansson.h>
#include <libfyaml.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "base/thread.h"
#include "cli.h"
#include "options.h"

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
                           .summary = "Prints what this machine has and which kernels are used."};
    cli_args args;
    oct_status status = cli_parse(&spec, argc, argv, &args, err);
    if (status == OCT_OK && args.help) {
        cli_print_help(&spec);
    } else if (status == OCT_OK) {
        printf("octet: %s\n", OCT_VERSION);
        printf("threads: %d\n", oct_threads());
        print_libraries();
    }
    cli_args_free(&args);
    return status;
}
