/* Files of one JSON object a line (JSONL). */
#ifndef OCT_FILE_JSON_LINES_H
#define OCT_FILE_JSON_LINES_H

#include "file/json.h"

/* `where`: "PATH:LINE", for messages. A status other than OCT_OK ends the reading. */
typedef oct_status (*oct_json_line_sink)(void *user, const json_t *object, const char *where,
                                         oct_error *err);
/* Hands each object to `sink`, in order; empty lines are passed over. OCT_INVALID: a file that
 * can't be read or is beyond 1 GiB, a line that isn't one object. */
oct_status oct_json_lines_read(const char *path, oct_json_line_sink sink, void *user,
                               oct_error *err);

/* The text of an object's member; OCT_INVALID where it has none of that name. */
oct_status oct_json_line_text(const json_t *object, const char *name, const char *where,
                              const char **text, oct_error *err);

#endif
