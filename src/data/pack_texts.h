/* Packing of a list of text and JSONL files, for data sets and for oct_data_pack. */
#ifndef OCT_DATA_PACK_TEXTS_H
#define OCT_DATA_PACK_TEXTS_H

#include "data/dataset.h"
#include "text/documents.h"

/* As oct_data_pack; the list holds no packed file. */
oct_status oct_pack_files(const oct_file_list *list, const oct_tokenizer *tokenizer,
                          const char *out_path, oct_progress progress, void *progress_user,
                          int64_t *n_tokens, int64_t *n_documents, oct_error *err);

#endif
