/* For functions whose arguments are constants where they are called: the formats, modes and shapes
 * that a kernel is written once for and compiled many times. */
#ifndef OCT_KERNEL_INLINE_H
#define OCT_KERNEL_INLINE_H

#define OCT_INLINE static inline __attribute__((always_inline, unused))

#endif
