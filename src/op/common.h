/* What the operators share: tensors as kernel operands, shape checks, and how rows are cut into
 * tasks. Not for other rooms. */
#ifndef OCT_OP_COMMON_H
#define OCT_OP_COMMON_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/thread.h"
#include "kernel/elementwise.h"
#include "kernel/select.h"

/* Elements of one task of an elementwise loop: enough to be worth a thread's while, few enough that
 * its operands stay in L2. */
enum { OCT_OP_TASK_ELEMENTS = 16384 };

static inline const oct_elementwise_kernels *oct_op_kernels(void) {
    return oct_kernels_current()->elementwise;
}

static inline bool oct_op_is_dense(const oct_tensor *x) {
    return x->dtype == OCT_F32 || x->dtype == OCT_BF16;
}

static inline oct_source oct_op_source(const oct_tensor *x) {
    return (oct_source){x->data, x->dtype};
}

static inline oct_target oct_op_target(oct_tensor *x) {
    return (oct_target){x->data, x->dtype};
}

/* Rows of D elements that make one task. */
static inline int64_t oct_op_task_rows(int64_t D) {
    return oct_max_i64(OCT_OP_TASK_ELEMENTS / oct_max_i64(D, 1), 1);
}

/* The task that ends at most at n: how many of its `size` items there are. */
static inline int64_t oct_op_task_length(int64_t task, int64_t size, int64_t n) {
    return oct_min_i64(size, n - task * size);
}

#endif
