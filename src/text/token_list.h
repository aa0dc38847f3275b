/* A growing array of token ids: zero-initialise, end with oct_token_list_free. */
#ifndef OCT_TEXT_TOKEN_LIST_H
#define OCT_TEXT_TOKEN_LIST_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oct_token_list {
    int32_t *ids;
    size_t n, capacity;
} oct_token_list;

/* OCT_NO_MEMORY leaves the list as it was. */
oct_status oct_token_list_append(oct_token_list *list, const int32_t *ids, size_t n);
void oct_token_list_free(oct_token_list *list);

#endif
