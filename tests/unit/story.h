/* What every cmocka program includes, in the order that cmocka wants. */
#ifndef OCT_TESTS_STORY_H
#define OCT_TESTS_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
