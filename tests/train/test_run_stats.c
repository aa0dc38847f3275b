/* Statistics of a run: they change no number, they are of the tensors that the step multiplied, and
 * metrics.jsonl has them. */
#include "train_support.h"

#include <jansson.h>
#include <math.h>

#include "base/count.h"
#include "model/model.h"
#include "quant/stats.h"
#include "train/run_stats.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CONVERT "--model.converters=quantize.linear.mx"
#define EXPERTS                                                                                    \
    "--model.name=deepseek_v3", "--model.args.moe_inter_dim=32", "--model.args.kv_lora_rank=32",   \
        "--model.converters=npu_gmm,quantize.linear.mx,quantize.grouped_mm.mx"

/* The weight as fp32 numbers before a step, and what mxfp8 by rceil loses of them: OCP's rule in
 * fp64, over the blocks along each row. */
static double noise_of_rows(const float *w, int64_t rows, int64_t cols) {
    double noise = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c0 = 0; c0 < cols; c0 += 32) {
            double amax = 0;
            for (int64_t c = c0; c < c0 + 32 && c < cols; c++)
                amax = fmax(amax, fabs((double)w[r * cols + c]));
            const double scale = amax > 0 ? exp2(ceil(log2(amax / 448))) : 1;
            for (int64_t c = c0; c < c0 + 32 && c < cols; c++) {
                const double x = fabs((double)w[r * cols + c]) / scale;
                const double unit = x > 0 ? exp2(fmax(floor(log2(x)), -6) - 3) : 1;
                const double error = x - fmin(448, nearbyint(x / unit) * unit);
                noise += error * error * scale * scale;
            }
        }
    return noise;
}

static void given_statistics_a_weights_noise_is_that_of_its_rows(void **state) {
    workshop w;
    oct_job job;
    (void)state;
    workshop_open(&w, 4000);
    load_job(&w, &job, LIST(CONVERT, "--quantize.stats_freq=2", "--quantize.rules=octet"));
    oct_trainer *t = make_trainer(&job);
    const oct_param *param =
        oct_model_find_param(oct_trainer_model(t), "layers.1.feed_forward.w2.weight");
    const double right = noise_of_rows(param->value, param->shape[0], param->shape[1]);
    const oct_step_result step = step_once(t);
    assert_non_null(step.stats);
    const oct_quant_stats *stats =
        oct_run_stats_find(step.stats, "layers.1.feed_forward.w2", 0, OCT_ROLE_WEIGHT, 1);
    assert_non_null(stats);
    assert_int_equal(stats->n, param->shape[0] * param->shape[1]);
    assert_true(fabs(stats->noise - right) < 1e-9 * right);
    /* wq, wk and wv read one tensor, a tensor of 2 x 32 tokens. */
    const oct_quant_stats *q =
        oct_run_stats_find(step.stats, "layers.0.attention.wq", 0, OCT_ROLE_INPUT, 0);
    const oct_quant_stats *v =
        oct_run_stats_find(step.stats, "layers.0.attention.wv", 0, OCT_ROLE_INPUT, 0);
    assert_int_equal(q->n, 2 * 32 * 64);
    assert_true(q->noise == v->noise && q->noise > 0);
    assert_null(oct_run_stats_find(step.stats, "output", 0, OCT_ROLE_WEIGHT, 1));
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_statistics_or_none_the_run_is_the_same_bits(void **state) {
    workshop w;
    oct_job with, without;
    char folder[160] = "--job.dump_folder=";
    (void)state;
    workshop_open(&w, 4000);
    workshop_path(&w, "other", folder + strlen(folder));
    load_job(&w, &with, LIST(CONVERT, "--quantize.stats_freq=1"));
    load_job(&w, &without, LIST(CONVERT, folder));
    oct_trainer *a = make_trainer(&with), *b = make_trainer(&without);
    for (int i = 0; i < 3; i++) {
        const oct_step_result x = step_once(a), y = step_once(b);
        assert_true(x.loss == y.loss && x.grad_norm == y.grad_norm);
        assert_non_null(x.stats);
        assert_null(y.stats);
    }
    oct_trainer_destroy(a);
    oct_trainer_destroy(b);
    oct_job_free(&with);
    oct_job_free(&without);
    workshop_close(&w);
}

/* The lines of metrics.jsonl, one JSON object each, in an array. */
static json_t *read_metrics(const workshop *w) {
    char path[128], *text;
    json_t *lines = json_array();
    workshop_path(w, "out/metrics.jsonl", path);
    assert_int_equal(oct_file_read(path, 1 << 24, &text, NULL, NULL), OCT_OK);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        json_array_append_new(lines, object);
    }
    oct_free(text);
    return lines;
}

static void given_a_run_its_metrics_hold_each_tensor_in_each_direction(void **state) {
    workshop w;
    oct_job job;
    oct_error err = {0};
    (void)state;
    workshop_open(&w, 4000);
    load_job(&w, &job,
             LIST(CONVERT, "--quantize.stats_freq=4", "--metrics.enable_tensorboard=true"));
    oct_trainer *t = make_trainer(&job);
    if (oct_trainer_run(t, &err))
        fail_msg("%s", err.message);
    json_t *lines = read_metrics(&w);
    assert_int_equal(json_array_size(lines), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *all = json_object_get(json_array_get(lines, i), "quantized"), *entry;
        size_t at;
        assert_int_equal(all != NULL, i == 0 || i == 3); /* steps 1 and 4 */
        /* 7 linears of 2 layers: 3 roles in 2 directions */
        assert_int_equal(json_array_size(all), all ? 7 * 2 * 3 * 2 : 0);
        json_array_foreach(all, at, entry) {
            const double sqnr = json_real_value(json_object_get(entry, "sqnr_db"));
            assert_true(sqnr > 15 && sqnr < 60);
            const char *product = json_string_value(json_object_get(entry, "product"));
            const char *role = json_string_value(json_object_get(entry, "role"));
            bool trial = strcmp(product, "forward") == 0 ||
                         (strcmp(role, "gradient") == 0 && strcmp(product, "dgrad") == 0);
            assert_int_equal(json_object_get(entry, "others_sqnr_db") != NULL, trial);
        }
        assert_null(json_object_get(json_array_get(lines, i), "experts"));
    }
    json_decref(lines);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_experts_each_weight_and_each_layers_tokens_are_there(void **state) {
    workshop w;
    oct_job job;
    (void)state;
    workshop_open(&w, 4000);
    load_job(&w, &job, LIST(EXPERTS, "--quantize.stats_freq=1"));
    oct_trainer *t = make_trainer(&job);
    const oct_step_result step = step_once(t);
    oct_strbuf text = {0};
    oct_run_stats_render_experts(step.stats, &text);
    json_t *layers = json_loads(text.text, 0, NULL), *layer;
    size_t i;
    assert_true(json_array_size(layers) > 0);
    json_array_foreach(layers, i, layer) {
        const int64_t number = json_integer_value(json_object_get(layer, "layer"));
        const oct_moe *moe = oct_model_moe(oct_trainer_model(t), number);
        const json_t *tokens = json_object_get(layer, "tokens");
        int64_t all = 0;
        char name[64];
        assert_int_equal(json_array_size(tokens), moe->config.rule.n_experts);
        for (size_t e = 0; e < json_array_size(tokens); e++)
            all += json_integer_value(json_array_get(tokens, e));
        assert_int_equal(all, 2 * 32 * moe->config.rule.n_active);
        snprintf(name, sizeof name, "layers.%d.moe.experts", (int)number);
        for (int weight = 0; weight < OCT_N_EXPERT_WEIGHTS; weight++)
            for (int dim = 0; dim < 2; dim++) {
                const int64_t n = oct_param_elements(moe->experts->w[weight]);
                const oct_quant_stats *s =
                    oct_run_stats_find(step.stats, name, weight, OCT_ROLE_WEIGHT, dim);
                const oct_quant_stats *g =
                    oct_run_stats_find(step.stats, name, weight, OCT_ROLE_GRAD, dim);
                assert_int_equal(s->n, n);
                assert_int_equal(g->n, all * moe->experts->w[weight]->shape[1]);
            }
    }
    json_decref(layers);
    oct_strbuf_free(&text);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_statistics_a_weights_noise_is_that_of_its_rows),
        cmocka_unit_test(given_statistics_or_none_the_run_is_the_same_bits),
        cmocka_unit_test(given_experts_each_weight_and_each_layers_tokens_are_there),
        cmocka_unit_test(given_a_run_its_metrics_hold_each_tensor_in_each_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
