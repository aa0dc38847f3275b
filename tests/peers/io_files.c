/* Files for io_peers.py to compare: `write FILE` and `list FILE` of safetensors, `events FOLDER`.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "report/event_file.h"
#include "tensors/safetensors.h"

static void put_element(oct_dtype dtype, int i, void *to) {
    static const uint16_t half[15] = {0,      0x3c00, 0x4000, 0x4200, 0x4400,
                                      0x4500, 0x4600, 0x4700, 0x4800, 0x4880,
                                      0x4900, 0x4980, 0x4a00, 0x4a80, 0x4b00};
    const double f64 = i;
    const float f32 = (float)i;
    const int64_t whole = dtype == OCT_BOOL ? i % 2 : i;
    const void *from = dtype == OCT_F64   ? (const void *)&f64
                       : dtype == OCT_F32 ? (const void *)&f32
                       : dtype == OCT_F16 ? (const void *)&half[i]
                                          : (const void *)&whole;
    memcpy(to, from, oct_safetensors_dtype_bytes(dtype));
}

static oct_status write_file(const char *path, oct_error *err) {
    static char data[OCT_N_DTYPES][15 * 8];
    const float scalar = 2.5f;
    oct_safetensors_writer *w = NULL;
    oct_status status = oct_safetensors_writer_create(path, &w, err);
    if (!status)
        status = oct_safetensors_writer_set_metadata(w, "format", "pt", err);
    if (!status)
        status = oct_safetensors_writer_set_metadata(w, "quote", "a \"b\"\n\xc3\xa9", err);
    for (int d = 0; d < OCT_N_DTYPES && !status; d++) {
        const char *name = oct_safetensors_dtype_name((oct_dtype)d);
        if (!name)
            continue;
        size_t width = oct_safetensors_dtype_bytes((oct_dtype)d);
        for (int i = 0; i < 15; i++)
            put_element((oct_dtype)d, i, data[d] + (size_t)i * width);
        oct_safetensors_item item = {
            .name = name, .dtype = (oct_dtype)d, .n_dims = 2, .shape = {3, 5}, .data = data[d]};
        status = oct_safetensors_writer_add(w, &item, err);
    }
    oct_safetensors_item one = {.name = "scalar", .dtype = OCT_F32, .data = &scalar};
    oct_safetensors_item none = {.name = "empty", .dtype = OCT_F32, .n_dims = 2, .shape = {4, 0}};
    if (!status)
        status = oct_safetensors_writer_add(w, &one, err);
    if (!status)
        status = oct_safetensors_writer_add(w, &none, err);
    if (!status)
        status = oct_safetensors_writer_commit(w, NULL, err);
    oct_safetensors_writer_destroy(w);
    return status;
}

static oct_status list_file(const char *path, oct_error *err) {
    oct_safetensors *file = NULL;
    oct_status status = oct_safetensors_open(path, &file, err);
    if (status)
        return status;
    for (int64_t i = 0; i < oct_safetensors_count(file); i++) {
        const oct_safetensors_tensor *t = oct_safetensors_get(file, i);
        printf("%s %s ", t->name, t->dtype_name);
        for (int d = 0; d < t->n_dims; d++)
            printf("%s%" PRId64, d ? "," : "", t->shape[d]);
        printf(" ");
        for (size_t k = 0; k < t->n_bytes; k++)
            printf("%02x", ((const unsigned char *)t->data)[k]);
        printf("\n");
    }
    oct_safetensors_close(file);
    return OCT_OK;
}

static oct_status append(oct_event_file *file, int64_t step, oct_error *err) {
    const oct_metric metrics[] = {
        oct_metric_real("loss", (double)step / 2), oct_metric_real("grad_norm", NAN),
        oct_metric_integer("tokens", 2048 * step), oct_metric_text("note", "not a scalar")};
    return oct_event_file_append(file, step, metrics, 4, err);
}

/* A run of 5 steps, then one resumed at step 3 that jumps to step 300. */
static oct_status write_events(const char *folder, oct_error *err) {
    oct_event_file *file = NULL;
    oct_status status = oct_event_file_create(folder, -1, &file, err);
    for (int64_t step = 1; step <= 5 && !status; step++)
        status = append(file, step, err);
    oct_event_file_close(file);
    file = NULL;
    if (!status)
        status = oct_event_file_create(folder, 3, &file, err);
    if (!status)
        status = append(file, 300, err);
    oct_event_file_close(file);
    return status;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    oct_status status = OCT_INVALID;
    if (argc == 3 && strcmp(argv[1], "write") == 0)
        status = write_file(argv[2], &err);
    else if (argc == 3 && strcmp(argv[1], "list") == 0)
        status = list_file(argv[2], &err);
    else if (argc == 3 && strcmp(argv[1], "events") == 0)
        status = write_events(argv[2], &err);
    else
        fprintf(stderr, "usage: io_files write|list|events PATH\n");
    if (err.message[0])
        fprintf(stderr, "io_files: %s\n", err.message);
    return oct_status_exit_code(status);
}
