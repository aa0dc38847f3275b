/* See checkpoint_support.h. */
#include "checkpoint_support.h"

#include <inttypes.h>

char warnings[8192];

static void keep_warning(void *user, oct_log_level level, const char *line) {
    (void)user;
    if (level == OCT_LOG_WARNING)
        snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

int enter_checkpoints(void **state) {
    warnings[0] = '\0';
    oct_log_set_sink(keep_warning, NULL);
    return enter_folder(state);
}

int leave_checkpoints(void **state) {
    oct_log_set_sink(NULL, NULL);
    return leave_folder(state);
}

static void fill(float *x, size_t n, double base) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(base + (double)i / 64);
}

void make_fake(fake *f, int64_t step) {
    *f = (fake){0};
    fill(f->w, ROWS * COLS, (double)step);
    fill(f->norm, COLS, (double)step + 1000);
    fill(f->m, ROWS * COLS, (double)step + 2000);
    fill(f->v, ROWS * COLS, (double)step + 3000);
    const oct_safetensors_item matrix = {.dtype = OCT_F32, .n_dims = 2, .shape = {ROWS, COLS}};
    f->model[0] = f->model[1] = f->optimizer[0] = f->optimizer[1] = matrix;
    f->model[0].name = "layers.0.attention.wq.weight";
    f->model[0].data = f->w;
    f->model[1] = (oct_safetensors_item){
        .name = "norm.weight", .dtype = OCT_F32, .n_dims = 1, .shape = {COLS}, .data = f->norm};
    f->optimizer[0].name = "layers.0.attention.wq.weight.exp_avg";
    f->optimizer[0].data = f->m;
    f->optimizer[1].name = "layers.0.attention.wq.weight.exp_avg_sq";
    f->optimizer[1].data = f->v;
    snprintf(f->state, sizeof f->state, "{\"seed\": 7, \"position\": %" PRId64 "}", step * 2048);
    f->contents = (oct_checkpoint_contents){.step = step,
                                            .tensors = {f->model, f->optimizer},
                                            .n_tensors = {2, 2},
                                            .state_json = f->state,
                                            .config_name = "config.toml",
                                            .config_text = "[training]\nsteps = 9\n",
                                            .kernel_set = "avx2",
                                            .gemm = "aligned"};
}

oct_status save(int64_t step, int64_t keep, oct_error *err) {
    fake f;
    make_fake(&f, step);
    return oct_checkpoint_save("ckpt", &f.contents, keep, err);
}

void save_well(int64_t step, int64_t keep) {
    oct_error err = {0};
    if (save(step, keep, &err))
        fail_msg("%s", err.message);
}

void assert_holds(const oct_checkpoint *c, int64_t step) {
    fake f;
    float w[ROWS * COLS], norm[COLS];
    make_fake(&f, step);
    assert_int_equal(oct_checkpoint_step(c), step);
    assert_string_equal(oct_checkpoint_state(c), f.state);
    assert_string_equal(oct_checkpoint_config(c), "[training]\nsteps = 9\n");
    assert_string_equal(oct_checkpoint_config_name(c), "config.toml");
    assert_string_equal(oct_checkpoint_kernel_set(c), "avx2");
    assert_string_equal(oct_checkpoint_gemm(c), "aligned");
    assert_int_equal(oct_checkpoint_count(c, OCT_CHECKPOINT_MODEL), 2);
    assert_int_equal(oct_checkpoint_count(c, OCT_CHECKPOINT_OPTIMIZER), 2);
    oct_tensor to = oct_tensor_2d(OCT_F32, ROWS, COLS, w);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 2 - (g == 0); i++) {
            const oct_safetensors_item *item = &f.contents.tensors[g][i];
            assert_int_equal(oct_checkpoint_copy(c, (oct_checkpoint_group)g, item->name, &to, NULL),
                             OCT_OK);
            assert_memory_equal(w, item->data, sizeof w);
        }
    to = oct_tensor_1d(OCT_F32, COLS, norm);
    assert_int_equal(oct_checkpoint_copy(c, OCT_CHECKPOINT_MODEL, "norm.weight", &to, NULL),
                     OCT_OK);
    assert_memory_equal(norm, f.norm, sizeof norm);
}

int64_t latest(void) {
    oct_checkpoint *c = NULL;
    oct_error err = {0};
    if (oct_checkpoint_find("ckpt", OCT_CHECKPOINT_LATEST, &c, &err))
        fail_msg("%s", err.message);
    int64_t step = c ? oct_checkpoint_step(c) : -1;
    if (c)
        assert_holds(c, step);
    oct_checkpoint_close(c);
    return step;
}

void assert_invalid(int64_t step, const char *part) {
    oct_checkpoint *c = NULL;
    oct_error err = {0};
    assert_int_equal(oct_checkpoint_find("ckpt", step, &c, &err), OCT_INVALID);
    assert_null(c);
    assert_one_line(err.message);
    assert_contains(err.message, part);
}

void assert_nothing_temporary(void) {
    assert_int_equal(system("test -z \"$(find . -name '*tmp*' -o -name '*.del-*')\""), 0);
}
