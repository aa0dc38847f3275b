/* Any bytes as a model.safetensors.index.json beside two good shards. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hf/hf_folder.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static char folder[64] = "/tmp/octet-fuzz-XXXXXX", path[128];

static void remove_folder(void) {
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const float x[4] = {1, 2, 3, 4};
    (void)argc;
    (void)argv;
    const oct_safetensors_item items[] = {
        {.name = "a", .dtype = OCT_F32, .n_dims = 1, .shape = {4}, .data = x},
        {.name = "b", .dtype = OCT_F32, .n_dims = 1, .shape = {4}, .data = x}};
    if (!mkdtemp(folder) || oct_hf_model_write(folder, items, 2, 16, NULL))
        abort();
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    atexit(remove_folder);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    oct_hf_model *model = NULL;
    oct_error err = {0};
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n_bytes, f) != n_bytes || fclose(f) != 0)
        abort();
    oct_status status = oct_hf_model_open(folder, &model, &err);
    if (status && (!err.message[0] || strchr(err.message, '\n')))
        abort();
    if (!status && oct_hf_model_count(model) > 2)
        abort();
    oct_hf_model_close(model);
    return 0;
}
