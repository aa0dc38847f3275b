/* Puts the mutant that OCTET_MUTANT names in force before main; OCTET_MUTANT=list lists them, those
 * of kernels that this CPU can't run with a word to say so. */
#include "mutants.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/gemm/tuning.h"
#include "levels.h"

enum { MOST_SCALES = 1 << 16, NO_MUTANT = 97 /* exit status: the name or the tables are wrong */ };

int mutant = -1;
const oct_gemm_kernels *gemm_table;
const uint8_t mx_ones[MOST_SCALES] = {[0 ... MOST_SCALES - 1] = 127};
const float ones[MOST_SCALES] = {[0 ... MOST_SCALES - 1] = 1};

void set_zeros(void *to, int64_t n_rows, size_t n_bytes, size_t stride) {
    for (int64_t r = 0; r < n_rows; r++)
        memset((char *)to + (size_t)r * stride, 0, n_bytes);
}

void set_rows(void *to, int64_t n_rows, size_t n_bytes, size_t stride, const void *from,
              size_t n_from) {
    for (int64_t r = 0; r < n_rows; r++)
        memmove((char *)to + (size_t)r * stride, from, n_bytes < n_from ? n_bytes : n_from);
}

static oct_safetensors_item *own_items(oct_checkpoint_contents *contents) {
    size_t n = (size_t)contents->n_tensors[OCT_CHECKPOINT_MODEL];
    oct_safetensors_item *items = malloc((n + 1) * sizeof *items);
    if (!items)
        abort();
    if (n > 0)
        memcpy(items, contents->tensors[OCT_CHECKPOINT_MODEL], n * sizeof *items);
    contents->tensors[OCT_CHECKPOINT_MODEL] = items;
    return n > 0 ? items : NULL;
}

void less_rows(oct_checkpoint_contents *contents) {
    oct_safetensors_item *first = own_items(contents);
    if (first && first->n_dims > 0 && first->shape[0] > 0)
        first->shape[0]--;
}

void other_data(oct_checkpoint_contents *contents) {
    oct_safetensors_item *first = own_items(contents);
    if (first && first->data)
        first->data = ones;
}

oct_status without_last_row(const oct_checkpoint *checkpoint, oct_checkpoint_group group,
                            const char *name, const oct_tensor *to, oct_error *err) {
    oct_tensor less = *to;
    const oct_checkpoint_tensor *t = oct_checkpoint_tensor_find(checkpoint, group, name);
    if (!t || to->n_dims == 0 || to->shape[0] == 0)
        return OCT_OK;
    less.shape[0]--;
    return oct_checkpoint_copy_rows(checkpoint, group, name, 0, less.shape[0], to->data, err);
}

static bool is_run_here(const mutation *m) {
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++) {
        const oct_kernels *k = &sets[s].kernels;
        if (m->table == k->quantize || m->table == k->elementwise)
            return true;
        for (int i = 0; i < k->gemm->n_choices; i++)
            if (m->table == k->gemm->choices[i].kernels)
                return true;
    }
    return !m->entry;
}

/* An entry that the table doesn't have, or a table that this compiler couldn't build, has none. */
static bool exists(const mutation *m) {
    return !m->entry || (m->table && *m->entry);
}

static void list(void) {
    for (size_t i = 0; i < n_mutations; i++)
        if (exists(&mutations[i]))
            printf("%s|%s|%s|%s\n", mutations[i].area, mutations[i].function, mutations[i].kind,
                   is_run_here(&mutations[i]) ? "" : "this CPU lacks the kernels");
}

/* Tables are constants: their pages are made writable. */
static void replace(const mutation *m) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)m->entry & ~(page - 1);
    size_t n = (uintptr_t)(m->entry + 1) - first;
    if (mprotect((void *)first, n, PROT_READ | PROT_WRITE)) {
        perror("mprotect");
        exit(NO_MUTANT);
    }
    *m->real = *m->entry;
    *m->entry = m->wrapper;
    gemm_table = m->table;
}

__attribute__((constructor)) static void choose(void) {
    const char *name = getenv("OCTET_MUTANT");
    if (!name || !*name)
        return;
    if (strcmp(name, "list") == 0) {
        list();
        exit(0);
    }
    for (size_t i = 0; i < n_mutations; i++) {
        char own[256];
        snprintf(own, sizeof own, "%s: %s", mutations[i].function, mutations[i].kind);
        if (strcmp(own, name) != 0 || !exists(&mutations[i]))
            continue;
        mutant = mutations[i].mutant;
        if (mutations[i].entry)
            replace(&mutations[i]);
        return;
    }
    fprintf(stderr, "OCTET_MUTANT: '%s' isn't one of the mutants; OCTET_MUTANT=list lists them\n",
            name);
    exit(NO_MUTANT);
}
