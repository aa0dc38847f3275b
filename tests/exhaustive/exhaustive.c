/* exhaustive GOLDEN_DIR [EVERY]: all 2^32 fp32 inputs through every kernel set's encoders, against
 * a search for the nearest value of the decode table.
 *
 * Invariant: nothing here is shared with the encoders. The values of the codes come from the golden
 * CSV files, a code is right when it is that of the nearest value (ties by the format's rule), and
 * "nearest" is a comparison with the middle of two neighbours, exact in fp64.
 * With EVERY = n only each n-th chunk of inputs is tried. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/thread.h"
#include "levels.h"

enum {
    MAX_CODES = 1 << 16,
    CHUNK =
        31 * 1024, /* inputs of a task: whole MX blocks of 31 inputs and one that sets the scale */
    MX_ROWS = CHUNK / 31
};
static const uint64_t N_MAGNITUDES = (uint64_t)1 << 31;

/* The finite, non-negative values of a format in ascending order, each with its code. */
typedef struct value_table {
    const char *name;
    oct_dtype format;
    bool ties_to_even;      /* else away from zero */
    bool has_negative_zero; /* else every zero is code 0 */
    bool has_infinity;      /* what is nearest to 2^128 and above becomes Inf; else it saturates */
    int n;
    double value[MAX_CODES];
    uint32_t code[MAX_CODES];
    uint32_t sign, infinity;
} value_table;

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Keeps finite values with a clear sign; `code` follows `value` through the sort by looking up. */
static void add_value(value_table *t, uint32_t code, uint32_t bits) {
    float x = from_bits(bits);
    if (!isfinite(x) || bits >> 31)
        return;
    t->value[t->n] = (double)x;
    t->code[t->n++] = code;
}

static void sort_table(value_table *t) {
    static double sorted[MAX_CODES];
    static uint32_t codes[MAX_CODES];
    memcpy(sorted, t->value, (size_t)t->n * sizeof *sorted);
    qsort(sorted, (size_t)t->n, sizeof *sorted, compare_doubles);
    for (int i = 0; i < t->n; i++) {
        const double *at =
            bsearch(&t->value[i], sorted, (size_t)t->n, sizeof *sorted, compare_doubles);
        codes[at - sorted] = t->code[i];
    }
    memcpy(t->value, sorted, (size_t)t->n * sizeof *sorted);
    memcpy(t->code, codes, (size_t)t->n * sizeof *codes);
}

/* Reads "code,fp32" lines. */
static bool read_table(value_table *t, const char *folder, const char *file) {
    char *path = oct_path_join(folder, file), *text = NULL;
    oct_error err = {0};
    t->n = 0;
    if (path && oct_file_read(path, 1 << 20, &text, NULL, &err) == OCT_OK) {
        unsigned code, bits;
        const char *line = strchr(text, '\n');
        for (; line && sscanf(line, " %x,%x", &code, &bits) == 2; line = strchr(line + 1, '\n'))
            if (code < 256)
                add_value(t, code, bits);
        sort_table(t);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    oct_free(text);
    oct_free(path);
    return t->n > 100; /* 127 (E4M3), 124 (E5M2), 111 (HiF8) */
}

/* bf16 is the upper half of an fp32, so its table needs no file. */
static void fill_bf16(value_table *t) {
    t->n = 0;
    for (uint32_t code = 0; code < 0x7f80; code++)
        add_value(t, code, code << 16);
}

/* Whether x >= 0 lies nearer to entry i + 1 than to entry i. */
static bool belongs_above(const value_table *t, int i, double x) {
    double next = i + 1 < t->n ? t->value[i + 1] : 0x1p128;
    double middle = (t->value[i] + next) / 2;
    if (x != middle)
        return x > middle;
    return !t->ties_to_even || t->code[i] % 2 == 1; /* the neighbour of an odd code is even */
}

/* The entry nearest to x >= 0, searched upwards from entry `i`; n means Inf. */
static int nearest(const value_table *t, int i, double x) {
    int last = t->has_infinity ? t->n : t->n - 1;
    while (i < last && belongs_above(t, i, x))
        i++;
    return i;
}

/* The last entry whose value isn't above x: at or one below the nearest. */
static int entry_below(const value_table *t, double x) {
    int low = 0, high = t->n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (t->value[middle] <= x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static uint32_t expected_code(const value_table *t, int entry, bool negative) {
    uint32_t code = entry == t->n ? t->infinity : t->code[entry];
    if (!negative ||
        (t->value[entry == t->n ? 0 : entry] == 0 && entry != t->n && !t->has_negative_zero))
        return code;
    return code | t->sign;
}

static bool is_nan_code(const value_table *t, uint32_t code) {
    switch (t->format) {
    case OCT_E4M3:
        return (code & 0x7f) == 0x7f;
    case OCT_E5M2:
        return (code & 0x7f) > 0x7c;
    case OCT_BF16:
        return (code & 0x7fff) > 0x7f80;
    default:
        return code == 0x80;
    }
}

typedef enum encoder_route { BY_SCALE, BY_MX, BY_BF16 } encoder_route;
static const char *const route_names[] = {"scaled", "mx", "f32_to_bf16"};

/* One walk over all inputs. */
typedef struct walk {
    const value_table *table;
    const oct_quantize_kernels *kernels;
    encoder_route route;
    uint64_t n_magnitudes; /* inputs 0 .. n-1 of each sign, as bit patterns */
    int64_t chunks_per_sign, every;
    atomic_ullong n_inputs, n_wrong;
} walk;

static void report(walk *w, uint32_t bits, uint32_t expected, uint32_t got) {
    if (atomic_fetch_add(&w->n_wrong, 1) < 5)
        printf("  %s %s: %08x: expected %02x, got %02x\n", route_names[w->route], w->table->name,
               bits, expected, got);
}

/* Compares a run of codes with the search. Inputs ascend in magnitude, so the search goes on from
 * the entry before. */
static void compare(walk *w, const float *x, const uint32_t *codes, int64_t n) {
    const value_table *t = w->table;
    int entry = isnan(x[0]) ? 0 : entry_below(t, fabs((double)x[0]));
    entry = entry > 0 ? entry - 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if (isnan(x[i])) {
            if (!is_nan_code(t, codes[i]))
                report(w, bits, 0xff, codes[i]);
            continue;
        }
        entry = nearest(t, entry, fabs((double)x[i]));
        uint32_t expected = expected_code(t, entry, bits >> 31);
        if (codes[i] != expected)
            report(w, bits, expected, codes[i]);
    }
}

static void encode_scaled(const walk *w, const float *x, int64_t n, uint32_t *codes) {
    uint8_t bytes[CHUNK];
    oct_matrix_view view = {x, OCT_F32, 1, n, n};
    w->kernels->scaled(&view, w->table->format, 1, bytes, n);
    for (int64_t i = 0; i < n; i++)
        codes[i] = bytes[i];
}

static void encode_bf16(const walk *w, const float *x, int64_t n, uint32_t *codes) {
    uint16_t words[CHUNK];
    w->kernels->f32_to_bf16(x, n, words);
    for (int64_t i = 0; i < n; i++)
        codes[i] = words[i];
}

/* Blocks of 31 inputs and the format's largest power of two: with mode floor their scale is 1. The
 * same matrix, read by rows and (transposed) by columns, must give the same codes. */
static void encode_mx(walk *w, const float *x, int64_t n, uint32_t *codes) {
    static _Thread_local float by_rows[MX_ROWS * 32], by_cols[32 * MX_ROWS];
    static _Thread_local uint8_t row_codes[MX_ROWS * 32], col_codes[MX_ROWS * 32];
    uint8_t row_scales[MX_ROWS], col_scales[MX_ROWS];
    float force = w->table->format == OCT_E4M3 ? 256 : 32768;
    int64_t rows = (n + 30) / 31;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < 32; c++) {
            int64_t i = r * 31 + c;
            float value = c == 31 ? force : i < n ? x[i] : 0;
            by_rows[r * 32 + c] = by_cols[c * rows + r] = value;
        }
    oct_matrix_view row_view = {by_rows, OCT_F32, rows, 32, 32};
    oct_matrix_view col_view = {by_cols, OCT_F32, 32, rows, rows};
    oct_mx_output row_out = {row_codes, 32, row_scales, 1},
                  col_out = {col_codes, 32, col_scales, 1};
    w->kernels->mx_rows(&row_view, w->table->format, OCT_SCALE_FLOOR, &row_out);
    w->kernels->mx_cols(&col_view, w->table->format, OCT_SCALE_FLOOR, &col_out);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / 31 * 32 + i % 31;
        codes[i] = row_codes[at];
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if (row_codes[at] != col_codes[at] || row_scales[i / 31] != 127 ||
            col_scales[i / 31] != 127)
            report(w, bits, row_codes[at], col_codes[at]);
    }
}

static void walk_task(void *context, int64_t task, int thread) {
    (void)thread;
    walk *w = context;
    static _Thread_local float x[CHUNK];
    static _Thread_local uint32_t codes[CHUNK];
    int64_t chunk = task * w->every;
    uint32_t sign = chunk >= w->chunks_per_sign ? 0x80000000u : 0;
    uint64_t first = (uint64_t)(chunk % w->chunks_per_sign) * CHUNK;
    int64_t n = (int64_t)(w->n_magnitudes - first < CHUNK ? w->n_magnitudes - first : CHUNK);
    for (int64_t i = 0; i < n; i++)
        x[i] = from_bits(sign | (uint32_t)(first + (uint64_t)i));
    if (w->route == BY_SCALE)
        encode_scaled(w, x, n, codes);
    else if (w->route == BY_BF16)
        encode_bf16(w, x, n, codes);
    else
        encode_mx(w, x, n, codes);
    compare(w, x, codes, n);
    atomic_fetch_add(&w->n_inputs, n);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Walks all inputs of one table through one kernel; true if every code is right. */
static bool run(const value_table *table, const kernel_set *set, encoder_route route,
                int64_t every) {
    walk w = {.table = table,
              .kernels = set->kernels.quantize,
              .route = route,
              .n_magnitudes = N_MAGNITUDES,
              .every = every};
    if (route == BY_MX) /* below 2 * the forcing element */
        w.n_magnitudes = table->format == OCT_E4M3 ? 0x44000000 /* 512 */ : 0x47800000 /* 65536 */;
    w.chunks_per_sign = (int64_t)((w.n_magnitudes + CHUNK - 1) / CHUNK);
    double start = seconds();
    oct_parallel((2 * w.chunks_per_sign + every - 1) / every, walk_task, &w);
    printf("%-8s %-11s %-5s %10" PRIu64 " inputs, %" PRIu64 " wrong, %.1f s\n", set->name,
           route_names[route], table->name, (uint64_t)w.n_inputs, (uint64_t)w.n_wrong,
           seconds() - start);
    fflush(stdout);
    return w.n_wrong == 0;
}

static value_table e4m3 = {"e4m3", OCT_E4M3, true, true, false, .sign = 0x80};
static value_table e5m2 = {"e5m2", OCT_E5M2, true, true, false, .sign = 0x80};
static value_table hif8 = {"hif8", OCT_HIF8, false, false, false, .sign = 0x80};
static value_table bf16 = {"bf16", OCT_BF16, true, true, true, .sign = 0x8000, .infinity = 0x7f80};

/* The sets with quantizers of their own. */
static size_t distinct_sets(kernel_set sets[MAX_KERNEL_SETS]) {
    kernel_set all[MAX_KERNEL_SETS];
    size_t n_all = kernel_sets(all), n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (n == 0 || all[i].kernels.quantize != sets[n - 1].kernels.quantize)
            sets[n++] = all[i];
    return n;
}

int main(int argc, char **argv) {
    long every = argc == 3 ? strtol(argv[2], NULL, 10) : 1;
    if (argc < 2 || argc > 3 || every < 1) {
        fprintf(stderr, "usage: %s GOLDEN_DIR [EVERY]\n", argv[0]);
        return 2;
    }
    if (!read_table(&e4m3, argv[1], "decode_e4m3.csv") ||
        !read_table(&e5m2, argv[1], "decode_e5m2.csv") ||
        !read_table(&hif8, argv[1], "decode_hif8.csv")) {
        fprintf(stderr, "%s: no whole decode tables in this folder\n", argv[1]);
        return 2;
    }
    fill_bf16(&bf16);
    const struct {
        const value_table *table;
        encoder_route route;
    } walks[] = {{&e4m3, BY_SCALE}, {&e5m2, BY_SCALE}, {&hif8, BY_SCALE},
                 {&e4m3, BY_MX},    {&e5m2, BY_MX},    {&bf16, BY_BF16}};
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = distinct_sets(sets);
    int n_passed = 0, n_failed = 0;
    for (size_t k = 0; k < n_sets; k++)
        for (size_t i = 0; i < OCT_COUNT(walks); i++) {
            bool right = run(walks[i].table, &sets[k], walks[i].route, every);
            n_passed += right;
            n_failed += !right;
        }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}
