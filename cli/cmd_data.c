/* octet data: texts to packed token files. */
#include <inttypes.h>
#include <stdio.h>

#include "cli.h"
#include "data/dataset.h"
#include "options.h"
#include "read_as.h"
#include "subcommand.h"
#include "terminal.h"

static oct_status pack(const cli_args *args, const char *tokenizer_path, const char *output,
                       const char *as, oct_error *err) {
    if (!tokenizer_path)
        return oct_fail(err, OCT_INVALID,
                        "--tokenizer is missing; expected a tokenizer.json or a "
                        "folder that holds one");
    if (!output)
        return oct_fail(err, OCT_INVALID, "--output is missing; expected the file to write");
    oct_tokenizer *tokenizer;
    oct_read_as read_as;
    int64_t n_tokens = 0, n_documents = 0;
    oct_status status = cli_parse_read_as(as, &read_as, err);
    if (!status)
        status = oct_tokenizer_load(tokenizer_path, &tokenizer, err);
    if (status)
        return status;
    status = oct_data_pack(args->operands, (size_t)args->n_operands, read_as, tokenizer, output,
                           cli_progress, NULL, &n_tokens, &n_documents, err);
    cli_progress_end();
    if (!status)
        printf("%s: %" PRId64 " tokens, %" PRId64 " documents\n", output, n_tokens, n_documents);
    oct_tokenizer_free(tokenizer);
    return status;
}

static oct_status run_pack(int argc, char **argv, oct_error *err) {
    const char *tokenizer = NULL, *output = NULL, *as = NULL;
    const cli_option options[] = {
        {"tokenizer", CLI_NAME, &tokenizer, "PATH", "tokenizer.json or a folder that holds one"},
        {"output", CLI_NAME, &output, "FILE", "the packed file to write"},
        {"as", CLI_NAME, &as, "KIND", CLI_READ_AS_HELP},
    };
    const cli_spec spec = {
        .usage = "octet data pack TEXT... --tokenizer PATH --output FILE [--as KIND]",
        .summary = "Tokenizes text files (each a document), JSONL files (each line's \"text\" a "
                   "document)\nor folders of them into one packed token file.",
        .examples = "data pack data/kjv.txt --tokenizer data/tokenizer.json --output kjv.tokens\n"
                    "train job.toml --training.dataset_path=kjv.tokens\n",
        .options = options,
        .n_options = 3,
        .min_operands = 1,
        .max_operands = -1};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err))
        status = pack(&args, tokenizer, output, as, err);
    cli_args_free(&args);
    return status;
}

oct_status cli_data(int argc, char **argv, oct_error *err) {
    const cli_subcommand commands[] = {{"pack", "texts to one packed token file", run_pack}};
    return cli_run_subcommand("data", commands, 1, argc, argv, err);
}
