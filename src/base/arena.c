/* Chunked stack allocator: see arena.h. */
#include "base/arena.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

#define ALIGNMENT 64
#define MIN_CHUNK_BYTES ((size_t)4 << 20)

typedef struct chunk {
    char *data;
    size_t size, used;
} chunk;

struct oct_arena {
    chunk *chunks;
    size_t n_chunks, capacity;
    size_t current; /* index of the chunk that allocations come from; later chunks are empty */
    size_t used_bytes;
    size_t min_chunk_bytes;
};

static oct_arena *create(size_t min_chunk_bytes) {
    oct_arena *arena = oct_calloc_array(1, sizeof(oct_arena));
    if (arena)
        arena->min_chunk_bytes = min_chunk_bytes;
    return arena;
}

oct_arena *oct_arena_create(void) {
    return create(MIN_CHUNK_BYTES);
}

oct_arena *oct_arena_create_exact(void) {
    return create(0);
}

void oct_arena_destroy(oct_arena *arena) {
    if (!arena)
        return;
    for (size_t i = 0; i < arena->n_chunks; i++)
        oct_free(arena->chunks[i].data);
    oct_free(arena->chunks);
    oct_free(arena);
}

static bool insert_chunk(oct_arena *arena, size_t at, size_t size) {
    chunk *grown = oct_grow_array(arena->chunks, arena->n_chunks, &arena->capacity, sizeof *grown);
    if (!grown)
        return false;
    arena->chunks = grown;
    char *data = oct_malloc(size);
    if (!data)
        return false;
    memmove(arena->chunks + at + 1, arena->chunks + at, (arena->n_chunks - at) * sizeof(chunk));
    arena->chunks[at] = (chunk){data, size, 0};
    arena->n_chunks++;
    return true;
}

void *oct_arena_alloc(oct_arena *arena, size_t n_bytes) {
    size_t size;
    if (!oct_add_size(n_bytes ? n_bytes : 1, ALIGNMENT - 1, &size))
        return NULL;
    size -= size % ALIGNMENT;
    /* Later chunks are empty: take the first one that is large enough, or put a new one here. */
    size_t at = arena->current;
    while (at < arena->n_chunks && arena->chunks[at].size - arena->chunks[at].used < size)
        at++;
    if (at == arena->n_chunks) {
        at = arena->n_chunks ? arena->current + 1 : 0;
        if (!insert_chunk(arena, at, size > arena->min_chunk_bytes ? size : arena->min_chunk_bytes))
            return NULL;
    }
    arena->current = at;
    chunk *c = &arena->chunks[at];
    void *block = c->data + c->used;
    c->used += size;
    arena->used_bytes += size;
    return block;
}

void *oct_arena_alloc_array(oct_arena *arena, size_t n, size_t size) {
    size_t n_bytes;
    return oct_mul_size(n, size, &n_bytes) ? oct_arena_alloc(arena, n_bytes) : NULL;
}

oct_arena_mark oct_arena_get_mark(const oct_arena *arena) {
    if (!arena->n_chunks)
        return (oct_arena_mark){0, 0};
    return (oct_arena_mark){arena->current, arena->chunks[arena->current].used};
}

void oct_arena_release(oct_arena *arena, oct_arena_mark mark) {
    if (!arena->n_chunks)
        return;
    for (size_t i = mark.chunk + 1; i <= arena->current; i++) {
        arena->used_bytes -= arena->chunks[i].used;
        arena->chunks[i].used = 0;
    }
    chunk *c = &arena->chunks[mark.chunk];
    arena->used_bytes -= c->used - mark.used;
    c->used = mark.used;
    arena->current = mark.chunk;
}

size_t oct_arena_used_bytes(const oct_arena *arena) {
    return arena->used_bytes;
}
