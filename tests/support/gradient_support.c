/* See gradient_support.h. */
#include "gradient_support.h"

void fill(float *x, int64_t n, uint64_t stream, float std) {
    for (int64_t i = 0; i < n; i++)
        x[i] = std * oct_rng_normal(1234, stream, (uint64_t)i);
}

double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

double norm(const float *a, int64_t n) {
    return sqrt(dot(a, a, n));
}

double relative_error(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum) / norm(b, n);
}

double slope(loss_function loss, void *context, float *x, const float *v, int64_t n, double h) {
    float *start = oct_malloc_array((size_t)n, sizeof *start);
    double difference[2];
    memcpy(start, x, (size_t)n * sizeof *x);
    for (int i = 0; i < 2; i++) {
        double step = i ? h / 2 : h, side[2];
        for (int j = 0; j < 2; j++) {
            for (int64_t k = 0; k < n; k++)
                x[k] = (float)(start[k] + (j ? step : -step) * v[k]);
            side[j] = loss(context);
        }
        difference[i] = (side[1] - side[0]) / (2 * step);
    }
    memcpy(x, start, (size_t)n * sizeof *x);
    oct_free(start);
    return (4 * difference[1] - difference[0]) / 3;
}

void expect_gradient(const char *name, loss_function loss, void *context, float *x,
                     const float *gradient, int64_t n, double h, double tolerance) {
    float *v = oct_malloc_array((size_t)n, sizeof *v);
    double length = norm(gradient, n);
    assert_true(length > 0);
    for (uint64_t k = 0; k < 3; k++) {
        if (k == 0)
            memcpy(v, gradient, (size_t)n * sizeof *v);
        else
            fill(v, n, 90 + k, 1.0f);
        double scale = 1 / norm(v, n);
        for (int64_t i = 0; i < n; i++)
            v[i] = (float)(v[i] * scale);
        double expected = dot(gradient, v, n), got = slope(loss, context, x, v, n, h);
        double error = fabs(got - expected) / length;
        if (!(error < tolerance))
            fail_msg(
                "%s, direction %d: slope %.9g, gradient says %.9g, |gradient| %.4g: error %.2g",
                name, (int)k, got, expected, length, error);
    }
    oct_free(v);
}

oct_module *new_root(void) {
    static const oct_module_ops ops = {.type_name = "Root"};
    oct_module *root = oct_module_create(sizeof *root, OCT_MODULE_CONTAINER, &ops, NULL, "");
    assert_non_null(root);
    return root;
}

void bench_open(bench *b, int64_t batch, int64_t length) {
    *b = (bench){.root = new_root(), .T = batch * length};
    assert_int_equal(oct_weights_create(&b->weights), OCT_OK);
    assert_int_equal(oct_step_create(b->weights, OCT_F32, &b->step), OCT_OK);
    b->step->B = batch;
    b->step->S = length;
}

void bench_set(bench *b, oct_module *m, int64_t in, int64_t out) {
    b->m = m;
    b->in = in;
    b->out = out;
    b->x = oct_malloc_array((size_t)(b->T * in), sizeof *b->x);
    b->dx = oct_malloc_array((size_t)(b->T * in), sizeof *b->x);
    b->y = oct_malloc_array((size_t)(b->T * out), sizeof *b->y);
    b->r = oct_malloc_array((size_t)(b->T * out), sizeof *b->r);
    fill(b->x, b->T * in, 1, 1.0f);
    fill(b->r, b->T * out, 2, 1.0f);
    oct_param **params;
    int64_t n_params;
    assert_int_equal(oct_module_params(b->root, &params, &n_params), OCT_OK);
    for (int64_t i = 0; i < n_params; i++) {
        int64_t n = oct_param_elements(params[i]);
        params[i]->grad = oct_calloc_array((size_t)n, sizeof(float));
        bool is_norm = strstr(params[i]->name, "norm") != NULL;
        fill(params[i]->value, n, 10 + (uint64_t)i, is_norm ? 0.3f : 0.2f);
        for (int64_t k = 0; is_norm && k < n; k++)
            params[i]->value[k] += 1;
    }
    oct_free(params);
}

void bench_close(bench *b) {
    oct_step_destroy(b->step);
    oct_weights_destroy(b->weights);
    oct_module_destroy(b->root);
    oct_free(b->x);
    oct_free(b->dx);
    oct_free(b->y);
    oct_free(b->r);
}

static void bench_forward(bench *b, oct_save save) {
    oct_tensor x = oct_tensor_2d(OCT_F32, b->T, b->in, b->x);
    oct_tensor y = oct_tensor_2d(OCT_F32, b->T, b->out, b->y);
    x.id = oct_step_new_id(b->step);
    b->step->save = save;
    oct_step_mark mark = oct_step_enter(b->step);
    assert_int_equal(oct_forward(b->m, b->step, &x, &y), OCT_OK);
    oct_step_leave(b->step, mark);
}

static void bench_backward(bench *b, oct_accumulate accumulate) {
    oct_tensor dy = oct_tensor_2d(OCT_F32, b->T, b->out, b->r);
    oct_tensor dx = oct_tensor_2d(OCT_F32, b->T, b->in, b->dx);
    dy.id = oct_step_new_id(b->step);
    assert_int_equal(oct_backward(b->m, b->step, &dy, &dx, accumulate), OCT_OK);
    oct_arena_release(b->step->saved, (oct_arena_mark){0, 0});
}

static double bench_loss(void *context) {
    bench *b = context;
    bench_forward(b, OCT_SAVE_NOTHING);
    return dot(b->r, b->y, b->T * b->out);
}

void bench_check(bench *b, double tolerance) {
    bench_forward(b, OCT_SAVE_FOR_BACKWARD);
    bench_backward(b, OCT_OVERWRITE);
    expect_gradient("x", bench_loss, b, b->x, b->dx, b->T * b->in, 0.05, tolerance);
    oct_param **params;
    int64_t n_params, n_x = b->T * b->in;
    assert_int_equal(oct_module_params(b->root, &params, &n_params), OCT_OK);
    for (int64_t i = 0; i < n_params; i++)
        expect_gradient(params[i]->name, bench_loss, b, params[i]->value, params[i]->grad,
                        oct_param_elements(params[i]), 0.05, tolerance);
    float *once = oct_malloc_array((size_t)n_x, sizeof *once);
    memcpy(once, b->dx, (size_t)n_x * sizeof *once);
    bench_forward(b, OCT_SAVE_FOR_BACKWARD);
    bench_backward(b, OCT_ADD_TO_OUTPUT);
    for (int64_t i = 0; i < n_x; i++)
        once[i] *= 2;
    assert_true(relative_error(b->dx, once, n_x) < 1e-6);
    oct_free(once);
    oct_free(params);
    assert_int_equal(oct_arena_used_bytes(b->step->scratch), 0);
    assert_int_equal(oct_quant_cache_count(b->step->quant_cache), 0);
}

void bench_finish(bench *b, oct_module *m, int64_t in, int64_t out, double tolerance) {
    bench_set(b, m, in, out);
    bench_check(b, tolerance);
    bench_close(b);
}

oct_routing_rule plain_rule(int64_t E, int64_t A) {
    return (oct_routing_rule){
        .n_experts = E, .n_active = A, .n_groups = 1, .n_limited_groups = 1, .route_scale = 1.0f};
}

oct_model_args small_args(oct_model_family family) {
    oct_model_args args;
    oct_error err = {0};
    assert_int_equal(
        oct_model_args_flavor(oct_model_family_name(family), "debugmodel", &args, &err), OCT_OK);
    args.vocab_size = V;
    args.dim = 32;
    args.n_layers = 3;
    args.n_heads = 4;
    args.n_kv_heads = 2;
    args.head_dim = family == OCT_MODEL_QWEN3 ? 12 : 0; /* 4 * 12 is not dim */
    args.hidden_dim = 48;
    args.rope_theta = 100.0;
    return args;
}

void lab_open(lab *l, const oct_model_args *args, oct_dtype activation) {
    oct_error err = {0};
    if (oct_model_create(args, OCT_PARAMS_ALLOCATED, &l->model, &err))
        fail_msg("%s", err.message);
    oct_model_init(l->model, 3);
    /* Larger weights than a fresh model's, so that every path carries a part of the gradient. */
    int64_t n_params;
    oct_param *const *params = oct_model_params(l->model, &n_params);
    for (int64_t i = 0; i < n_params; i++)
        if (params[i]->n_dims >= 2)
            fill(params[i]->value, oct_param_elements(params[i]), 40 + (uint64_t)i, 0.15f);
    oct_model_changed(l->model);
    assert_int_equal(oct_model_enable_training(l->model), OCT_OK);
    assert_int_equal(oct_weights_create(&l->weights), OCT_OK);
    assert_int_equal(oct_step_create(l->weights, activation, &l->step), OCT_OK);
    for (uint64_t i = 0; i < B * S; i++) {
        l->tokens[i] = (int32_t)oct_rng_below(5, 1, i, (uint64_t)args->vocab_size);
        l->targets[i] = i % 7 == 3 ? OCT_IGNORE_LABEL
                                   : (int32_t)oct_rng_below(5, 2, i, (uint64_t)args->vocab_size);
    }
}

void lab_close(lab *l) {
    oct_step_destroy(l->step);
    oct_weights_destroy(l->weights);
    oct_model_destroy(l->model);
}

oct_status make_mx(oct_module *m, void *context) {
    oct_linear *linear = oct_linear_from(m);
    if (linear) {
        linear->recipe = context;
        m->ops = &oct_mx_linear_ops;
    }
    return OCT_OK;
}

void lab_quantize_all(lab *l, const char *recipe) {
    assert_int_equal(oct_recipe_parse(recipe, &l->recipe, NULL), OCT_OK);
    l->recipe.gemm = OCT_GEMM_EXACT;
    oct_module_visit(oct_model_root(l->model), make_mx, &l->recipe);
}

void lab_quantize(lab *l, const char *recipe) {
    lab_quantize_all(l, recipe);
    oct_module_find(oct_model_root(l->model), "output")->ops = &oct_linear_ops;
}

int64_t n_valid_targets(void) {
    int64_t n = 0;
    for (int i = 0; i < B * S; i++)
        n += i % 7 != 3;
    return n;
}

void lab_train(lab *l) {
    double sum;
    int64_t n;
    oct_model_zero_gradients(l->model);
    assert_int_equal(oct_model_train(l->model, l->step, B, S, l->tokens, l->targets,
                                     1.0f / (float)n_valid_targets(), &sum, &n),
                     OCT_OK);
    assert_int_equal(n, n_valid_targets());
    assert_int_equal(oct_arena_used_bytes(l->step->saved), 0);
    assert_int_equal(oct_arena_used_bytes(l->step->scratch), 0);
    l->loss = sum / (double)n;
}

double lab_loss(void *context) {
    lab *l = context;
    double sum;
    int64_t n;
    oct_model_changed(l->model);
    assert_int_equal(oct_model_evaluate(l->model, l->step, B, S, l->tokens, l->targets, &sum, &n),
                     OCT_OK);
    return sum / (double)n;
}

void lab_check_gradients(lab *l, double tolerance) {
    lab_train(l);
    assert_true(fabs(lab_loss(l) - l->loss) < 1e-12);
    int64_t n_params;
    oct_param *const *params = oct_model_params(l->model, &n_params);
    for (int64_t i = 0; i < n_params; i++) {
        int64_t n = oct_param_elements(params[i]);
        /* The loss is a mean of about 54 terms near 4: rounding of about 1e-7 / h. */
        double h = 0.004 * norm(params[i]->value, n);
        expect_gradient(params[i]->name, lab_loss, l, params[i]->value, params[i]->grad, n, h,
                        tolerance);
    }
}

void check_model_gradients(const oct_model_args *args, double tolerance) {
    lab l;
    lab_open(&l, args, OCT_F32);
    lab_check_gradients(&l, tolerance);
    lab_close(&l);
}

int64_t n_gradients(const lab *l) {
    return oct_model_n_parameters(l->model);
}

float *gradients(const lab *l) {
    float *all = oct_malloc_array((size_t)n_gradients(l), sizeof *all);
    int64_t n_params, at = 0;
    oct_param *const *params = oct_model_params(l->model, &n_params);
    for (int64_t i = 0; i < n_params; i++) {
        memcpy(all + at, params[i]->grad, (size_t)oct_param_elements(params[i]) * sizeof *all);
        at += oct_param_elements(params[i]);
    }
    return all;
}

void expect_same_bits(const lab *l, const float *expected) {
    float *got = gradients(l);
    assert_memory_equal(got, expected, (size_t)n_gradients(l) * sizeof *got);
    oct_free(got);
}

void expect_near(lab *l, lab *exact, const char *name, double least, double most,
                 double loss_share) {
    lab_train(l);
    float *got = gradients(l), *expected = gradients(exact);
    double error = relative_error(got, expected, n_gradients(exact));
    if (!(error > least && error < most) ||
        !(fabs(exact->loss - l->loss) < loss_share * exact->loss))
        fail_msg("%s: gradients differ by %g, losses %g and %g", name, error, exact->loss, l->loss);
    oct_free(got);
    oct_free(expected);
}

void lab_train_again(lab *l, double loss, const float *expected) {
    lab_train(l);
    assert_true(l->loss == loss);
    expect_same_bits(l, expected);
}

void lab_generate(lab *l, oct_dtype dtype, const int64_t *pieces, size_t n_pieces) {
    float *data = oct_malloc_array(B * S * V, sizeof *data), last[B * V];
    oct_tensor logits = oct_tensor_2d(OCT_F32, B * S, V, data);
    int32_t piece[B * S];
    oct_kv_cache *cache;
    assert_int_equal(
        oct_model_forward(l->model, l->step, B, S, l->tokens, OCT_SAVE_NOTHING, &logits), OCT_OK);
    assert_int_equal(oct_model_create_cache(l->model, dtype, B, S + 2, &cache), OCT_OK);
    for (size_t i = 0, at = 0; i < n_pieces; i++) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t s = 0; s < pieces[i]; s++)
                piece[b * pieces[i] + s] = l->tokens[b * S + (int64_t)at + s];
        assert_int_equal(oct_model_generate(l->model, l->step, cache, pieces[i], piece, last),
                         OCT_OK);
        at += (size_t)pieces[i];
        assert_int_equal(cache->length, at);
        for (size_t b = 0; b < B; b++) {
            double error = relative_error(last + b * V, data + (b * S + at - 1) * V, V);
            if (!(error < (dtype == OCT_F32 ? 1e-5 : 0.02)))
                fail_msg("sequence %zu, token %zu: logits differ by %g", b, at - 1, error);
        }
    }
    assert_int_equal(oct_model_generate(l->model, l->step, cache, 3, piece, last), OCT_INVALID);
    oct_kv_cache_destroy(cache);
    oct_free(data);
}
