/* Quantizers by the name of a recipe and of the framework whose rules hold: the same table that
 * jobs use. docs/library.md has it with the source of each entry, and what differs from the
 * framework. */
#ifndef OCTET_PRESET_H
#define OCTET_PRESET_H

#include <octet/api.h>
#include <octet/matrix.h>
#include <octet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is quantized: rules may differ in each. */
typedef enum oct_use {
    OCT_USE_INPUT = 0,
    OCT_USE_WEIGHT = 1,
    OCT_USE_GRADIENT = 2,   /* of an output */
    OCT_USE_OF_EXPERTS = 4, /* is added to one of them, of mixtures of experts */
    OCT_USE_EXPERT_INPUT = 4,
    OCT_USE_EXPERT_WEIGHT = 5,
    OCT_USE_EXPERT_GRADIENT = 6
} oct_use;

/* Fills *out, whose struct_size is set. `recipe`: one of a job's ("mxfp8", "hif8", ...), "e4m3",
 * "e5m2" or "hif8" followed by ":tensor", ":channel", ":1x128", ":128x128" or any ":RxC" (fp32
 * scales; R or C of "*": all), or ":mx", ":mx32x32", with a scale mode of its own as in
 * ":mx-rceil". `rules`: "octet" (NULL), "torchtitan-npu", "mindspeed", "torchtitan", "torchao",
 * "transformer-engine" or "ocp", with a version ("@...") or without. `axis`: 1 for blocks along the
 * rows, for products that contract over columns; 0 for the other. OCT_INVALID says what is unknown,
 * or what the rules don't have. */
OCT_API oct_status oct_quantizer_preset(const char *recipe, const char *rules, oct_use use,
                                        int axis, oct_quantizer *out, oct_error *err);

/* The i-th set of rules' name with its version; NULL behind the last. */
OCT_API const char *oct_rules_name(int i);

#ifdef __cplusplus
}
#endif
#endif
