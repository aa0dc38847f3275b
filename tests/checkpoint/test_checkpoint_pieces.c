/* Tensors that lie in pieces, as several ranks may write them. */
#include <setjmp.h>

#include <inttypes.h>

#include "base/count.h"
#include "checkpoint_support.h"

static void write_piece(const char *name, const float *rows, int64_t n_rows, oct_strbuf *files) {
    char path[128];
    oct_safetensors_writer *w = NULL;
    oct_file_receipt receipt;
    oct_safetensors_item item = {
        .name = "w", .dtype = OCT_F32, .n_dims = 2, .shape = {n_rows, COLS}, .data = rows};
    snprintf(path, sizeof path, "ckpt/step-1/%s", name);
    assert_int_equal(oct_safetensors_writer_create(path, &w, NULL), OCT_OK);
    assert_int_equal(oct_safetensors_writer_add(w, &item, NULL), OCT_OK);
    assert_int_equal(oct_safetensors_writer_commit(w, &receipt, NULL), OCT_OK);
    oct_safetensors_writer_destroy(w);
    oct_strbuf_printf(files, ", \"%s\": {\"bytes\": %zu, \"xxh3\": \"%016" PRIx64 "\"}", name,
                      receipt.n_bytes, receipt.xxh3);
}

/* `step-1` with the tensor w (ROWS, COLS) in three files of 32, 8 and 0 rows. */
static void write_pieces(const float *w, const char *pieces) {
    oct_strbuf manifest = {0};
    assert_int_equal(system("rm -rf ckpt"), 0);
    oct_checkpoint_contents bare = {
        .step = 1, .state_json = "{}", .kernel_set = "ref", .gemm = "exact"};
    assert_int_equal(oct_checkpoint_save("ckpt", &bare, 1, NULL), OCT_OK);
    size_t n_bytes;
    char *text = get_file("ckpt/step-1/manifest.json", &n_bytes);
    assert_non_null(strstr(text, "},\n \"tensors\""));
    oct_strbuf_append(&manifest, text, (size_t)(strstr(text, "},\n \"tensors\"") - text));
    write_piece("a.safetensors", w, 32, &manifest);
    write_piece("b.safetensors", w + 32 * COLS, 8, &manifest);
    write_piece("c.safetensors", w, 0, &manifest);
    oct_strbuf_printf(&manifest,
                      "}, \"tensors\": {\"optimizer\": {}, \"model\": {\"w\": {\"dtype\": \"F32\", "
                      "\"shape\": [%d, %d], \"pieces\": [%s]}}}}",
                      ROWS, COLS, pieces);
    put_text("ckpt/step-1/manifest.json", manifest.text);
    oct_strbuf_free(&manifest);
    oct_free(text);
}

#define A "{\"file\": \"a.safetensors\", \"row\": 0, \"rows\": 32}"
#define B "{\"file\": \"b.safetensors\", \"row\": 32, \"rows\": 8}"
#define C "{\"file\": \"c.safetensors\", \"row\": 32, \"rows\": 0}"

static void given_a_tensor_in_pieces_any_range_of_rows_is_read(void **state) {
    (void)state;
    fake f;
    float to[ROWS * COLS];
    make_fake(&f, 1);
    write_pieces(f.w, A "," C "," B);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("ckpt", 1, &c, NULL), OCT_OK);
    for (int64_t row = 0; row <= ROWS; row++)
        for (int64_t n = 0; n <= ROWS - row; n++) {
            memset(to, 0xee, sizeof to);
            assert_int_equal(
                oct_checkpoint_copy_rows(c, OCT_CHECKPOINT_MODEL, "w", row, n, to, NULL), OCT_OK);
            assert_memory_equal(to, f.w + row * COLS, (size_t)n * COLS * sizeof *to);
        }
    oct_tensor whole = oct_tensor_2d(OCT_F32, ROWS, COLS, to);
    assert_int_equal(oct_checkpoint_copy(c, OCT_CHECKPOINT_MODEL, "w", &whole, NULL), OCT_OK);
    assert_memory_equal(to, f.w, sizeof to);
    const int64_t bad[][2] = {{-1, 2}, {0, 41}, {40, 1}, {41, 0}, {1, INT64_MAX}, {5, -1}};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(
            oct_checkpoint_copy_rows(c, OCT_CHECKPOINT_MODEL, "w", bad[i][0], bad[i][1], to, NULL),
            OCT_INVALID);
    oct_checkpoint_close(c);
}

static void given_pieces_with_a_gap_or_an_overlap_the_checkpoint_is_invalid(void **state) {
    (void)state;
    fake f;
    make_fake(&f, 1);
    static const char *const cases[][2] = {
        {"", "pieces of 40 rows in all; got 0"},
        {A, "pieces of 40 rows in all; got 32"},
        {B, "begin at row 0; got 32"},
        {B "," A, "begin at row 0; got 32"},
        {A "," A "," B, "begin at row 32; got 0"},
        {A "," B "," B, "begin at row 40; got 32"},
        {A ",7", "a piece: expected file, row and rows"},
        {A ",{\"file\": \"d.safetensors\", \"row\": 32, \"rows\": 8}", "isn't there"},
        {A ",{\"file\": \"b.safetensors\", \"row\": 32, \"rows\": 9223372036854775807}", "differ"},
        {A ",{\"file\": \"a.safetensors\", \"row\": 32, \"rows\": 32}", "at most 8 rows"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        write_pieces(f.w, cases[i][0]);
        assert_invalid(1, cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(given_a_tensor_in_pieces_any_range_of_rows_is_read),
        STORY(given_pieces_with_a_gap_or_an_overlap_the_checkpoint_is_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
