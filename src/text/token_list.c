/* A growing array of token ids: see token_list.h. */
#include "text/token_list.h"

#include "base/alloc.h"

oct_status oct_token_list_append(oct_token_list *list, const int32_t *ids, size_t n) {
    if (list->n + n > list->capacity) {
        size_t capacity = list->capacity ? list->capacity : 64;
        while (capacity < list->n + n)
            capacity *= 2;
        int32_t *grown = oct_realloc_array(list->ids, capacity, sizeof *grown);
        if (!grown)
            return OCT_NO_MEMORY;
        list->ids = grown;
        list->capacity = capacity;
    }
    for (size_t i = 0; i < n; i++) /* mostly one or two */
        list->ids[list->n + i] = ids[i];
    list->n += n;
    return OCT_OK;
}

void oct_token_list_free(oct_token_list *list) {
    oct_free(list->ids);
    *list = (oct_token_list){0};
}
