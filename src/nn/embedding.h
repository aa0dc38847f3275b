/* Embedding: y (T,D) = rows x[t] of weight (V,D); x is I32 (T), and gets no gradient. */
#ifndef OCT_NN_EMBEDDING_H
#define OCT_NN_EMBEDDING_H

#include "nn/module.h"

typedef struct oct_embedding {
    oct_module base;
    oct_param *weight; /* (V,D) */
} oct_embedding;

/* The parent owns the result. Forward with an id outside 0 .. V-1 is OCT_INVALID. */
oct_status oct_embedding_create(oct_module *parent, const char *component, int64_t V, int64_t D,
                                oct_init init, oct_embedding **out);

#endif
