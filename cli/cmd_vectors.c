/* octet vectors: the golden vectors, for who checks an implementation of their own. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "cli.h"
#include "options.h"
#include "vectors_data.h"

static oct_status write_one(const char *folder, const embedded_file *file, oct_error *err) {
    char *path = oct_path_join(folder, file->name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = oct_path_check_target(path, err);
    if (!status)
        status = oct_file_write(path, file->bytes, file->n_bytes, err);
    oct_free(path);
    return status;
}

static oct_status write_all(const char *folder, oct_error *err) {
    int n = 0;
    oct_status status = oct_make_folders(folder, err);
    for (; !status && embedded_files[n].name; n++)
        status = write_one(folder, &embedded_files[n], err);
    if (!status)
        printf("%d files of golden vectors in %s; README.md there says what they hold\n", n,
               folder);
    return status;
}

oct_status cli_vectors(int argc, char **argv, oct_error *err) {
    const cli_spec spec = {
        .usage = "octet vectors FOLDER",
        .summary =
            "Writes the golden vectors: inputs and the right codes, scales and values of E4M3, "
            "E5M2,\nE8M0, MX and HiF8, as CSV with a README. They come from exact integer "
            "arithmetic.",
        .examples = "vectors my-vectors\n",
        .min_operands = 1,
        .max_operands = 1};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err))
        status = write_all(args.operands[0], err);
    cli_args_free(&args);
    return status;
}
