/* Element types and tensor views: see octet/tensor.h. */
#include <octet/tensor.h>

static const struct {
    size_t n_bytes;
    const char *name;
} dtypes[OCT_N_DTYPES] = {
    [OCT_F32] = {4, "float32"}, [OCT_BF16] = {2, "bfloat16"}, [OCT_E4M3] = {1, "E4M3"},
    [OCT_E5M2] = {1, "E5M2"},   [OCT_HIF8] = {1, "HiF8"},     [OCT_E8M0] = {1, "E8M0"},
    [OCT_F64] = {8, "float64"}, [OCT_F16] = {2, "float16"},   [OCT_I64] = {8, "int64"},
    [OCT_I32] = {4, "int32"},   [OCT_I16] = {2, "int16"},     [OCT_I8] = {1, "int8"},
    [OCT_U8] = {1, "uint8"},    [OCT_BOOL] = {1, "bool"},
};

static int is_dtype(oct_dtype dtype) {
    return (unsigned)dtype < OCT_N_DTYPES;
}

size_t oct_dtype_bytes(oct_dtype dtype) {
    return is_dtype(dtype) ? dtypes[dtype].n_bytes : 0;
}

const char *oct_dtype_name(oct_dtype dtype) {
    return is_dtype(dtype) ? dtypes[dtype].name : "unknown";
}

oct_tensor oct_tensor_1d(oct_dtype dtype, int64_t n, void *data) {
    return (oct_tensor){.dtype = dtype, .n_dims = 1, .shape = {n}, .data = data};
}

oct_tensor oct_tensor_2d(oct_dtype dtype, int64_t rows, int64_t cols, void *data) {
    return (oct_tensor){.dtype = dtype, .n_dims = 2, .shape = {rows, cols}, .data = data};
}

int64_t oct_tensor_elements(const oct_tensor *tensor) {
    int64_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        n *= tensor->shape[i];
    return n;
}

size_t oct_tensor_bytes(const oct_tensor *tensor) {
    return (size_t)oct_tensor_elements(tensor) * oct_dtype_bytes(tensor->dtype);
}

int64_t oct_tensor_rows(const oct_tensor *tensor) {
    int64_t n = 1;
    for (int i = 0; i + 1 < tensor->n_dims; i++)
        n *= tensor->shape[i];
    return n;
}

int64_t oct_tensor_cols(const oct_tensor *tensor) {
    return tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1;
}
