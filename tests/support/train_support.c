/* See train_support.h. */
#include "base/count.h"
#include "train_support.h"

void write_words(const char *path, int n_words) {
    static const char *const words[] = {"the ", "lord ", "said ", "unto ", "moses ",  "and ",
                                        "he ",  "went ", "down ", "to ",   "egypt.\n"};
    oct_strbuf text = {0};
    for (int i = 0; i < n_words; i++) {
        uint64_t next = oct_rng_below(7, 0, (uint64_t)i, 3) + (uint64_t)i;
        oct_strbuf_puts(&text, words[next % (OCT_COUNT(words))]);
    }
    assert_false(text.failed);
    assert_int_equal(oct_file_write(path, text.text, text.length, NULL), OCT_OK);
    oct_strbuf_free(&text);
}

void workshop_path(const workshop *w, const char *name, char out[128]) {
    snprintf(out, 128, "%s/%s", w->folder, name);
}

void workshop_open(workshop *w, int n_words) {
    char text[128], tokenizer[128], job[2048];
    const char *paths[] = {text};
    const oct_tokenizer_train_options options = {.vocab_size = 300, .split = OCT_SPLIT_GPT2};
    oct_error err = {0};
    snprintf(w->folder, sizeof w->folder, "/tmp/octet-train-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    workshop_path(w, "text.txt", text);
    workshop_path(w, "tokenizer.json", tokenizer);
    workshop_path(w, "job.toml", w->job_path);
    write_words(text, n_words);
    if (oct_tokenizer_train(paths, 1, &options, tokenizer, NULL, &err) != OCT_OK)
        fail_msg("%s", err.message);
    snprintf(job, sizeof job,
             "[job]\ndump_folder = \"%s/out\"\n"
             "[model]\nname = \"llama3\"\nflavor = \"demo\"\ntokenizer_path = \"%s\"\n"
             "[model.args]\ndim = 64\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\nvocab_size = 320\n"
             "hidden_dim = 96\n"
             "[optimizer]\nlr = 3e-3\n"
             "[lr_scheduler]\nwarmup_steps = 2\n"
             "[training]\ndataset_path = \"%s\"\nlocal_batch_size = 2\nseq_len = 32\nsteps = 6\n"
             "[checkpoint]\ninterval = 3\nlast_save_model_only = false\n"
             "[activation_checkpoint]\nmode = \"none\"\n"
             "[debug]\nseed = 5\n",
             w->folder, tokenizer, text);
    assert_int_equal(oct_file_write(w->job_path, job, strlen(job), NULL), OCT_OK);
}

void workshop_close(workshop *w) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
    assert_int_equal(system(command), 0);
}

void load_job(const workshop *w, oct_job *job, const char *const *overrides) {
    oct_error err = {0};
    int n = 0;
    while (overrides && overrides[n])
        n++;
    if (oct_job_load(w->job_path, overrides, n, job, &err) != OCT_OK)
        fail_msg("%s", err.message);
}

oct_trainer *make_trainer(const oct_job *job) {
    oct_error err = {0};
    oct_trainer *t = NULL;
    const oct_trainer_options options = {0};
    if (oct_trainer_create(job, &options, &t, &err) != OCT_OK)
        fail_msg("%s", err.message);
    return t;
}

oct_step_result step_once(oct_trainer *t) {
    oct_error err = {0};
    oct_step_result result;
    if (oct_trainer_step(t, &result, &err) != OCT_OK)
        fail_msg("%s", err.message);
    return result;
}

float *copy_parameters(oct_trainer *t, int64_t *n_floats) {
    int64_t n, at = 0;
    oct_param *const *params = oct_model_params(oct_trainer_model(t), &n);
    *n_floats = oct_model_n_parameters(oct_trainer_model(t));
    float *copy = oct_malloc_array((size_t)*n_floats, sizeof *copy);
    assert_non_null(copy);
    for (int64_t i = 0; i < n; i++) {
        memcpy(copy + at, params[i]->value, (size_t)oct_param_elements(params[i]) * sizeof *copy);
        at += oct_param_elements(params[i]);
    }
    assert_int_equal(at, *n_floats);
    return copy;
}
