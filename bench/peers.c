/* oneDNN's and OpenBLAS's sgemm, loaded at run time so that nothing depends on them. */
#include "bench.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int onednn_sgemm(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                         const float *, int64_t, float, float *, int64_t);
typedef void openblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *,
                            int, float, float *, int);
typedef void set_threads(int);

static onednn_sgemm *onednn;
static openblas_sgemm *openblas;

/* POSIX gives functions as void *, which ISO C can't convert. */
static void find(void *library, const char *name, void *function) {
    *(void **)function = dlsym(library, name);
}

static void *open_first(const char *const *names) {
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

bool bench_peers_load(int threads) {
    static const char *const onednn_names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    static const char *const openblas_names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    void *library = open_first(onednn_names);
    if (library) {
        set_threads *set = NULL;
        find(library, "dnnl_sgemm", &onednn);
        bench_onednn_bf16_load(library);
        find(library, "omp_set_num_threads", &set); /* of the OpenMP that oneDNN brought along */
        if (set)
            set(threads);
    }
    library = open_first(openblas_names);
    if (library) {
        set_threads *set = NULL;
        find(library, "cblas_sgemm", &openblas);
        find(library, "openblas_set_num_threads", &set);
        if (set)
            set(threads);
    }
    return onednn || openblas;
}

bool bench_has_onednn(void) {
    return onednn != NULL;
}

bool bench_has_openblas(void) {
    return openblas != NULL;
}

void bench_run_onednn(void *sgemm) {
    const bench_sgemm *s = sgemm;
    onednn(s->a_transposed ? 'T' : 'N', s->b_transposed ? 'T' : 'N', s->M, s->N, s->K, 1, s->a,
           s->a_transposed ? s->M : s->K, s->b, s->b_transposed ? s->K : s->N, 0, s->c, s->N);
}

void bench_run_openblas(void *sgemm) {
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const bench_sgemm *s = sgemm;
    openblas(ROW_MAJOR, s->a_transposed ? TRANS : NO_TRANS, s->b_transposed ? TRANS : NO_TRANS,
             (int)s->M, (int)s->N, (int)s->K, 1, s->a, (int)(s->a_transposed ? s->M : s->K), s->b,
             (int)(s->b_transposed ? s->K : s->N), 0, s->c, (int)s->N);
}
