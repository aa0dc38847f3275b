/* A model's modules, for the files of this room. */
#ifndef OCT_MODEL_TREE_H
#define OCT_MODEL_TREE_H

#include "model/model.h"
#include "nn/embedding.h"
#include "nn/moe.h"

struct oct_model {
    oct_module base; /* the root; it owns the tree */
    oct_model_args args;
    oct_rotary rotary;
    int32_t document_end; /* the token that ends a document; -1: not set */
    oct_embedding *tok_embeddings;
    oct_block **layers; /* args.n_layers */
    oct_moe **moes;     /* the layers' experts, NULL in dense layers */
    oct_norm *norm;
    oct_linear *output;
    oct_param **params;
    int64_t n_params;
    oct_arena_mark saved; /* of the step's saved stack, before the last saving oct_model_forward */
};

#endif
