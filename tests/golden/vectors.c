/* vectors DIR: checks every golden file of a folder; the last line is "N passed, N failed". Status
 * 0 all pass, 1 some fail, 2 the input isn't golden vectors. */
#include <inttypes.h>
#include <stdio.h>

#include "golden.h"
#include "levels.h"

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    printf("%s; kernel sets:", oct_cpu_model_name());
    for (size_t i = 0; i < n_sets; i++)
        printf(" %s", sets[i].name);
    printf("\n");
    golden_counts counts = {0};
    oct_status status = golden_check_folder(argv[1], stdout, &counts);
    printf("%" PRId64 " passed, %" PRId64 " failed\n", counts.n_passed, counts.n_failed);
    return status ? oct_status_exit_code(status) : counts.n_failed > 0;
}
