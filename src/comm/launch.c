/* What launchers say in the environment: see launch.h.
 *
 * The nearest launcher counts. mpirun's own variables come first: inside a batch job its processes
 * have SLURM's as well, and those may be of the daemon that started them. Variables of a whole
 * allocation (SLURM_NTASKS outside a step) say nothing of this process: a batch script has them
 * too. */
#include "base/count.h"
#include "comm/launch.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Steps of SLURM that run a batch script or a shell, not tasks of srun (slurm.h). */
#define FIRST_SPECIAL_STEP UINT32_C(0xfffffff0)

/* The number that a variable holds; -1: it isn't set, or isn't a number. */
static int64_t number_of(const char *variable) {
    const char *text = getenv(variable);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long long n = strtoll(text, &end, 10);
    return *end == '\0' ? n : -1;
}

/* Tasks of srun's step that this process is one of; -1: none. */
static int64_t slurm_tasks(void) {
    int64_t step = number_of("SLURM_STEP_ID"), n = number_of("SLURM_STEP_NUM_TASKS");
    if (step >= FIRST_SPECIAL_STEP)
        return -1;
    return n < 0 && step >= 0 ? number_of("SLURM_NTASKS") : n;
}

/* What tells of them: all that would have to go for this process to be on its own. */
static const char *slurm_variables(void) {
    bool of_step = number_of("SLURM_STEP_NUM_TASKS") >= 0;
    bool of_job = number_of("SLURM_STEP_ID") >= 0 && number_of("SLURM_NTASKS") >= 0;
    return of_step && of_job ? "SLURM_STEP_NUM_TASKS and SLURM_NTASKS"
           : of_job          ? "SLURM_NTASKS"
                             : "SLURM_STEP_NUM_TASKS";
}

/* Processes of torchrun and of others that follow it; RANK tells them from a variable of the
 * user's. */
static int64_t torchrun_processes(void) {
    return number_of("RANK") >= 0 ? number_of("WORLD_SIZE") : -1;
}

typedef struct launcher {
    const char *name, *variable;
    int64_t n; /* processes it started; -1: it isn't there */
} launcher;

/* The launcher nearest to this process; its n is -1 where there is none. */
static launcher find_launcher(void) {
    const launcher all[] = {
        {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", number_of("OMPI_COMM_WORLD_SIZE")},
        {"srun", slurm_variables(), getenv("PMI_SIZE") ? slurm_tasks() : -1},
        {"MPICH's mpirun", "PMI_SIZE", number_of("PMI_SIZE")},
        {"MPICH's mpirun", "MPI_LOCALNRANKS", number_of("MPI_LOCALNRANKS")},
        {"srun", slurm_variables(), slurm_tasks()},
        {"torchrun", "WORLD_SIZE and RANK", torchrun_processes()}};
    for (size_t i = 0; i < OCT_COUNT(all); i++)
        if (all[i].n >= 0)
            return all[i];
    return (launcher){.n = -1};
}

bool oct_launch_is_mpi(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                            "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < OCT_COUNT(variables); i++)
        if (getenv(variables[i]))
            return true;
    return false;
}

int oct_launch_size(void) {
    const launcher own = find_launcher();
    return own.n < 0 ? 0 : own.n > INT32_MAX ? INT32_MAX : (int)own.n;
}

oct_status oct_launch_check_alone(const char *library, oct_error *err) {
    const launcher own = find_launcher();
    const char *expected = "mpirun, or srun --mpi=pmix";
    if (own.n <= 1)
        return OCT_OK;
    if (strncmp(library, "none", 4) == 0)
        expected = "a build with MPI, and its mpirun";
    else if (strcmp(own.name, "srun") == 0)
        expected = "srun --mpi=pmix, or pmi2 for MPICH";
    else if (strstr(own.name, "mpirun"))
        expected = "the mpirun of that library";
    return oct_fail(err, OCT_INVALID,
                    "%s started %" PRId64 " processes, and each finds itself alone (this build's "
                    "MPI: %s); expected %s; to run this one alone, unset %s",
                    own.name, own.n, library, expected, own.variable);
}
