/* A pool of large buffers: see buffers.h. */
#include "fsdp/buffers.h"

#include "base/alloc.h"

/* Units of a model have few sizes, so the smallest that fits wastes little; a buffer more than this
 * many times too large is left for others. */
#define MAX_WASTE 4

static oct_buffer *find_fit(oct_buffers *buffers, size_t n_bytes) {
    oct_buffer *best = NULL;
    for (int i = 0; i < OCT_MAX_BUFFERS; i++) {
        oct_buffer *b = &buffers->items[i];
        if (b->taken || !b->data || b->n_bytes < n_bytes || b->n_bytes / MAX_WASTE > n_bytes)
            continue;
        if (!best || b->n_bytes < best->n_bytes)
            best = b;
    }
    return best;
}

oct_buffer *oct_buffers_take(oct_buffers *buffers, size_t n_bytes) {
    oct_buffer *found = find_fit(buffers, n_bytes);
    for (int i = 0; i < OCT_MAX_BUFFERS && !found; i++) {
        oct_buffer *b = &buffers->items[i];
        if (b->taken || b->data)
            continue;
        b->data = oct_malloc(n_bytes);
        b->n_bytes = n_bytes;
        found = b->data ? b : NULL;
        if (!found)
            return NULL;
    }
    if (found)
        found->taken = 1;
    return found;
}

void oct_buffers_give_back(oct_buffer *buffer) {
    if (buffer)
        buffer->taken = 0;
}

void oct_buffers_clear(oct_buffers *buffers) {
    for (int i = 0; i < OCT_MAX_BUFFERS; i++)
        oct_free(buffers->items[i].data);
    *buffers = (oct_buffers){0};
}
