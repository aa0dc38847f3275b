/* What a comparison compares: its arms, as --recipes names them. */
#ifndef OCT_COMPARE_ARMS_H
#define OCT_COMPARE_ARMS_H

#include <octet/status.h>
#include <stdbool.h>

enum { OCT_MAX_ARMS = 32 };

typedef struct oct_arm {
    char *name;        /* as it was written, and its folder's: "mxfp8", "mxfp8@octet" */
    char *recipe;      /* "mxfp8" */
    const char *rules; /* after the @, within `name`; NULL: the job's */
    bool other_order; /* the sequences of a step in reverse: the same step, sums in another order */
} oct_arm;

typedef struct oct_arms {
    oct_arm items[OCT_MAX_ARMS];
    int n;
} oct_arms;

/* RECIPE[@RULES], with commas between; recipes and rules themselves are judged where a job is
 * loaded with them. OCT_INVALID: an empty name, one that is there twice, too many. Free with
 * oct_arms_free, whatever the status. */
oct_status oct_arms_read(const char *text, oct_arms *arms, oct_error *err);
/* One more behind the first: the first again, with sums in another order. Its gap is what rounding
 * alone does. */
oct_status oct_arms_add_other_order(oct_arms *arms, oct_error *err);
void oct_arms_free(oct_arms *arms);

#endif
