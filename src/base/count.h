/* How many elements an array has. */
#ifndef OCT_BASE_COUNT_H
#define OCT_BASE_COUNT_H

#define OCT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
