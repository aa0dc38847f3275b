/* The dimensions of models: flavors of torchtitan v0.2.2 and ours, and values that users give. */
#include "model/args.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/strbuf.h"

/* Bounds that keep every product of sizes of a model inside an int64. */
#define MAX_DIM (1 << 20)
#define MAX_WIDE (1 << 24) /* vocabulary, hidden size, all heads together */
#define MAX_HEADS (1 << 16)
#define MAX_LAYERS 10000
#define MAX_POSITIONS INT32_MAX

#define MAX_FLAVORS 16

/* llama3's defaults: rope_theta 10000 is the class's, 500000 that of its flavors. */
#define LLAMA3                                                                                     \
    .family = OCT_MODEL_LLAMA3, .norm_eps = 1e-5, .max_seq_len = 131072, .depth_init = true,       \
    .rope_scaling_factor = 8.0, .rope_low_freq_factor = 1.0, .rope_high_freq_factor = 4.0,         \
    .rope_original_max_position_embeddings = 8192
#define LLAMA3_TITAN LLAMA3, .rope_theta = 500000.0, .rope_scaling = OCT_ROPE_LLAMA3
#define LLAMA3_SMALL LLAMA3, .rope_theta = 10000.0, .multiple_of = 32
#define QWEN3                                                                                      \
    .family = OCT_MODEL_QWEN3, .norm_eps = 1e-6, .max_seq_len = 4096, .depth_init = true,          \
    .rope_theta = 1000000.0, .head_dim = 128, .n_kv_heads = 8, .qk_norm = true, .multiple_of = 1,  \
    .rope_scaling_factor = 8.0, .rope_low_freq_factor = 1.0, .rope_high_freq_factor = 4.0,         \
    .rope_original_max_position_embeddings = 8192
#define QWEN3_FULL QWEN3, .vocab_size = 151936

static const oct_model_args llama3_flavors[] = {
    {LLAMA3_TITAN, .flavor = "debugmodel", .dim = 256, .n_layers = 6, .n_heads = 16,
     .vocab_size = 2048, .multiple_of = 256},
    {LLAMA3_TITAN, .flavor = "8B", .dim = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,
     .vocab_size = 128256, .ffn_dim_multiplier = 1.3, .multiple_of = 1024},
    {LLAMA3_TITAN, .flavor = "70B", .dim = 8192, .n_layers = 80, .n_heads = 64, .n_kv_heads = 8,
     .vocab_size = 128256, .ffn_dim_multiplier = 1.3, .multiple_of = 4096},
    {LLAMA3_TITAN, .flavor = "405B", .dim = 16384, .n_layers = 126, .n_heads = 128, .n_kv_heads = 8,
     .vocab_size = 128256, .ffn_dim_multiplier = 1.2, .multiple_of = 4096},
    {LLAMA3_SMALL, .flavor = "demo", .dim = 256, .n_layers = 6, .n_heads = 8, .n_kv_heads = 4,
     .hidden_dim = 704, .vocab_size = 4096},
    {LLAMA3_SMALL, .flavor = "30M", .dim = 512, .n_layers = 8, .n_heads = 8, .hidden_dim = 1376,
     .vocab_size = 4096},
    {LLAMA3_SMALL, .flavor = "125M", .dim = 768, .n_layers = 12, .n_heads = 12, .hidden_dim = 2048,
     .vocab_size = 32000},
};

static const oct_model_args qwen3_flavors[] = {
    {QWEN3, .flavor = "debugmodel", .dim = 256, .n_layers = 8, .n_heads = 16, .hidden_dim = 3072,
     .vocab_size = 2048, .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "0.6B", .dim = 1024, .n_layers = 28, .n_heads = 16, .hidden_dim = 3072,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "1.7B", .dim = 2048, .n_layers = 28, .n_heads = 16, .hidden_dim = 6144,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "4B", .dim = 2560, .n_layers = 36, .n_heads = 32, .hidden_dim = 9728,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "8B", .dim = 4096, .n_layers = 36, .n_heads = 32, .hidden_dim = 12288},
    {QWEN3_FULL, .flavor = "14B", .dim = 5120, .n_layers = 40, .n_heads = 40, .hidden_dim = 17408},
    {QWEN3_FULL, .flavor = "32B", .dim = 5120, .n_layers = 64, .n_heads = 64, .hidden_dim = 25600},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct family {
    const char *name;
    const oct_model_args *flavors;
    size_t n_flavors;
    const char *names[MAX_FLAVORS]; /* NULL-terminated */
} family;

static const family families[] = {
    [OCT_MODEL_LLAMA3] = {"llama3",
                          llama3_flavors,
                          COUNT(llama3_flavors),
                          {"debugmodel", "8B", "70B", "405B", "demo", "30M", "125M"}},
    [OCT_MODEL_QWEN3] = {"qwen3",
                         qwen3_flavors,
                         COUNT(qwen3_flavors),
                         {"debugmodel", "0.6B", "1.7B", "4B", "8B", "14B", "32B"}},
};

const char *oct_model_family_name(oct_model_family model_family) {
    return families[model_family].name;
}

static const family *find_family(const char *name) {
    for (size_t i = 0; i < COUNT(families); i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

const char *const *oct_model_flavors(const char *name) {
    const family *f = find_family(name);
    return f ? f->names : NULL;
}

/* "KEY: unknown NAME; did you mean NEAREST?; expected one of ...; got NAME" */
static oct_status fail_unknown(oct_error *err, const char *key, const char *got,
                               const char *const *names, size_t n_names) {
    oct_strbuf list = {0};
    for (size_t i = 0; i < n_names; i++)
        oct_strbuf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = oct_nearest_name(got, names, n_names);
    oct_status status =
        oct_fail(err, OCT_INVALID, "%s: unknown%s%s%s; expected one of %s; got \"%s\"", key,
                 nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"" : "",
                 list.text ? list.text : "", got);
    oct_strbuf_free(&list);
    return status;
}

oct_status oct_model_args_flavor(const char *name, const char *flavor, oct_model_args *args,
                                 oct_error *err) {
    const family *f = find_family(name);
    if (!f) {
        const char *names[COUNT(families)];
        for (size_t i = 0; i < COUNT(families); i++)
            names[i] = families[i].name;
        return fail_unknown(err, "model.name", name, names, COUNT(families));
    }
    for (size_t i = 0; i < f->n_flavors; i++) {
        if (strcmp(f->flavors[i].flavor, flavor) == 0) {
            *args = f->flavors[i];
            return OCT_OK;
        }
    }
    return fail_unknown(err, "model.flavor", flavor, f->names, f->n_flavors);
}

typedef struct field {
    const char *key;
    oct_arg_type type;
    size_t offset;
    double low, high; /* of numbers, both allowed */
} field;

#define FIELD(name, type, low, high)                                                               \
    { #name, type, offsetof(oct_model_args, name), low, high }

static const field fields[] = {
    FIELD(vocab_size, OCT_ARG_INT, 2, MAX_WIDE),
    FIELD(dim, OCT_ARG_INT, 1, MAX_DIM),
    FIELD(n_layers, OCT_ARG_INT, 1, MAX_LAYERS),
    FIELD(n_heads, OCT_ARG_INT, 1, MAX_HEADS),
    FIELD(n_kv_heads, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(head_dim, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(hidden_dim, OCT_ARG_INT, 0, MAX_WIDE),
    FIELD(multiple_of, OCT_ARG_INT, 1, MAX_DIM),
    FIELD(ffn_dim_multiplier, OCT_ARG_DOUBLE, 0, 1024),
    FIELD(norm_eps, OCT_ARG_DOUBLE, 0, 1),
    FIELD(max_seq_len, OCT_ARG_INT, 1, MAX_POSITIONS),
    FIELD(qk_norm, OCT_ARG_BOOL, 0, 1),
    FIELD(enable_weight_tying, OCT_ARG_BOOL, 0, 1),
    FIELD(depth_init, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_theta, OCT_ARG_DOUBLE, 1, 1e12),
    FIELD(rope_scaling, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_scaling_factor, OCT_ARG_DOUBLE, 1, 1e6),
    FIELD(rope_low_freq_factor, OCT_ARG_DOUBLE, 1e-6, 1e6),
    FIELD(rope_high_freq_factor, OCT_ARG_DOUBLE, 1e-6, 1e6),
    FIELD(rope_original_max_position_embeddings, OCT_ARG_INT, 1, MAX_POSITIONS),
};

static bool same_key(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static const field *find_field(const char *key) {
    for (size_t i = 0; i < COUNT(fields); i++)
        if (same_key(key, fields[i].key))
            return &fields[i];
    return NULL;
}

static oct_status fail_value(oct_error *err, const field *f, oct_arg value) {
    static const char *const type_names[] = {"an integer", "a number", "true or false"};
    char expected[96], got[48];
    if (f->type == OCT_ARG_BOOL)
        snprintf(expected, sizeof expected, "%s", type_names[OCT_ARG_BOOL]);
    else
        snprintf(expected, sizeof expected, "%s from %.12g to %.12g", type_names[f->type], f->low,
                 f->high);
    if (value.type == OCT_ARG_INT)
        snprintf(got, sizeof got, "%lld", (long long)value.i);
    else if (value.type == OCT_ARG_DOUBLE)
        snprintf(got, sizeof got, "%.12g", value.d);
    else
        snprintf(got, sizeof got, "%s", value.b ? "true" : "false");
    return oct_fail(err, OCT_INVALID, "%s: impossible value; expected %s; got %s", f->key, expected,
                    got);
}

oct_status oct_model_args_set(oct_model_args *args, const char *key, oct_arg value,
                              oct_error *err) {
    const field *f = find_field(key);
    if (!f) {
        const char *names[COUNT(fields)];
        for (size_t i = 0; i < COUNT(fields); i++)
            names[i] = fields[i].key;
        return fail_unknown(err, key, key, names, COUNT(fields));
    }
    bool widens = f->type == OCT_ARG_DOUBLE && value.type == OCT_ARG_INT;
    if (value.type != f->type && !widens)
        return fail_value(err, f, value);
    double number = value.type == OCT_ARG_INT ? (double)value.i : value.d;
    if (f->type != OCT_ARG_BOOL && !(number >= f->low && number <= f->high))
        return fail_value(err, f, value);
    char *place = (char *)args + f->offset;
    if (f->offset == offsetof(oct_model_args, rope_scaling))
        args->rope_scaling = value.b ? OCT_ROPE_LLAMA3 : OCT_ROPE_UNSCALED;
    else if (f->type == OCT_ARG_INT)
        memcpy(place, &value.i, sizeof value.i);
    else if (f->type == OCT_ARG_DOUBLE)
        memcpy(place, &number, sizeof number);
    else
        memcpy(place, &value.b, sizeof value.b);
    return OCT_OK;
}

/* llama3's rule: two thirds of 4 dim, times the multiplier, rounded up to a multiple. */
static int64_t derived_hidden_dim(const oct_model_args *args) {
    int64_t hidden = 2 * (4 * args->dim) / 3, multiple = args->multiple_of;
    if (args->ffn_dim_multiplier > 0)
        hidden = (int64_t)(args->ffn_dim_multiplier * (double)hidden);
    return (hidden + multiple - 1) / multiple * multiple;
}

static oct_status check_bounds(const oct_model_args *args, oct_error *err) {
    for (size_t i = 0; i < COUNT(fields); i++) {
        const field *f = &fields[i];
        oct_arg value = {.type = f->type};
        const char *place = (const char *)args + f->offset;
        if (f->type == OCT_ARG_BOOL)
            continue;
        if (f->type == OCT_ARG_INT)
            memcpy(&value.i, place, sizeof value.i);
        else
            memcpy(&value.d, place, sizeof value.d);
        double number = f->type == OCT_ARG_INT ? (double)value.i : value.d;
        if (!(number >= f->low && number <= f->high))
            return fail_value(err, f, value);
    }
    return OCT_OK;
}

oct_status oct_model_args_resolve(oct_model_args *args, oct_error *err) {
    oct_status status = check_bounds(args, err);
    if (status)
        return status;
    if (args->head_dim == 0 && args->dim % args->n_heads)
        return oct_fail(err, OCT_INVALID,
                        "n_heads: doesn't divide dim; expected a divisor of %lld; got %lld",
                        (long long)args->dim, (long long)args->n_heads);
    int64_t n_kv_heads = args->n_kv_heads ? args->n_kv_heads : args->n_heads;
    if (args->n_heads % n_kv_heads)
        return oct_fail(err, OCT_INVALID,
                        "n_kv_heads: doesn't divide n_heads; expected a divisor of %lld; got %lld",
                        (long long)args->n_heads, (long long)n_kv_heads);
    int64_t head_dim = args->head_dim ? args->head_dim : args->dim / args->n_heads;
    if (head_dim % 2)
        return oct_fail(err, OCT_INVALID,
                        "head_dim: rotary positions turn pairs; expected an even number; got %lld",
                        (long long)head_dim);
    if (args->n_heads * head_dim > MAX_WIDE)
        return oct_fail(err, OCT_INVALID,
                        "head_dim: too wide; expected n_heads * head_dim of at most %d; got %lld",
                        MAX_WIDE, (long long)(args->n_heads * head_dim));
    int64_t hidden_dim = args->hidden_dim ? args->hidden_dim : derived_hidden_dim(args);
    if (hidden_dim > MAX_WIDE)
        return oct_fail(err, OCT_INVALID, "hidden_dim: too wide; expected at most %d; got %lld",
                        MAX_WIDE, (long long)hidden_dim);
    if (args->rope_scaling == OCT_ROPE_LLAMA3 &&
        !(args->rope_high_freq_factor > args->rope_low_freq_factor))
        return oct_fail(err, OCT_INVALID,
                        "rope_high_freq_factor: impossible value; expected more than "
                        "rope_low_freq_factor (%g); got %g",
                        args->rope_low_freq_factor, args->rope_high_freq_factor);
    args->n_kv_heads = n_kv_heads;
    args->head_dim = head_dim;
    args->hidden_dim = hidden_dim;
    return OCT_OK;
}
