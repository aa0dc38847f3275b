/* How this thread's floating-point unit rounds and what it does with subnormals. Whatever a caller
 * has set (flush to zero, subnormals as zeros, another rounding), the library computes in the mode
 * that its numerics say: to nearest, nothing flushed.
 *
 * Who begins a mode calls a function of its own for what has to run in it: compilers move plain
 * arithmetic across these calls. */
#ifndef OCT_BASE_FLOAT_MODE_H
#define OCT_BASE_FLOAT_MODE_H

#if defined(__SSE2__)
typedef struct oct_float_mode {
    unsigned before;
} oct_float_mode;
#else
#include <fenv.h>

typedef struct oct_float_mode {
    fenv_t before;
} oct_float_mode;
#endif

oct_float_mode oct_float_mode_begin(void);
void oct_float_mode_end(const oct_float_mode *mode);

#endif
