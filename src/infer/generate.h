/* Texts that a trained model goes on with, several at a time. */
#ifndef OCT_INFER_GENERATE_H
#define OCT_INFER_GENERATE_H

#include "infer/inference.h"
#include "infer/sampling.h"

typedef enum oct_generation_end {
    OCT_END_BY_LENGTH, /* max_new tokens are there */
    OCT_END_BY_TOKEN,  /* the model ended the text */
    OCT_END_BY_STOP    /* a stop string came */
} oct_generation_end;

typedef struct oct_generation {
    int64_t max_new; /* tokens of each text, at most */
    oct_sampling sampling;
    const char *const *stops; /* a text ends before the first of these in what is generated; none */
    size_t n_stops;           /* is empty */
} oct_generation;

typedef struct oct_generated {
    oct_generation_end end;
    int64_t n_tokens; /* that were drawn, without an end token */
} oct_generated;

/* Bytes that belong to text `which`, as they come; what may still become a stop string waits. */
typedef void (*oct_text_sink)(void *user, size_t which, const char *bytes, size_t n_bytes);

/* Continues each of the n prompts. They share each product: at a position each takes its next token
 * of the prompt, or the one that was drawn, so that short prompts wait for no padding; a text is
 * what it would be alone, as far as the recipe's scales don't span the rows of a batch. Their
 * tokens and max_new fit into the positions that the model was opened for, else OCT_INVALID, as for
 * an empty prompt where the tokenizer has nothing to begin with. `results` (n). */
oct_status oct_inference_generate(oct_inference *inference, const char *const *prompts, size_t n,
                                  const oct_generation *generation, oct_text_sink sink, void *user,
                                  oct_generated *results, oct_error *err);

#endif
