/* Arrays of elements: see octet/codec.h. */
#include <octet/codec.h>
#include <string.h>

#include "base/call.h"
#include "base/checked.h"
#include "base/rng.h"
#include "base/struct_size.h"
#include "base/thread.h"
#include "format/element.h"
#include "format/fp8.h"

#define TASK_ELEMENTS 16384

typedef struct codec_job {
    oct_codec codec;
    const void *from;
    oct_dtype from_dtype;
    int64_t n;
    void *to;
    oct_dtype to_dtype;
} codec_job;

static int64_t end_of(const codec_job *j, int64_t task) {
    return oct_min_i64(j->n, (task + 1) * TASK_ELEMENTS);
}

static void encode_task(void *context, int64_t task, int thread) {
    const codec_job *j = context;
    const oct_codec *c = &j->codec;
    (void)thread;
    for (int64_t i = task * TASK_ELEMENTS; i < end_of(j, task); i++)
        ((uint8_t *)j->to)[i] = oct_fp8_encode_by(
            c->format, oct_element_load(j->from, j->from_dtype, i),
            oct_rounder_of(c->rounding, c->seed, c->counter + (uint64_t)i), c->overflow);
}

static float value_of(oct_dtype format, uint8_t code) {
    return format == OCT_E8M0 ? oct_e8m0_decode(code) : oct_fp8_value(format, code);
}

static void decode_task(void *context, int64_t task, int thread) {
    const codec_job *j = context;
    (void)thread;
    for (int64_t i = task * TASK_ELEMENTS; i < end_of(j, task); i++)
        oct_element_store(j->to, j->to_dtype, i,
                          value_of(j->codec.format, ((const uint8_t *)j->from)[i]));
}

static void run(codec_job *j, oct_task task, int threads) {
    const oct_call call = oct_call_begin(threads);
    oct_parallel(oct_ceil_div(j->n, TASK_ELEMENTS), task, j);
    oct_call_end(&call);
}

static bool is_job(const codec_job *j, int threads) {
    return j->n >= 0 && threads >= 0 && (j->n == 0 || (j->from && j->to));
}

oct_status oct_encode_array(const oct_codec *codec, const void *x, oct_dtype x_dtype, int64_t n,
                            uint8_t *codes, int threads) {
    codec_job j = {.from = x, .from_dtype = x_dtype, .n = n, .to = codes};
    const oct_codec *c = &j.codec;
    if (!oct_read_struct(codec, &j.codec, sizeof j.codec, sizeof j.codec) ||
        !oct_is_element(x_dtype) || !oct_is_fp8(c->format) ||
        !oct_is_rounding_of(c->format, c->rounding) ||
        (c->overflow != OCT_SATURATE && c->overflow != OCT_NO_SATURATE) || !is_job(&j, threads))
        return OCT_INVALID;
    run(&j, encode_task, threads);
    return OCT_OK;
}

oct_status oct_decode_array(oct_dtype format, const uint8_t *codes, int64_t n, void *y,
                            oct_dtype y_dtype, int threads) {
    codec_job j = {
        .codec = {.format = format}, .from = codes, .n = n, .to = y, .to_dtype = y_dtype};
    if ((!oct_is_fp8(format) && format != OCT_E8M0) || !oct_is_element(y_dtype) ||
        !is_job(&j, threads))
        return OCT_INVALID;
    run(&j, decode_task, threads);
    return OCT_OK;
}
