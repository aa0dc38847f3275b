/* octet tokenizer: train one, and look at what it makes of a text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "cli.h"
#include "options.h"
#include "read_as.h"
#include "subcommand.h"
#include "terminal.h"
#include "text/tokenizer.h"

#define MAX_INPUT_BYTES ((size_t)1 << 30)
#define N_OPTIONS(options) ((int)(sizeof(options) / sizeof *(options)))

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* The file to write: FILE.json, or tokenizer.json in a folder, which is made. */
static oct_status output_file(const char *output, char **path, oct_error *err) {
    bool is_file = ends_with(output, ".json") && !oct_path_is_folder(output);
    oct_status status = is_file ? OCT_OK : oct_make_folders(output, err);
    if (status)
        return status;
    *path = is_file ? oct_strdup(output) : oct_path_join(output, "tokenizer.json");
    return *path ? OCT_OK : oct_fail_memory(err);
}

static oct_status parse_split(const char *name, oct_split_rule *split, oct_error *err) {
    if (strcmp(name, "gpt2") != 0 && strcmp(name, "llama3") != 0)
        return oct_fail(err, OCT_INVALID,
                        "--split: unknown rule; expected gpt2 or llama3; got '%s'", name);
    *split = strcmp(name, "gpt2") == 0 ? OCT_SPLIT_GPT2 : OCT_SPLIT_LLAMA3;
    return OCT_OK;
}

static oct_status train(const cli_args *args, const char *output, const char *split, const char *as,
                        int64_t vocab_size, oct_error *err) {
    oct_tokenizer_train_options options = {.vocab_size = vocab_size, .progress = cli_progress};
    char *path = NULL;
    int64_t n_tokens = 0;
    if (!output)
        return oct_fail(err, OCT_INVALID, "--output is missing; expected a folder or FILE.json");
    oct_status status = parse_split(split, &options.split, err);
    if (!status)
        status = cli_parse_read_as(as, &options.as, err);
    size_t n_kept = oct_path_existing(output);
    if (!status)
        status = output_file(output, &path, err);
    if (!status)
        status = oct_tokenizer_train(args->operands, (size_t)args->n_operands, &options, path,
                                     &n_tokens, err);
    cli_progress_end();
    if (status)
        oct_remove_folders(output, n_kept);
    if (!status)
        printf("%s: %" PRId64 " tokens\n", path, n_tokens);
    if (!status && n_tokens < vocab_size)
        printf("fewer than the %" PRId64 " asked for: no other pair occurs twice in the text\n",
               vocab_size);
    oct_free(path);
    return status;
}

static oct_status run_train(int argc, char **argv, oct_error *err) {
    int64_t vocab_size = 4096;
    const char *output = NULL, *split = "gpt2", *as = NULL;
    const cli_option options[] = {
        {"vocab-size", CLI_INTEGER, &vocab_size, "N",
         "entries: end of text, 256 bytes, merges (default 4096)", 257, 1048576},
        {"output", CLI_NAME, &output, "PATH", "a folder, which gets tokenizer.json, or FILE.json"},
        {"split", CLI_NAME, &split, "RULE", "how text is cut into words: gpt2 (default), llama3"},
        {"as", CLI_NAME, &as, "KIND", CLI_READ_AS_HELP},
    };
    const cli_spec spec = {
        .usage = "octet tokenizer train TEXT... --output PATH [options]",
        .summary = "Trains a byte-level BPE on text files, JSONL files (field \"text\") or folders "
                   "of\nthem and writes a Hugging Face tokenizer.json.",
        .examples = "tokenizer train data/kjv.txt --vocab-size 4096 --output my-tokenizer\n"
                    "train job.toml --model.tokenizer_path=my-tokenizer\n",
        .options = options,
        .n_options = N_OPTIONS(options),
        .min_operands = 1,
        .max_operands = -1};
    cli_args args;
    oct_status status;
    if (cli_begin(&spec, argc, argv, &args, &status, err))
        status = train(&args, output, split, as, vocab_size, err);
    cli_args_free(&args);
    return status;
}

/* A file, or standard input for "-". */
static oct_status read_input(const char *path, char **text, size_t *n_bytes, oct_error *err) {
    if (strcmp(path, "-") != 0)
        return oct_file_read(path, MAX_INPUT_BYTES, text, n_bytes, err);
    oct_strbuf all = {0};
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, stdin)) > 0 && all.length <= MAX_INPUT_BYTES;)
        oct_strbuf_append(&all, block, n);
    oct_strbuf_append(&all, "", 0); /* so that there is a text when there is no input */
    if (!all.failed && !ferror(stdin) && all.length <= MAX_INPUT_BYTES) {
        *text = all.text;
        *n_bytes = all.length;
        return OCT_OK;
    }
    oct_status status = all.failed ? oct_fail_memory(err)
                                   : oct_fail(err, OCT_INVALID,
                                              "standard input: can't be read, or larger than %zu "
                                              "bytes",
                                              MAX_INPUT_BYTES);
    oct_strbuf_free(&all);
    return status;
}

/* Ids are never negative. printf would take longer than finding them does. */
static void print_id(int32_t id) {
    char digits[12];
    int n = 0;
    do {
        digits[n++] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    while (n > 0)
        putchar_unlocked(digits[--n]);
}

static oct_status print_ids(void *user, const int32_t *ids, size_t n, oct_error *err) {
    (void)err;
    bool *started = user;
    for (size_t i = 0; i < n; i++) {
        if (*started)
            putchar_unlocked(' ');
        print_id(ids[i]);
        *started = true;
    }
    return OCT_OK;
}

static oct_status run_encode(int argc, char **argv, oct_error *err) {
    const char *literal = NULL;
    bool bare = false;
    const cli_option options[] = {
        {"text", CLI_TEXT, &literal, "TEXT", "encode this text instead of a file"},
        {"no-special-tokens", CLI_FLAG, &bare, NULL,
         "leave out what the tokenizer's post-processor adds, and don't truncate"},
    };
    const cli_spec spec = {
        .usage = "octet tokenizer encode TOKENIZER [FILE] [--text TEXT] [--no-special-tokens]",
        .summary = "Prints the token ids of a file (default: standard input).",
        .examples = "tokenizer encode data/tokenizer.json data/kjv.txt\n"
                    "tokenizer encode data/tokenizer.json --text \"In the beginning\"\n",
        .options = options,
        .n_options = N_OPTIONS(options),
        .min_operands = 1,
        .max_operands = 2};
    cli_args args;
    oct_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t n_bytes = 0;
    bool started = false;
    oct_status status;
    if (!cli_begin(&spec, argc, argv, &args, &status, err))
        goto cleanup;
    if (literal && args.n_operands > 1)
        status = oct_fail(err, OCT_INVALID, "--text: expected no file beside it; got '%s'",
                          args.operands[1]);
    if (!status && args.n_operands > 1 && strcmp(args.operands[1], "-") != 0 &&
        !oct_path_exists(args.operands[1]))
        status = oct_fail(err, OCT_INVALID,
                          "%.300s: no such file; a text itself is given as --text TEXT",
                          args.operands[1]);
    if (!status)
        status = oct_tokenizer_load(args.operands[0], &tokenizer, err);
    oct_status (*encode)(const oct_tokenizer *, const char *, size_t, oct_added_tokens,
                         oct_token_sink, void *, oct_error *) =
        bare ? oct_tokenizer_encode_stream : oct_tokenizer_encode_whole;
    if (!status && !literal)
        status = read_input(args.n_operands > 1 ? args.operands[1] : "-", &text, &n_bytes, err);
    if (!status)
        status = encode(tokenizer, literal ? literal : text, literal ? strlen(literal) : n_bytes,
                        OCT_ADDED_TOKENS_FOUND, print_ids, &started, err);
    if (!status)
        printf("\n");
cleanup:
    oct_free(text);
    oct_tokenizer_free(tokenizer);
    cli_args_free(&args);
    return status;
}

/* Reads the numbers of a text into *ids. */
static oct_status parse_ids(const char *text, size_t n_bytes, const char *name, oct_token_list *ids,
                            oct_error *err) {
    if (memchr(text, 0, n_bytes))
        return oct_fail(err, OCT_INVALID, "%s: expected token ids; got a NUL byte", name);
    for (;;) {
        text += strspn(text, " \t\r\n,");
        if (!*text)
            return OCT_OK;
        char *end;
        long long value = strtoll(text, &end, 10);
        if (end == text || value < 0 || value > INT32_MAX || !strchr(" \t\r\n,", *end))
            return oct_fail(err, OCT_INVALID, "%s: expected token ids; got '%.20s'", name, text);
        int32_t id = (int32_t)value;
        if (oct_token_list_append(ids, &id, 1))
            return oct_fail_memory(err);
        text = end;
    }
}

static oct_status run_decode(int argc, char **argv, oct_error *err) {
    const cli_spec spec = {.usage = "octet tokenizer decode TOKENIZER [ID...]",
                           .summary = "Prints the text of token ids (default: those on standard "
                                      "input).",
                           .examples = "tokenizer decode data/tokenizer.json 40 1029\n",
                           .min_operands = 1,
                           .max_operands = -1};
    cli_args args;
    oct_tokenizer *tokenizer = NULL;
    oct_token_list ids = {0};
    oct_strbuf out = {0};
    char *text = NULL;
    size_t n_bytes;
    oct_status status;
    if (!cli_begin(&spec, argc, argv, &args, &status, err))
        goto cleanup;
    status = oct_tokenizer_load(args.operands[0], &tokenizer, err);
    for (int i = 1; i < args.n_operands && !status; i++)
        status = parse_ids(args.operands[i], strlen(args.operands[i]), "ID", &ids, err);
    if (!status && args.n_operands == 1)
        status = read_input("-", &text, &n_bytes, err);
    if (!status && text)
        status = parse_ids(text, n_bytes, "standard input", &ids, err);
    if (!status)
        status =
            oct_tokenizer_decode(tokenizer, ids.ids, ids.n, OCT_SPECIAL_TOKENS_WRITE, &out, err);
    if (!status)
        fwrite(out.text ? out.text : "", 1, out.length, stdout);
cleanup:
    oct_free(text);
    oct_strbuf_free(&out);
    oct_token_list_free(&ids);
    oct_tokenizer_free(tokenizer);
    cli_args_free(&args);
    return status;
}

oct_status cli_tokenizer(int argc, char **argv, oct_error *err) {
    const cli_subcommand commands[] = {
        {"train", "train a tokenizer on texts", run_train},
        {"encode", "a text to token ids", run_encode},
        {"decode", "token ids to text", run_decode},
    };
    return cli_run_subcommand("tokenizer", commands, N_OPTIONS(commands), argc, argv, err);
}
