/* Any bytes as a safetensors file: refused, or every byte of every tensor is inside. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static volatile uint8_t last_read; /* keeps the reads */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    oct_safetensors *file = NULL;
    oct_error err = {0};
    if (oct_safetensors_parse(bytes, n_bytes, "fuzz", &file, &err)) {
        if (!err.message[0] || strchr(err.message, '\n'))
            abort();
        return 0;
    }
    size_t total = 0;
    for (int64_t i = 0; i < oct_safetensors_count(file); i++) {
        const oct_safetensors_tensor *t = oct_safetensors_get(file, i);
        for (size_t k = 0; t->data && k < t->n_bytes; k++)
            last_read = ((const uint8_t *)t->data)[k];
        total += t->n_bytes;
        if (oct_safetensors_find(file, t->name) != t)
            abort();
    }
    if (total > n_bytes)
        abort();
    oct_safetensors_close(file);
    return 0;
}
