/* The Hugging Face names of a model's modules and parameters, and how its weights lie there.
 *
 * torchtitan's llama3 rotates neighbouring elements of a head, Hugging Face's rotates an element of
 * the first half with one of the second: rows of wq and wk are permuted within each head on the
 * way. qwen3 and deepseek_v3 are the same on both sides. Experts are one tensor (E,N,K) a weight
 * here and a tensor an expert there. */
#ifndef OCT_MODEL_HF_NAMES_H
#define OCT_MODEL_HF_NAMES_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/args.h"
#include "nn/module.h"

#define OCT_HF_MODULE_NAME_SIZE 160

/* "layers.3.attention.wq" -> "model.layers.3.self_attn.q_proj", "output.weight" ->
 * "lm_head.weight". True if the name is one of the family's; names of parents
 * ("layers.3.attention") count. */
bool oct_hf_name(oct_model_family family, const char *name, char out[OCT_HF_MODULE_NAME_SIZE]);
/* The tensor there that is slice `expert` of the parameter "layers.N.moe.experts.wM"; false for
 * other names. oct_hf_name has no name for such a parameter as a whole. */
bool oct_hf_expert_name(oct_model_family family, const char *name, int64_t expert,
                        char out[OCT_HF_MODULE_NAME_SIZE]);
/* The way back of oct_hf_name. */
bool oct_name_from_hf(oct_model_family family, const char *hf_name,
                      char out[OCT_HF_MODULE_NAME_SIZE]);

/* An oct_module_namer (convert/plan.h): `context` is an oct_hf_namer, whose buffer the result is
 * in. A module without such a name keeps its own. */
typedef struct oct_hf_namer {
    oct_model_family family;
    char name[OCT_HF_MODULE_NAME_SIZE];
} oct_hf_namer;
const char *oct_hf_namer_name(void *context, const oct_module *m);

/* Number of heads whose rows must be permuted between torchtitan's order and Hugging Face's for the
 * parameter `name` (torchtitan's); 0: the same on both sides. */
int64_t oct_hf_permuted_heads(const oct_model_args *args, const char *name);

typedef enum oct_hf_direction { OCT_TO_HF, OCT_FROM_HF } oct_hf_direction;
/* Permutes the rows (of n_bytes_per_row) of each of n_heads heads of head_dim rows; src and dst
 * must not overlap. */
void oct_hf_permute_rows(oct_hf_direction direction, int64_t n_heads, int64_t head_dim,
                         size_t n_bytes_per_row, const void *src, void *dst);

#endif
