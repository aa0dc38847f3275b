/* Texts to packed token files: see oct_data_pack in dataset.h. Documents stream through the
 * tokenizer into the writer, so memory doesn't grow with the texts. */
#include "data/pack_texts.h"

#include "data/packed_file.h"

typedef struct packing {
    const oct_tokenizer *tokenizer;
    oct_packed_writer *writer;
    oct_progress progress;
    void *progress_user;
    int64_t n_documents, done_bytes, total_bytes;
} packing;

static void count_progress(packing *p, const int32_t *ids, size_t n) {
    if (!p->progress)
        return;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        oct_tokenizer_token(p->tokenizer, ids[i], &n_bytes);
        p->done_bytes += (int64_t)n_bytes;
    }
    if (p->done_bytes > p->total_bytes) /* normalising can lengthen a text */
        p->done_bytes = p->total_bytes;
    p->progress(p->progress_user, "tokenizing", p->done_bytes, p->total_bytes);
}

static oct_status pack_ids(void *user, const int32_t *ids, size_t n, oct_error *err) {
    packing *p = user;
    count_progress(p, ids, n);
    return oct_packed_append(p->writer, ids, n, err);
}

/* The tokenizer's own post-processor may put begin and end around a text already. */
static oct_status pack_document(void *user, const char *text, size_t n_bytes, oct_error *err) {
    packing *p = user;
    const int32_t *before, *after;
    size_t n_before = oct_tokenizer_ids_before(p->tokenizer, &before);
    size_t n_after = oct_tokenizer_ids_after(p->tokenizer, &after);
    int32_t bos = oct_tokenizer_bos(p->tokenizer), eos = oct_tokenizer_eos(p->tokenizer);
    oct_status status = OCT_OK;
    if (bos >= 0 && bos != eos && !(n_before && before[0] == bos))
        status = oct_packed_append(p->writer, &bos, 1, err);
    if (!status)
        status = oct_tokenizer_encode_whole(p->tokenizer, text, n_bytes, OCT_ADDED_TOKENS_FOUND,
                                            pack_ids, p, err);
    if (!status && eos >= 0 && !(n_after && after[n_after - 1] == eos))
        status = oct_packed_append(p->writer, &eos, 1, err);
    p->n_documents++;
    return status;
}

oct_status oct_pack_files(const oct_file_list *list, const oct_tokenizer *tokenizer,
                          const char *out_path, oct_progress progress, void *progress_user,
                          int64_t *n_tokens, int64_t *n_documents, oct_error *err) {
    packing p = {.tokenizer = tokenizer,
                 .progress = progress,
                 .progress_user = progress_user,
                 .total_bytes = list->n_bytes};
    oct_status status = oct_packed_create(out_path, oct_tokenizer_vocab_size(tokenizer),
                                          oct_tokenizer_hash(tokenizer), &p.writer, err);
    for (size_t i = 0; i < list->n && !status; i++)
        status = oct_documents_walk(&list->files[i], pack_document, &p, err);
    if (status) {
        oct_packed_abandon(p.writer);
        return status;
    }
    if (n_documents)
        *n_documents = p.n_documents;
    return oct_packed_finish(p.writer, p.n_documents, n_tokens, err);
}

oct_status oct_data_pack(const char *const *paths, size_t n_paths, oct_read_as as,
                         const oct_tokenizer *tokenizer, const char *out_path,
                         oct_progress progress, void *progress_user, int64_t *n_tokens,
                         int64_t *n_documents, oct_error *err) {
    oct_file_list list = {0};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < n_paths && !status; i++)
        status = oct_file_list_add(&list, paths[i], as, err);
    const char *packed = oct_file_list_first_packed(&list);
    if (!status && packed)
        status = oct_fail(err, OCT_INVALID, "%s: packed already; expected text or JSONL", packed);
    if (!status)
        status = oct_pack_files(&list, tokenizer, out_path, progress, progress_user, n_tokens,
                                n_documents, err);
    oct_file_list_free(&list);
    return status;
}
