/* How a config.json says rotary positions: rope_theta beside rope_scaling, or transformers 5's
 * rope_parameters, which holds both. See hf_fields.h. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/count.h"
#include "hf/hf_fields.h"

static const char *const type_names[] = {[OCT_HF_ROPE_DEFAULT] = "default",
                                         [OCT_HF_ROPE_LINEAR] = "linear",
                                         [OCT_HF_ROPE_DYNAMIC] = "dynamic",
                                         [OCT_HF_ROPE_LLAMA3] = "llama3",
                                         [OCT_HF_ROPE_YARN] = "yarn"};

const char *oct_hf_rope_name(oct_hf_rope_type type) {
    return type_names[type];
}

enum { ALL = (1 << OCT_N_HF_FAMILIES) - 1 };
#define AT(member) offsetof(oct_hf_config, member)
#define REAL(key, member, absence, low, high)                                                      \
    { key, OCT_HF_REAL, AT(member), ALL, absence, low, high }
#define ORIGINAL                                                                                   \
    {                                                                                              \
        "original_max_position_embeddings", OCT_HF_SIZE,                                           \
            AT(rope_original_max_position_embeddings), ALL, OCT_HF_NULLABLE, 1,                    \
            OCT_HF_MAX_POSITIONS                                                                   \
    }

static const oct_hf_field scaled_fields[] = {REAL("factor", rope_factor, OCT_HF_REQUIRED, 1, 1e6)};
static const oct_hf_field dynamic_fields[] = {REAL("factor", rope_factor, OCT_HF_REQUIRED, 1, 1e6),
                                              ORIGINAL};
static const oct_hf_field llama3_fields[] = {
    REAL("factor", rope_factor, OCT_HF_REQUIRED, 1, 1e6), ORIGINAL,
    REAL("low_freq_factor", rope_low_freq_factor, OCT_HF_REQUIRED, 1e-6, 1e6),
    REAL("high_freq_factor", rope_high_freq_factor, OCT_HF_REQUIRED, 1e-6, 1e6)};
static const oct_hf_field yarn_fields[] = {
    REAL("factor", rope_factor, OCT_HF_REQUIRED, 1, 1e6),
    ORIGINAL,
    REAL("attention_factor", rope_attention_factor, OCT_HF_NULLABLE, 1e-6, 1e6),
    REAL("beta_fast", rope_beta_fast, OCT_HF_NULLABLE, 0, 1e6),
    REAL("beta_slow", rope_beta_slow, OCT_HF_NULLABLE, 0, 1e6),
    REAL("mscale", rope_mscale, OCT_HF_NULLABLE, 0, 1e6),
    REAL("mscale_all_dim", rope_mscale_all_dim, OCT_HF_NULLABLE, 0, 1e6),
    {"truncate", OCT_HF_SWITCH, AT(rope_truncate), ALL, OCT_HF_DEFAULT, 0, 0}};

oct_hf_fields oct_hf_rope_fields(oct_hf_rope_type type) {
    switch (type) {
    case OCT_HF_ROPE_LINEAR:
        return (oct_hf_fields){scaled_fields, OCT_COUNT(scaled_fields)};
    case OCT_HF_ROPE_DYNAMIC:
        return (oct_hf_fields){dynamic_fields, OCT_COUNT(dynamic_fields)};
    case OCT_HF_ROPE_LLAMA3:
        return (oct_hf_fields){llama3_fields, OCT_COUNT(llama3_fields)};
    case OCT_HF_ROPE_YARN:
        return (oct_hf_fields){yarn_fields, OCT_COUNT(yarn_fields)};
    case OCT_HF_ROPE_DEFAULT:
    case OCT_N_HF_ROPE_TYPES:
        break;
    }
    return (oct_hf_fields){NULL, 0};
}

/* "rope_type", or "type", its older name; neither is the plain rotation. */
static oct_status read_type(const char *file, const char *key, const json_t *in,
                            oct_hf_rope_type *type, oct_error *err) {
    const json_t *value = oct_hf_get(in, "rope_type");
    if (!value)
        value = oct_hf_get(in, "type");
    const char *name = value ? json_string_value(value) : type_names[OCT_HF_ROPE_DEFAULT];
    for (int i = 0; name && i < OCT_N_HF_ROPE_TYPES; i++) {
        *type = (oct_hf_rope_type)i;
        if (strcmp(name, type_names[i]) == 0)
            return OCT_OK;
    }
    return oct_fail(err, OCT_INVALID,
                    "%s: %s: rope_type: expected default, linear, dynamic, llama3 or yarn; got %s",
                    file, key, name ? oct_show(name).text : oct_json_kind(value));
}

/* The base may stand in both places, but not twice. */
static oct_status read_theta(const char *file, const char *where, const json_t *root,
                             const json_t *in, oct_hf_config *config, oct_error *err) {
    static const oct_hf_field theta = {
        "rope_theta", OCT_HF_REAL, AT(rope_theta), ALL, OCT_HF_DEFAULT, 1e-3, 1e30};
    const json_t *value = oct_hf_get(in, theta.key), *outer = oct_hf_get(root, theta.key);
    if (!value)
        return OCT_OK;
    oct_status status = oct_hf_read_field(file, where, value, &theta, &config->rope_theta, err);
    if (!status && outer && json_number_value(outer) != config->rope_theta)
        return oct_fail(err, OCT_INVALID, "%s: %srope_theta: expected the %g beside it; got %g",
                        file, where, json_number_value(outer), config->rope_theta);
    return status;
}

/* What the type's table can't say. */
static oct_status check_scaling(const char *file, const char *where, oct_hf_config *c,
                                oct_error *err) {
    int64_t *original = &c->rope_original_max_position_embeddings;
    if (c->rope_type == OCT_HF_ROPE_DYNAMIC && *original && *original != c->max_position_embeddings)
        return oct_fail(err, OCT_INVALID,
                        "%s: %soriginal_max_position_embeddings: transformers stretches past "
                        "max_position_embeddings; expected %" PRId64 " or nothing; got %" PRId64,
                        file, where, c->max_position_embeddings, *original);
    if (!*original)
        *original = c->max_position_embeddings;
    if (c->rope_type == OCT_HF_ROPE_LLAMA3 && c->rope_low_freq_factor >= c->rope_high_freq_factor)
        return oct_fail(err, OCT_INVALID,
                        "%s: %slow_freq_factor: expected less than high_freq_factor %g; got %g",
                        file, where, c->rope_high_freq_factor, c->rope_low_freq_factor);
    if (c->rope_beta_fast == 0)
        c->rope_beta_fast = 32;
    if (c->rope_beta_slow == 0)
        c->rope_beta_slow = 1;
    return OCT_OK;
}

/* The whole head turns: a part of it isn't supported. */
static oct_status check_partial(const char *file, const char *where, const json_t *in,
                                oct_error *err) {
    const json_t *value = oct_hf_get(in, "partial_rotary_factor");
    if (!value || (json_is_number(value) && json_number_value(value) == 1))
        return OCT_OK;
    return oct_fail(err, OCT_INVALID, "%s: %spartial_rotary_factor: not supported; expected 1",
                    file, where);
}

oct_status oct_hf_read_rope(const char *file, const json_t *root, oct_hf_config *config,
                            oct_error *err) {
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    const json_t *older = oct_hf_get(root, "rope_scaling");
    const json_t *newer = oct_hf_get(root, "rope_parameters");
    const json_t *in = newer ? newer : older;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    const char *where = newer ? "rope_parameters: " : "rope_scaling: ";
    oct_status status = check_partial(file, "", root, err);
    if (status || !in)
        return status;
    if (!json_is_object(in))
        return oct_fail(err, OCT_INVALID, "%s: %s: expected an object; got %s", file, key,
                        oct_json_kind(in));
    if (older && newer && !json_equal(older, newer))
        return oct_fail(err, OCT_INVALID,
                        "%s: rope_parameters: expected what rope_scaling says, or one of both",
                        file);
    status = read_type(file, key, in, &config->rope_type, err);
    if (!status)
        status = read_theta(file, where, root, in, config, err);
    if (!status)
        status = check_partial(file, where, in, err);
    if (status)
        return status;
    oct_hf_fields fields = oct_hf_rope_fields(config->rope_type);
    status = oct_hf_refuse_unknown_in(file, where, in, known, OCT_COUNT(known), fields, err);
    if (!status)
        status = oct_hf_read_fields(file, where, in, fields, config, err);
    if (status || fields.n == 0)
        return status;
    return check_scaling(file, where, config, err);
}

static double yarn_scale(double factor, double mscale) {
    return 0.1 * mscale * log(factor) + 1.0;
}

double oct_hf_config_rope_factor(const oct_hf_config *c) {
    if (c->rope_type != OCT_HF_ROPE_YARN)
        return 1;
    if (c->rope_attention_factor > 0)
        return c->rope_attention_factor;
    if (c->rope_mscale > 0 && c->rope_mscale_all_dim > 0)
        return yarn_scale(c->rope_factor, c->rope_mscale) /
               yarn_scale(c->rope_factor, c->rope_mscale_all_dim);
    return yarn_scale(c->rope_factor, 1);
}
