/* What every public function that computes does first and last: the floating-point mode is the
 * library's own, and the number of threads is read once. */
#ifndef OCT_BASE_CALL_H
#define OCT_BASE_CALL_H

#include "base/float_mode.h"

typedef struct oct_call {
    oct_float_mode mode;
    int threads_before;
} oct_call;

/* threads: at least 1; 0: oct_threads() of now. Until the end oct_threads() of this thread is that
 * number, whatever others set. Calls may be nested. */
oct_call oct_call_begin(int threads);
void oct_call_end(const oct_call *call);

#endif
