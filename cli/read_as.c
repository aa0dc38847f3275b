/* The option --as: see read_as.h. */
#include "read_as.h"

#include <string.h>

oct_status cli_parse_read_as(const char *word, oct_read_as *as, oct_error *err) {
    *as = !word                        ? OCT_READ_BY_NAME
          : strcmp(word, "jsonl") == 0 ? OCT_READ_AS_JSONL
                                       : OCT_READ_AS_TEXT;
    if (*as == OCT_READ_AS_TEXT && strcmp(word, "text") != 0)
        return oct_fail(err, OCT_INVALID, "--as: unknown kind; expected text or jsonl; got '%s'",
                        word);
    return OCT_OK;
}
