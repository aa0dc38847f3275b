/* The option --as of the commands that read texts. */
#ifndef OCT_CLI_READ_AS_H
#define OCT_CLI_READ_AS_H

#include <octet/status.h>

#include "text/documents.h"

#define CLI_READ_AS_HELP "read every file as text or as jsonl, whatever its name (default: by name)"

/* NULL: the option wasn't given. */
oct_status cli_parse_read_as(const char *word, oct_read_as *as, oct_error *err);

#endif
