/* A trained model as a folder that other programs load: what export/export.h needs, from a
 * checkpoint or a Hugging Face folder. */
#ifndef OCT_EXPORT_EXPORT_SOURCE_H
#define OCT_EXPORT_EXPORT_SOURCE_H

#include "export/export.h"
#include "job/model_source.h"

typedef struct oct_export_request {
    oct_export_format format;
    /* float32, bfloat16 or float16. NULL: of a checkpoint checkpoint.export_dtype; beside weights
     * in 8 bits, unless that was set, training.mixed_precision_param, which training multiplied in.
     * A folder's tensors stay what they are. */
    const char *dtype;
    size_t max_shard_bytes;  /* of a file; 0: 5 GiB */
    int (*stop)(void *user); /* as oct_export has it; NULL: never */
    void *stop_user;
} oct_export_request;

/* Writes `target` as oct_export_write does: config.json as transformers 4 and 5 read it,
 * generation_config.json, the tokenizer's files where the source has a tokenizer (else with a
 * warning), the tensors. What its classes compute otherwise is a warning. OCT_INVALID: also a model
 * that transformers has no words for. */
oct_status oct_export_source(const oct_model_source *source, const oct_export_request *request,
                             const char *target, oct_export_summary *summary, oct_error *err);

#endif
