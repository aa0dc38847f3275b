/* The tensors of an export, one by one, each made when it is asked for: Hugging Face's names, order
 * of rows and one tensor an expert. Internal to the room. */
#ifndef OCT_EXPORT_TENSORS_H
#define OCT_EXPORT_TENSORS_H

#include "base/arena.h"
#include "export/dialect.h"
#include "export/export.h"
#include "model/hf_names.h"

typedef enum oct_export_part { OCT_PART_VALUES, OCT_PART_CODES, OCT_PART_SCALES } oct_export_part;

typedef struct oct_export_tensors oct_export_tensors;

typedef struct oct_export_tensor {
    char name[OCT_HF_MODULE_NAME_SIZE + 16];
    oct_export_tensors *all;
    const oct_param *param;   /* NULL: `bias` is meant */
    const float *bias;        /* of a router (E) */
    int64_t expert;           /* slice of an (E,N,K) parameter; 0 for others */
    const oct_recipe *recipe; /* of codes and scales */
    oct_export_part part;
    oct_dtype dtype;
    int n_dims;
    int64_t shape[2];
} oct_export_tensor;

struct oct_export_tensors {
    const oct_export *e;
    oct_export_tensor *list;
    size_t n, capacity;
    char **ignored; /* modules that stay high though the format could hold them in 8 bits */
    size_t n_ignored, ignored_capacity;
    oct_export_summary summary;
    oct_arena *arena;
};

/* Lists them; makes the checks of oct_export_check. Zero-initialise; free whatever the status. */
oct_status oct_export_tensors_list(const oct_export *e, oct_export_tensors *tensors,
                                   oct_error *err);
void oct_export_tensors_free(oct_export_tensors *tensors);

size_t oct_export_tensor_bytes(const oct_export_tensor *tensor);
/* Its bytes to `to`. OCT_INVALID: a value that the dtype can't hold. */
oct_status oct_export_tensor_make(const oct_export_tensor *tensor, void *to, oct_error *err);

#endif
