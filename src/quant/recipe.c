/* The recipe grammar: see recipe.h. */
#include "quant/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/count.h"
#include "base/nearest.h"
#include "format/fp8.h"

#define MAX_PARTS 8
#define MAX_ALSO 4

/* Largest values with three and with two mantissa bits (docs/numerics.md). */
#define HIF8_TARGET 15.0f
#define HIF8_GRAD_TARGET 224.0f
/* The Ascend operator's default: amax maps to the largest finite HiF8 value. */
#define HIF8_FULL_RANGE_TARGET 32768.0f

/* Some names leave nothing to the rules of quant/rules.h: they mean the same everywhere. */
static const struct short_name {
    const char *name, *meaning;
    bool names_scale_mode;
    oct_scale_mode scale_mode;
    float target, grad_target; /* 0: left to the rules */
} short_names[] = {
    {.name = "mxfp8", .meaning = "dynamic_mx-1-1-32_e4m3_e4m3_e4m3"},
    {.name = "mxfp8-32x32", .meaning = "dynamic_mx-1-32-32_e4m3_e4m3_e4m3"},
    {.name = "mxfp8_cublas",
     .meaning = "dynamic_mx-1-1-32_e4m3_e4m3_e4m3",
     .names_scale_mode = true,
     .scale_mode = OCT_SCALE_FLOOR},
    {.name = "mxfp8_cublas_rceil",
     .meaning = "dynamic_mx-1-1-32_e4m3_e4m3_e4m3",
     .names_scale_mode = true,
     .scale_mode = OCT_SCALE_RCEIL},
    {.name = "hif8", .meaning = "dynamic_per_tensor_hif8_hif8_hif8"},
    {.name = "hif8_full_range",
     .meaning = "dynamic_per_tensor_hif8_hif8_hif8",
     .target = HIF8_FULL_RANGE_TARGET,
     .grad_target = HIF8_FULL_RANGE_TARGET},
    {.name = "hif8_15_224",
     .meaning = "dynamic_per_tensor_hif8_hif8_hif8",
     .target = HIF8_TARGET,
     .grad_target = HIF8_GRAD_TARGET},
    {.name = "delayed_hif8_pertensor",
     .meaning = "delayed_per_tensor_hif8_hif8_hif8",
     .target = HIF8_TARGET,
     .grad_target = HIF8_GRAD_TARGET},
};
#define N_SHORT_NAMES (OCT_COUNT(short_names))

/* One line for users: every accepted recipe. */
static const char *known_recipes(void) {
    return "mxfp8, mxfp8-32x32, mxfp8_cublas, mxfp8_cublas_rceil, hif8, hif8_full_range, "
           "hif8_15_224, delayed_hif8_pertensor, or "
           "<strategy>_<granularity>_<inputs>_<weights>_<grads>: dynamic or delayed per_tensor "
           "with E4M3, "
           "E5M2 or HiF8; dynamic per_channel, mx-1-1-32 or mx-1-32-32 with E4M3 or E5M2";
}

static oct_status refuse(const char *name, const char *what, const char *const *also, size_t n_also,
                         oct_error *err) {
    const char *names[N_SHORT_NAMES + MAX_ALSO];
    char others[64] = "";
    size_t n = 0, used = 0;
    for (; n < n_also && n < MAX_ALSO && used < sizeof others; n++) {
        names[n] = also[n];
        used += (size_t)snprintf(others + used, sizeof others - used, "%s, ", also[n]);
    }
    for (size_t i = 0; i < N_SHORT_NAMES; i++)
        names[n++] = short_names[i].name;
    const char *near = oct_nearest_name(name, names, n);
    return oct_fail(err, OCT_INVALID, "recipe \"%.100s\": %s%s%s%s; expected %s%s", name, what,
                    near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", others,
                    known_recipes());
}

static bool parse_format(const char *text, oct_dtype *format) {
    static const struct {
        const char *name;
        oct_dtype format;
    } formats[] = {{"e4m3", OCT_E4M3}, {"e5m2", OCT_E5M2}, {"hif8", OCT_HIF8}};
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(text, formats[i].name) == 0) {
            *format = formats[i].format;
            return true;
        }
    }
    return false;
}

/* Splits lower-cased text at underscores, in place. Returns the number of parts, 0 for too many. */
static int split(char *text, char *parts[MAX_PARTS]) {
    int n = 0;
    for (char *part = text; part; n++) {
        if (n == MAX_PARTS)
            return 0;
        char *end = strchr(part, '_');
        if (end)
            *end++ = '\0';
        parts[n] = part;
        part = end;
    }
    return n;
}

static bool parse_mx_block(const char *block, oct_recipe *recipe) {
    if (!*block || strcmp(block, "-1-1-32") == 0) {
        recipe->weight_block_rows = 1;
        return true;
    }
    recipe->weight_block_rows = OCT_MX_BLOCK;
    return strcmp(block, "-1-32-32") == 0;
}

/* `text` is the granularity with its optional block, joined over underscores. */
static const char *parse_granularity(const char *text, oct_recipe *recipe) {
    recipe->weight_block_rows = 1;
    if (strncmp(text, "mx", 2) == 0 && (text[2] == '\0' || text[2] == '-')) {
        recipe->granularity = OCT_MX;
        return parse_mx_block(text + 2, recipe) ? NULL : "the block of mx is 1-1-32 or 1-32-32";
    }
    if (strcmp(text, "pertensor") == 0)
        recipe->granularity = OCT_PER_TENSOR;
    else if (strcmp(text, "perchannel") == 0)
        recipe->granularity = OCT_PER_CHANNEL;
    else if (strncmp(text, "pertensor-", 10) == 0 || strncmp(text, "perchannel-", 11) == 0)
        return "a block goes with mx only";
    else
        return "the granularity is unknown";
    return NULL;
}

static float default_target(oct_dtype format, oct_role role) {
    if (format != OCT_HIF8)
        return oct_fp8_largest(format);
    return role == OCT_ROLE_GRAD ? HIF8_GRAD_TARGET : HIF8_TARGET;
}

static const char *check_supported(const oct_recipe *recipe) {
    if (recipe->strategy == OCT_DELAYED && recipe->granularity != OCT_PER_TENSOR)
        return "delayed scaling is for per_tensor only";
    for (int role = 0; role < OCT_N_ROLES; role++)
        if (recipe->format[role] == OCT_HIF8 && recipe->granularity != OCT_PER_TENSOR)
            return "HiF8 is for per_tensor only";
    return NULL;
}

/* Parses the long form, lower-cased. Returns NULL or what is wrong. */
static const char *parse_long(char *text, oct_recipe *recipe) {
    char *parts[MAX_PARTS];
    int n = split(text, parts);
    if (n < 5)
        return n ? "the name is unknown" : "too many parts";
    for (int role = 0; role < OCT_N_ROLES; role++) {
        if (!parse_format(parts[n - OCT_N_ROLES + role], &recipe->format[role]))
            return "a dtype is unknown";
    }
    if (strcmp(parts[0], "dynamic") == 0)
        recipe->strategy = OCT_DYNAMIC;
    else if (strcmp(parts[0], "delayed") == 0)
        recipe->strategy = OCT_DELAYED;
    else
        return "the strategy is unknown";
    char granularity[64] = "";
    for (int i = 1; i < n - OCT_N_ROLES; i++) /* "per_tensor" holds an underscore */
        strncat(granularity, parts[i], sizeof granularity - strlen(granularity) - 1);
    const char *wrong = parse_granularity(granularity, recipe);
    return wrong ? wrong : check_supported(recipe);
}

static void fix_what_it_names(const struct short_name *named, oct_recipe *recipe) {
    if (named->names_scale_mode) {
        recipe->names_scale_mode = true;
        recipe->scale_mode = recipe->wgrad_scale_mode = named->scale_mode;
    }
    recipe->names_targets = named->target > 0;
    for (int role = 0; role < OCT_N_ROLES && recipe->names_targets; role++)
        recipe->target[role] = role == OCT_ROLE_GRAD ? named->grad_target : named->target;
}

oct_status oct_recipe_parse(const char *name, oct_recipe *recipe, oct_error *err) {
    return oct_recipe_parse_beside(name, NULL, 0, recipe, err);
}

oct_status oct_recipe_parse_beside(const char *name, const char *const *also, size_t n_also,
                                   oct_recipe *recipe, oct_error *err) {
    char lower[sizeof recipe->name];
    size_t length = strlen(name);
    *recipe = (oct_recipe){.scale_mode = OCT_SCALE_RCEIL,
                           .wgrad_scale_mode = OCT_SCALE_RCEIL,
                           .gemm = OCT_GEMM_AUTO,
                           .amax_history_len = 16};
    if (length >= sizeof lower)
        return refuse(name, "the name is too long", also, n_also, err);
    memcpy(recipe->name, name, length + 1);
    for (size_t i = 0; i <= length; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    const struct short_name *named = NULL;
    for (size_t i = 0; i < N_SHORT_NAMES && !named; i++)
        if (strcmp(lower, short_names[i].name) == 0)
            named = &short_names[i];
    if (named)
        snprintf(lower, sizeof lower, "%s", named->meaning);
    const char *wrong = parse_long(lower, recipe);
    if (wrong)
        return refuse(name, wrong, also, n_also, err);
    for (int role = 0; role < OCT_N_ROLES; role++)
        recipe->target[role] = default_target(recipe->format[role], (oct_role)role);
    if (named)
        fix_what_it_names(named, recipe);
    return OCT_OK;
}

static const char *const scale_modes[] = {[OCT_SCALE_FLOOR] = "floor",
                                          [OCT_SCALE_CEIL] = "ceil",
                                          [OCT_SCALE_EVEN] = "even",
                                          [OCT_SCALE_RCEIL] = "rceil"};
static const char *const gemm_modes[] = {
    [OCT_GEMM_AUTO] = "auto", [OCT_GEMM_EXACT] = "exact", [OCT_GEMM_FAST] = "fast"};

static int find_name(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (strcasecmp(name, names[i]) == 0)
            return i;
    return -1;
}

oct_status oct_scale_mode_parse(const char *name, oct_scale_mode *mode, oct_error *err) {
    int i = find_name(name, scale_modes, OCT_COUNT(scale_modes));
    if (i < 0)
        return oct_fail(err, OCT_INVALID,
                        "scale_mode \"%.100s\" is unknown; expected floor, ceil, even or rceil",
                        name);
    *mode = (oct_scale_mode)i;
    return OCT_OK;
}

oct_status oct_gemm_mode_parse(const char *name, oct_gemm_mode *mode, oct_error *err) {
    const bool is_former = strcasecmp(name, "aligned") == 0;
    int i = is_former ? OCT_GEMM_FAST : find_name(name, gemm_modes, 3);
    if (i < 0)
        return oct_fail(err, OCT_INVALID,
                        "gemm \"%.100s\" is unknown; expected auto, exact or fast", name);
    *mode = (oct_gemm_mode)i;
    return OCT_OK;
}

const char *oct_scale_mode_name(oct_scale_mode mode) {
    return scale_modes[mode];
}

const char *oct_gemm_mode_name(oct_gemm_mode mode) {
    return gemm_modes[mode];
}
