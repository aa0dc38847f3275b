/* A trained model as a folder that other programs load: config.json, sharded safetensors with
 * Hugging Face's names, the tokenizer's files.
 *
 * Invariants: the folder appears whole, by one rename, after every tensor of it was read back and
 * compared with the model bit for bit; nothing that was there before is replaced; and what a format
 * can't hold is refused by name, never rounded away. Weights in 8 bits are those that the products
 * of training have: the same quantizer, recipe and rules. */
#ifndef OCT_EXPORT_EXPORT_H
#define OCT_EXPORT_EXPORT_H

#include <octet/status.h>

#include "checkpoint/checkpoint.h"
#include "convert/plan.h"
#include "hf/hf_folder.h"
#include "model/model.h"

typedef enum oct_export_format {
    OCT_EXPORT_HF,                 /* every tensor in high precision */
    OCT_EXPORT_COMPRESSED_TENSORS, /* three dialects of MXFP8: F8_E4M3 codes, one E8M0 byte for */
    OCT_EXPORT_MODELOPT,           /* each 32 elements of a row (N, ceil(K/32)) */
    OCT_EXPORT_MXFP8,
    OCT_EXPORT_DCP, /* torchtitan's own: torch.distributed.checkpoint, octet's names and order */
    OCT_N_EXPORT_FORMATS
} oct_export_format;
const char *oct_export_format_name(oct_export_format format); /* "compressed-tensors", ... */
/* OCT_INVALID lists what there is, with the nearest; "hif8" is told why it isn't there. */
oct_status oct_export_format_parse(const char *name, oct_export_format *format, oct_error *err);

typedef struct oct_export {
    oct_export_format format;
    oct_dtype dtype;          /* of tensors in high precision: F32, BF16 or F16; routers' biases are
                                 always F32 */
    const oct_hf_model *like; /* NULL: none. Each tensor gets the dtype that it has there, where
                                 that is one of these three */
    size_t max_shard_bytes;   /* of a file; 0: 5 GiB */
    const oct_model *model;   /* whole, of one process */
    const oct_plan *plan;     /* what is in 8 bits, by which recipe; not used with DCP */
    const char *config;       /* the text of config.json but for the quantization; NULL with DCP */
    const oct_checkpoint_file *files; /* further ones, as they are */
    size_t n_files;
    /* A last look at the folder under its temporary name; NULL: none. */
    oct_status (*check)(void *user, const char *folder, oct_error *err);
    void *check_user;
    int (*stop)(void *user); /* asked before each tensor: not 0 ends the export; NULL: never */
    void *stop_user;
} oct_export;

typedef struct oct_export_summary {
    int64_t n_tensors;           /* in the files */
    int64_t n_quantized, n_high; /* weights of linears and experts in 8 bits, and left high */
    size_t n_bytes;              /* of tensor data */
} oct_export_summary;

/* Whether a folder of this name can be made: OCT_INVALID, if it exists or is no name of one. */
oct_status oct_export_check_target(const char *target, oct_error *err);

/* Writes the folder `target`, which mustn't exist; parents are made. What an export that was killed
 * left beside it is removed. OCT_INVALID: a recipe that the format can't hold, a plan that
 * converts nothing, a router's bias that the family has no tensor for, a path that can't be, a
 * value that the dtype can't hold; OCT_FAILED: the disk, or options.stop. Nothing is left then. One
 * thread at a time; kernels bring their own. */
oct_status oct_export_write(const oct_export *e, const char *target, oct_export_summary *summary,
                            oct_error *err);

#endif
