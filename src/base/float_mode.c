/* The floating-point mode: see float_mode.h. */
#include "base/float_mode.h"

#if defined(__SSE2__)

#include <xmmintrin.h>

#define DEFAULT_MXCSR 0x1f80u /* all exceptions masked, to nearest, neither FTZ nor DAZ */

oct_float_mode oct_float_mode_begin(void) {
    oct_float_mode mode = {_mm_getcsr()};
    _mm_setcsr(DEFAULT_MXCSR);
    return mode;
}

void oct_float_mode_end(const oct_float_mode *mode) {
    _mm_setcsr(mode->before);
}

#else

oct_float_mode oct_float_mode_begin(void) {
    oct_float_mode mode;
    fegetenv(&mode.before);
    fesetenv(FE_DFL_ENV);
    return mode;
}

void oct_float_mode_end(const oct_float_mode *mode) {
    fesetenv(&mode->before);
}

#endif
