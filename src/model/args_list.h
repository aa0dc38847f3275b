/* A model's arguments one by one, by name: to record them, and to compare two models without a list
 * of what there is to compare. tests/model/check_args.py holds the list to the struct. */
#ifndef OCT_MODEL_ARGS_LIST_H
#define OCT_MODEL_ARGS_LIST_H

#include "base/strbuf.h"
#include "model/args.h"

/* The name of argument i: that of its member in oct_model_args; the first is "family". NULL past
 * the last. The flavor's name isn't among them: it says nothing that the others don't. */
const char *oct_model_args_name(size_t i);

/* Appends the value of argument i as JSON writes it: 64, 1e-05, true, "softmax". Reals come back to
 * the bit. Check to->failed after. */
void oct_model_args_put(const oct_model_args *args, size_t i, oct_strbuf *to);

/* Sets the argument of that name to what oct_model_args_put wrote. OCT_INVALID: an unknown name, or
 * a value of another type or out of all range; the message begins with the name. What belongs
 * together is for oct_model_args_resolve to check. */
oct_status oct_model_args_take(oct_model_args *args, const char *name, oct_arg value,
                               oct_error *err);

#endif
