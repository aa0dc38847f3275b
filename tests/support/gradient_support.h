/* Gradients against finite differences: vectors, slopes, a bench for one module and a lab for a
 * whole model. The measure is explained in test_gradients.c. */
#ifndef OCT_TESTS_GRADIENT_SUPPORT_H
#define OCT_TESTS_GRADIENT_SUPPORT_H

#include "story.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "convert/mx_linear.h"
#include "model/model.h"
#include "op/routing.h"

/* ---- vectors ---- */

void fill(float *x, int64_t n, uint64_t stream, float std);
double dot(const float *a, const float *b, int64_t n);
double norm(const float *a, int64_t n);
double relative_error(const float *a, const float *b, int64_t n);

/* ---- slopes ---- */

typedef double (*loss_function)(void *context);

/* The slope of the loss along v at x, |v| any; x is restored. */
double slope(loss_function loss, void *context, float *x, const float *v, int64_t n, double h);

/* Along the gradient itself and along two random directions. */
void expect_gradient(const char *name, loss_function loss, void *context, float *x,
                     const float *gradient, int64_t n, double h, double tolerance);

/* ---- one module ---- */

typedef struct bench {
    oct_module *root; /* parent of the module under test */
    oct_module *m;
    oct_weights *weights;
    oct_step *step;
    int64_t T, in, out;
    float *x, *y, *r, *dx; /* loss = <r, y> */
} bench;

/* A module that only holds others: theirs to belong to. */
oct_module *new_root(void);
void bench_open(bench *b, int64_t batch, int64_t length);
void bench_set(bench *b, oct_module *m, int64_t in, int64_t out);
void bench_close(bench *b);

/* Parameters and input; then once more, adding to dx. */
void bench_check(bench *b, double tolerance);

/* All of a bench's life from the creation of the module on. */
void bench_finish(bench *b, oct_module *m, int64_t in, int64_t out, double tolerance);

/* ---- routing ---- */

/* One group, softmax scores, weights as they are. */
oct_routing_rule plain_rule(int64_t E, int64_t A);

/* ---- whole models ---- */

enum { B = 3, S = 21, V = 50 };

typedef struct lab {
    oct_model *model;
    oct_weights *weights;
    oct_step *step;
    oct_recipe recipe;
    int32_t tokens[B * S], targets[B * S];
    double loss; /* mean */
} lab;

oct_model_args small_args(oct_model_family family);
void lab_open(lab *l, const oct_model_args *args, oct_dtype activation);
void lab_close(lab *l);
oct_status make_mx(oct_module *m, void *context);

/* All linears, the head too. */
void lab_quantize_all(lab *l, const char *recipe);
void lab_quantize(lab *l, const char *recipe);
int64_t n_valid_targets(void);
void lab_train(lab *l);
double lab_loss(void *context);

/* Of every parameter. */
void lab_check_gradients(lab *l, double tolerance);
void check_model_gradients(const oct_model_args *args, double tolerance);
int64_t n_gradients(const lab *l);

/* All gradients in a row; the caller frees it. */
float *gradients(const lab *l);
void expect_same_bits(const lab *l, const float *expected);

/* Gradients and loss of a step near those of `exact`; not nearer than `least`, as if nothing had
 * been rounded. */
void expect_near(lab *l, lab *exact, const char *name, double least, double most,
                 double loss_share);

/* A step once more: the same loss and gradients, bit for bit. */
void lab_train_again(lab *l, double loss, const float *expected);

/* Generates S tokens piece by piece through a cache: each piece's last logits are those of one
 * forward over everything. More than the cache holds is refused. */
void lab_generate(lab *l, oct_dtype dtype, const int64_t *pieces, size_t n_pieces);

#endif
