/* Prompts from a file. */
#ifndef OCT_INFER_PROMPTS_H
#define OCT_INFER_PROMPTS_H

#include <octet/status.h>
#include <stddef.h>

/* Zero-initialise; end with oct_prompts_free. */
typedef struct oct_prompts {
    char **list; /* owned */
    size_t n, capacity;
} oct_prompts;

/* One prompt a line; of a `.jsonl` file each object's "prompt", which may have several lines.
 * OCT_INVALID: a file that can't be read, has none, or holds a NUL byte. */
oct_status oct_prompts_read(const char *path, oct_prompts *prompts, oct_error *err);
void oct_prompts_free(oct_prompts *prompts);

#endif
