/* Large buffers that come and go with every unit: taken from the heap once and used again, so that
 * the steady state allocates nothing. One thread uses a pool. */
#ifndef OCT_FSDP_BUFFERS_H
#define OCT_FSDP_BUFFERS_H

#include <stddef.h>

#define OCT_MAX_BUFFERS 2048 /* four a unit that stays: models of 250 layers, experts apart */

typedef struct oct_buffer {
    char *data;
    size_t n_bytes; /* of the block, at least what was asked for */
    int taken;
} oct_buffer;

typedef struct oct_buffers {
    oct_buffer items[OCT_MAX_BUFFERS];
} oct_buffers;

/* A buffer of at least n_bytes, uninitialised; NULL when the heap refuses. */
oct_buffer *oct_buffers_take(oct_buffers *buffers, size_t n_bytes);
void oct_buffers_give_back(oct_buffer *buffer); /* NULL is fine */
void oct_buffers_clear(oct_buffers *buffers);   /* frees all */

#endif
