/* A folder that one run at a time writes to.
 *
 * The claim is a lock (flock) on the file `.octet.lock` in the folder, and the file says who holds
 * it. The kernel gives the lock back when its process ends in whatever way, so none is ever stale;
 * it holds between containers that share the folder, and between hosts on NFS. A child process
 * keeps its parent's claims. Reading needs no claim. */
#ifndef OCT_BASE_CLAIM_H
#define OCT_BASE_CLAIM_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct oct_claim {
    char *folder, *path; /* owned; NULL: nothing is claimed */
    size_t n_kept;       /* this much of the folder's path was there before */
    int fd;              /* holds the lock; -1: the file system has none */
} oct_claim;

/* Makes the folder and its parents, and claims it. OCT_FAILED: it can't be written to, or another
 * process holds it; the message says which, on what host and since when. A file system that has no
 * locks gets a warning. *claim is empty on failure. */
oct_status oct_claim_take(const char *folder, oct_claim *claim, oct_error *err);
/* Whether `folder` is the claimed one, maybe by another name. An empty claim covers nothing. */
bool oct_claim_covers(const oct_claim *claim, const char *folder);
/* Gives it back, and removes the folder and what was made of its parents where they are empty. An
 * empty claim is fine. */
void oct_claim_release(oct_claim *claim);

#endif
