/* From the words of other trainers, and of people in a hurry, to the keys of a TOML job. */
#include <stdint.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "config/schema.h"

/* What nanoGPT, Hugging Face's Trainer and Megatron call it. */
static const struct {
    const char *word, *key;
} other_words[] = {
    {"batch_size", "training.local_batch_size"},
    {"block_size", "training.seq_len"},
    {"config", "job.config_file"},
    {"context_length", "training.seq_len"},
    {"data", "training.dataset_path"},
    {"data_dir", "training.dataset_path"},
    {"data_path", "training.dataset_path"},
    {"dtype", "training.mixed_precision_param"},
    {"epochs", "training.steps"},
    {"eval_interval", "validation.freq"},
    {"eval_steps", "validation.freq"},
    {"grad_clip", "training.max_norm"},
    {"gradient_accumulation_steps", "training.global_batch_size"},
    {"learning_rate", "optimizer.lr"},
    {"log_interval", "metrics.log_freq"},
    {"logging_steps", "metrics.log_freq"},
    {"max_grad_norm", "training.max_norm"},
    {"max_iters", "training.steps"},
    {"max_length", "training.seq_len"},
    {"max_steps", "training.steps"},
    {"micro_batch_size", "training.local_batch_size"},
    {"num_train_epochs", "training.steps"},
    {"out_dir", "job.dump_folder"},
    {"output", "job.dump_folder"},
    {"output_dir", "job.dump_folder"},
    {"per_device_train_batch_size", "training.local_batch_size"},
    {"recipe", "quantize.linear.mx.recipe_name"},
    {"resume", "checkpoint.enable"},
    {"resume_from_checkpoint", "checkpoint.enable"},
    {"save_interval", "checkpoint.interval"},
    {"save_steps", "checkpoint.interval"},
    {"seq_length", "training.seq_len"},
    {"tokenizer", "model.tokenizer_path"},
    {"train_file", "training.dataset_path"},
    {"train_iters", "training.steps"},
    {"warmup", "lr_scheduler.warmup_steps"},
};

static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

static const char *nearest_by_last_part(const oct_schema *schema, const char *word) {
    const char *near = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < schema->n; i++) {
        const char *part = last_part(schema->keys[i].name);
        size_t distance = oct_edit_distance(word, part);
        if (schema->keys[i].kind == OCT_KEY_USED && distance < best_distance &&
            oct_nearest_name(word, &part, 1)) {
            near = schema->keys[i].name;
            best_distance = distance;
        }
    }
    return near;
}

const char *oct_job_key_like(const char *name) {
    const oct_schema *schema = &oct_schema_titan;
    const char *word = last_part(name);
    for (size_t i = 0; i < OCT_COUNT(other_words); i++)
        if (oct_edit_distance(other_words[i].word, word) == 0)
            return other_words[i].key;
    /* "steps" is training's before it's validation's: the rows are in the order of sections. */
    for (size_t i = 0; i < schema->n; i++)
        if (schema->keys[i].kind == OCT_KEY_USED &&
            oct_edit_distance(last_part(schema->keys[i].name), word) == 0)
            return schema->keys[i].name;
    return word == name ? nearest_by_last_part(schema, word) : oct_schema_nearest(schema, name);
}
