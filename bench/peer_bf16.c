/* oneDNN's matmul of bf16 operands into fp32, by its C interface, which is declared here as nothing
 * depends on the library: of versions 2 (libdnnl.so.2, whose descriptions are structures of the
 * caller's) and 3 (libdnnl.so.3, whose descriptions are its own). */
#include "bench.h"

#include <dlfcn.h>
#include <octet/format.h>
#include <stdalign.h>

#include "base/alloc.h"

enum {
    CPU = 1,
    IN_ORDER = 1,
    BF16 = 2,
    F32 = 3,
    ARG_SOURCE = 1,
    ARG_DESTINATION = 17,
    ARG_WEIGHTS = 33
};

typedef struct argument {
    int arg;
    void *memory;
} argument;

/* Each returns 0 or an error. */
typedef struct onednn_calls {
    int (*engine_create)(void **, int, size_t);
    int (*stream_create)(void **, void *, unsigned);
    int (*stream_wait)(void *);
    int (*memory_create)(void **, const void *, void *, void *);
    int (*primitive_create)(void **, const void *);
    int (*primitive_execute)(const void *, void *, int, const argument *);
    int (*memory_destroy)(void *);
    int (*primitive_destroy)(void *);
    int (*primitive_desc_destroy)(void *);
    /* Version 2. */
    int (*desc_init)(void *, int, const int64_t *, int, const int64_t *);
    int (*matmul_init)(void *, const void *, const void *, const void *, const void *);
    int (*primitive_desc_create_2)(void **, const void *, const void *, void *, const void *);
    /* Version 3. */
    int (*desc_create)(void **, int, const int64_t *, int, const int64_t *);
    int (*desc_destroy)(void *);
    int (*primitive_desc_create_3)(void **, void *, const void *, const void *, const void *,
                                   const void *, const void *);
} onednn_calls;

static onednn_calls dnnl;
static void *engine, *stream;
static bool is_there;

/* POSIX gives functions as void *, which ISO C can't convert. */
static bool find(void *library, const char *name, void *function) {
    *(void **)function = dlsym(library, name);
    return *(void **)function != NULL;
}

bool bench_has_onednn_bf16(void) {
    return is_there;
}

void bench_onednn_bf16_load(void *library) {
    if (is_there || !find(library, "dnnl_engine_create", &dnnl.engine_create) ||
        !find(library, "dnnl_stream_create", &dnnl.stream_create) ||
        !find(library, "dnnl_stream_wait", &dnnl.stream_wait) ||
        !find(library, "dnnl_memory_create", &dnnl.memory_create) ||
        !find(library, "dnnl_primitive_create", &dnnl.primitive_create) ||
        !find(library, "dnnl_primitive_execute", &dnnl.primitive_execute) ||
        !find(library, "dnnl_memory_destroy", &dnnl.memory_destroy) ||
        !find(library, "dnnl_primitive_destroy", &dnnl.primitive_destroy) ||
        !find(library, "dnnl_primitive_desc_destroy", &dnnl.primitive_desc_destroy))
        return;
    const bool is_2 = find(library, "dnnl_memory_desc_init_by_strides", &dnnl.desc_init) &&
                      find(library, "dnnl_matmul_desc_init", &dnnl.matmul_init) &&
                      find(library, "dnnl_primitive_desc_create", &dnnl.primitive_desc_create_2);
    const bool is_3 =
        find(library, "dnnl_memory_desc_create_with_strides", &dnnl.desc_create) &&
        find(library, "dnnl_memory_desc_destroy", &dnnl.desc_destroy) &&
        find(library, "dnnl_matmul_primitive_desc_create", &dnnl.primitive_desc_create_3);
    is_there = (is_2 || is_3) && dnnl.engine_create(&engine, CPU, 0) == 0 &&
               dnnl.stream_create(&stream, engine, IN_ORDER) == 0;
}

/* A description of a matrix: version 2's own structure, which is smaller than this, or a pointer to
 * version 3's. */
typedef struct matrix_description {
    alignas(64) unsigned char own[4096];
    void *made;
} matrix_description;

struct bench_bf16 {
    uint16_t *a, *b;
    matrix_description of[3];
    void *primitive_desc, *primitive, *memory[3];
};

static bool describe(matrix_description *d, int64_t rows, int64_t cols, bool transposed, int type) {
    const int64_t dims[2] = {rows, cols};
    const int64_t strides[2] = {transposed ? 1 : cols, transposed ? rows : 1};
    if (dnnl.desc_init)
        return dnnl.desc_init(d->own, 2, dims, type, strides) == 0;
    return dnnl.desc_create(&d->made, 2, dims, type, strides) == 0;
}

static const void *description(const matrix_description *d) {
    return dnnl.desc_init ? (const void *)d->own : d->made;
}

static bool make_primitive(bench_bf16 *x) {
    const void *a = description(&x->of[0]), *b = description(&x->of[1]),
               *c = description(&x->of[2]);
    if (dnnl.desc_init) {
        alignas(64) unsigned char matmul[16384]; /* four descriptions and a little */
        if (dnnl.matmul_init(matmul, a, b, NULL, c) != 0 ||
            dnnl.primitive_desc_create_2(&x->primitive_desc, matmul, NULL, engine, NULL) != 0)
            return false;
    } else if (dnnl.primitive_desc_create_3(&x->primitive_desc, engine, a, b, NULL, c, NULL) != 0) {
        return false;
    }
    return dnnl.primitive_create(&x->primitive, x->primitive_desc) == 0;
}

uint16_t *bench_to_bf16(const float *x, int64_t n) {
    uint16_t *words = oct_malloc_array((size_t)n, sizeof *words);
    for (int64_t i = 0; words && i < n; i++)
        words[i] = oct_bf16_encode(x[i]);
    return words;
}

static bool fill(bench_bf16 *x, const bench_sgemm *s) {
    x->a = bench_to_bf16(s->a, s->M * s->K);
    x->b = bench_to_bf16(s->b, s->N * s->K);
    void *const data[3] = {x->a, x->b, s->c};
    bool ok = x->a && x->b && describe(&x->of[0], s->M, s->K, s->a_transposed, BF16) &&
              describe(&x->of[1], s->K, s->N, s->b_transposed, BF16) &&
              describe(&x->of[2], s->M, s->N, false, F32) && make_primitive(x);
    for (int i = 0; i < 3 && ok; i++)
        ok = dnnl.memory_create(&x->memory[i], description(&x->of[i]), engine, data[i]) == 0;
    return ok;
}

bench_bf16 *bench_onednn_bf16_make(const bench_sgemm *s) {
    bench_bf16 *x = is_there ? oct_calloc_array(1, sizeof *x) : NULL;
    if (x && !fill(x, s)) {
        bench_onednn_bf16_free(x);
        return NULL;
    }
    return x;
}

void bench_onednn_bf16_free(bench_bf16 *x) {
    if (!x)
        return;
    for (int i = 0; i < 3; i++) {
        if (x->memory[i])
            dnnl.memory_destroy(x->memory[i]);
        if (x->of[i].made)
            dnnl.desc_destroy(x->of[i].made);
    }
    if (x->primitive)
        dnnl.primitive_destroy(x->primitive);
    if (x->primitive_desc)
        dnnl.primitive_desc_destroy(x->primitive_desc);
    oct_free(x->a);
    oct_free(x->b);
    oct_free(x);
}

void bench_run_onednn_bf16(void *made) {
    bench_bf16 *x = made;
    const argument arguments[] = {
        {ARG_SOURCE, x->memory[0]}, {ARG_WEIGHTS, x->memory[1]}, {ARG_DESTINATION, x->memory[2]}};
    dnnl.primitive_execute(x->primitive, stream, 3, arguments);
    dnnl.stream_wait(stream);
}
