/* A stack of memory: allocate upwards, release back to a mark. A training step runs in two of them
 * (what backward needs, and scratch), so that no kernel or layer calls malloc in the steady state.
 *
 * Invariant: blocks never move; memory taken from the heap stays with the arena until destroy, so
 * the second step of a run allocates nothing. Not thread-safe: one arena belongs to one thread (the
 * one that drives the step); worker threads get slices of what it allocated. */
#ifndef OCT_BASE_ARENA_H
#define OCT_BASE_ARENA_H

#include <stddef.h>

typedef struct oct_arena oct_arena;

typedef struct oct_arena_mark {
    size_t chunk, used;
} oct_arena_mark;

oct_arena *oct_arena_create(void); /* NULL when refused */
/* An arena for few blocks that stay: takes from the heap what is asked for, no reserve. */
oct_arena *oct_arena_create_exact(void);
void oct_arena_destroy(oct_arena *arena);

/* 64-byte aligned, uninitialised; NULL when the heap refuses or the size overflows. */
void *oct_arena_alloc(oct_arena *arena, size_t n_bytes);
void *oct_arena_alloc_array(oct_arena *arena, size_t n, size_t size);

oct_arena_mark oct_arena_get_mark(const oct_arena *arena);
/* Frees, in one go, all that was allocated after `mark` was taken. */
void oct_arena_release(oct_arena *arena, oct_arena_mark mark);

size_t oct_arena_used_bytes(const oct_arena *arena);

#endif
