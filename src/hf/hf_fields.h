/* The keys of config.json that have a value in oct_hf_config, as tables for reading and writing.
 * Internal to the files hf_*.c of this room. */
#ifndef OCT_HF_HF_FIELDS_H
#define OCT_HF_HF_FIELDS_H

#include "base/count.h"
#include "file/json.h"
#include "hf/hf_config.h"

/* Bounds that keep every product of sizes (experts x rows x columns x 8 bytes) inside 63 bits. */
#define OCT_HF_MAX_WIDTH ((int64_t)1 << 22)
#define OCT_HF_MAX_VOCAB ((int64_t)1 << 28)
#define OCT_HF_MAX_LAYERS 100000
#define OCT_HF_MAX_EXPERTS ((int64_t)1 << 14)
#define OCT_HF_MAX_POSITIONS ((int64_t)1 << 40)

typedef enum oct_hf_kind { OCT_HF_TEXT, OCT_HF_SIZE, OCT_HF_REAL, OCT_HF_SWITCH } oct_hf_kind;

/* What a null, or a missing key, means. */
typedef enum oct_hf_absence {
    OCT_HF_REQUIRED, /* neither may be */
    OCT_HF_DEFAULT,  /* missing: the default; null: refused */
    OCT_HF_NULLABLE, /* null: none (0; an id: -1), missing: the default */
    OCT_HF_READ_ONLY /* as DEFAULT; another spelling, never written */
} oct_hf_absence;

typedef struct oct_hf_field {
    const char *key;
    oct_hf_kind kind;
    size_t offset; /* in oct_hf_config */
    int families;  /* bits 1 << oct_hf_family: those whose config.json has the key */
    oct_hf_absence absence;
    double low, high; /* inclusive; for sizes and reals */
} oct_hf_field;

typedef struct oct_hf_fields {
    const oct_hf_field *list;
    size_t n;
} oct_hf_fields;

/* Those of the root, and those of rope_scaling or rope_parameters for a type. */
oct_hf_fields oct_hf_root_fields(void);
oct_hf_fields oct_hf_rope_fields(oct_hf_rope_type type);
const char *oct_hf_rope_name(oct_hf_rope_type type); /* "llama3", ... */

/* Reads those of the family from the object `in`; `where` goes before keys in messages: "" or
 * "rope_scaling: ". */
oct_status oct_hf_read_fields(const char *file, const char *where, const json_t *in,
                              oct_hf_fields fields, oct_hf_config *config, oct_error *err);
oct_status oct_hf_read_field(const char *file, const char *where, const json_t *value,
                             const oct_hf_field *field, void *to, oct_error *err);

/* rope_theta, rope_scaling and rope_parameters; nothing of them is ignored. Needs
 * max_position_embeddings. */
oct_status oct_hf_read_rope(const char *file, const json_t *root, oct_hf_config *config,
                            oct_error *err);
/* sliding_window and what says which layers have it; no_rope_layers; mlp_only_layers. */
oct_status oct_hf_read_layers(const char *file, const json_t *root, oct_hf_config *config,
                              oct_error *err);
/* quantization_config. */
oct_status oct_hf_read_quantization(const char *file, const json_t *root, oct_hf_config *config,
                                    oct_error *err);
/* Refuses, all in one line, the keys that nobody uses, unless they are known to change nothing. */
oct_status oct_hf_refuse_unknown(const char *file, const json_t *root, const oct_hf_config *config,
                                 oct_error *err);
/* The same for an object inside, whose keys are `known`: those of the list and of `fields`. */
oct_status oct_hf_refuse_unknown_in(const char *file, const char *where, const json_t *object,
                                    const char *const *known, size_t n_known, oct_hf_fields fields,
                                    oct_error *err);

/* A key's value; NULL where it is missing or null. */
static inline const json_t *oct_hf_get(const json_t *in, const char *key) {
    const json_t *value = json_object_get(in, key);
    return json_is_null(value) ? NULL : value;
}

#endif
