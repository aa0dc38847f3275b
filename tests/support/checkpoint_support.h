/* A small trainer's checkpoints, different at each step, and what became of them. */
#ifndef OCT_TESTS_CHECKPOINT_SUPPORT_H
#define OCT_TESTS_CHECKPOINT_SUPPORT_H

#include "base/log.h"
#include "base/strbuf.h"
#include "checkpoint/checkpoint.h"
#include "file_support.h"

extern char warnings[8192]; /* what was warned of since enter_checkpoints */

int enter_checkpoints(void **state);
int leave_checkpoints(void **state);

#define ROWS 40
#define COLS 6

typedef struct fake {
    float w[ROWS * COLS], norm[COLS], m[ROWS * COLS], v[ROWS * COLS];
    oct_safetensors_item model[2], optimizer[2];
    char state[64];
    oct_checkpoint_contents contents;
} fake;

void make_fake(fake *f, int64_t step);
oct_status save(int64_t step, int64_t keep, oct_error *err);
void save_well(int64_t step, int64_t keep);
void assert_holds(const oct_checkpoint *c, int64_t step);

/* The newest valid step, -1 for none; it must hold what was saved. */
int64_t latest(void);
void assert_invalid(int64_t step, const char *part);
void assert_nothing_temporary(void);

#define STORY(name) cmocka_unit_test_setup_teardown(name, enter_checkpoints, leave_checkpoints)

#endif
