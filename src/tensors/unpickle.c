/* Python's pickle read without running anything: see unpickle.h. */
#include "tensors/unpickle.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/utf8.h"
#include "file/json.h"

#define MAX_NODES ((size_t)8 << 20)
#define MAX_MEMO ((size_t)16 << 20)

/* What torch.distributed.checkpoint and torch.save name. */
static const char *const globals[] = {
    "collections.OrderedDict",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    "torch.BFloat16Storage",
    "torch.FloatStorage",
    "torch.HalfStorage",
    "torch.DoubleStorage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.Size",
    "torch._utils._rebuild_tensor_v2",
    "torch.bfloat16",
    "torch.bool",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.float16",
    "torch.float32",
    "torch.float64",
    "torch.int32",
    "torch.int64",
    "torch.serialization._get_layout",
    "torch.uint8",
};

typedef struct machine {
    const unsigned char *bytes;
    size_t n, at;
    const char *name;
    oct_arena *arena;
    oct_pickle **stack, **memo;
    size_t n_stack, stack_capacity, n_memo, memo_capacity, n_nodes;
    bool no_memory;
} machine;

/* What MARK leaves on the stack. */
static oct_pickle mark;

/* ---- memory ---- */

static void *grow(machine *m, void *array, size_t n, size_t *capacity, size_t wanted) {
    if (wanted <= *capacity)
        return array;
    size_t size = *capacity ? 2 * *capacity : 8;
    while (size < wanted)
        size *= 2;
    oct_pickle **grown = oct_arena_alloc_array(m->arena, size, sizeof *grown);
    if (!grown) {
        m->no_memory = true;
        return NULL;
    }
    if (n)
        memcpy(grown, array, n * sizeof *grown);
    memset(grown + n, 0, (size - n) * sizeof *grown);
    *capacity = size;
    return grown;
}

static oct_pickle *make(machine *m, oct_pickle_kind kind) {
    oct_pickle *node = m->n_nodes++ < MAX_NODES ? oct_arena_alloc(m->arena, sizeof *node) : NULL;
    if (!node) {
        m->no_memory = true;
        return NULL;
    }
    *node = (oct_pickle){.kind = kind};
    return node;
}

static bool append(machine *m, oct_pickle *to, oct_pickle *item) {
    oct_pickle **grown = grow(m, to->items, to->n, &to->capacity, to->n + 1);
    if (!grown)
        return false;
    to->items = grown;
    to->items[to->n++] = item;
    return true;
}

/* ---- stack and memo ---- */

static bool push(machine *m, oct_pickle *node) {
    oct_pickle **grown =
        node ? grow(m, m->stack, m->n_stack, &m->stack_capacity, m->n_stack + 1) : NULL;
    if (!grown)
        return false;
    m->stack = grown;
    m->stack[m->n_stack++] = node;
    return true;
}

/* NULL: the stack is empty, or a mark lies on it. */
static oct_pickle *pop(machine *m) {
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == &mark)
        return NULL;
    return m->stack[--m->n_stack];
}

static oct_pickle *top(const machine *m) {
    return m->n_stack && m->stack[m->n_stack - 1] != &mark ? m->stack[m->n_stack - 1] : NULL;
}

/* Where the items above the last mark begin; the mark is gone then, they stay above *n_stack. */
static bool pop_mark(machine *m, size_t *first, size_t *n) {
    size_t at = m->n_stack;
    while (at > 0 && m->stack[at - 1] != &mark)
        at--;
    if (at == 0)
        return false;
    *first = at;
    *n = m->n_stack - at;
    m->n_stack = at - 1;
    return true;
}

static bool memoize(machine *m, size_t index) {
    if (!top(m) || index >= MAX_MEMO || index > 2 * m->n)
        return false;
    oct_pickle **grown = grow(m, m->memo, m->n_memo, &m->memo_capacity, index + 1);
    if (!grown)
        return false;
    m->memo = grown;
    m->memo[index] = top(m);
    m->n_memo = index + 1 > m->n_memo ? index + 1 : m->n_memo;
    return true;
}

static bool push_memo(machine *m, size_t index) {
    return index < m->n_memo && m->memo[index] && push(m, m->memo[index]);
}

/* ---- arguments ---- */

static bool take_number(machine *m, int n_bytes, uint64_t *value) {
    if (m->n - m->at < (size_t)n_bytes)
        return false;
    *value = 0;
    for (int i = 0; i < n_bytes; i++)
        *value |= (uint64_t)m->bytes[m->at + (size_t)i] << 8 * i;
    m->at += (size_t)n_bytes;
    return true;
}

static char *take_bytes(machine *m, size_t n) {
    if (m->n - m->at < n)
        return NULL;
    char *text = oct_arena_alloc(m->arena, n + 1);
    if (!text) {
        m->no_memory = true;
        return NULL;
    }
    memcpy(text, m->bytes + m->at, n);
    text[n] = '\0';
    m->at += n;
    return strlen(text) == n && oct_utf8_is_valid(text) ? text : NULL;
}

static char *take_line(machine *m) {
    const unsigned char *end = memchr(m->bytes + m->at, '\n', m->n - m->at);
    char *text = end ? take_bytes(m, (size_t)(end - m->bytes) - m->at) : NULL;
    m->at += text != NULL;
    return text;
}

static bool push_text(machine *m, int n_bytes) {
    uint64_t n;
    char *text = take_number(m, n_bytes, &n) ? take_bytes(m, (size_t)n) : NULL;
    oct_pickle *node = text ? make(m, OCT_PICKLE_IS_TEXT) : NULL;
    if (node)
        node->text = text;
    return push(m, node);
}

static bool push_number(machine *m, oct_pickle_kind kind, int64_t number) {
    oct_pickle *node = make(m, kind);
    if (node)
        node->number = number;
    return push(m, node);
}

/* LONG1: of two's complement, little end first. */
static bool push_long(machine *m) {
    uint64_t n, value = 0;
    if (!take_number(m, 1, &n) || n > 8 || !take_number(m, (int)n, &value))
        return false;
    if (n > 0 && n < 8 && value >> (8 * n - 1))
        value |= ~(uint64_t)0 << 8 * n;
    return push_number(m, OCT_PICKLE_IS_INT, (int64_t)value);
}

/* ---- what is made ---- */

static oct_status fail(const machine *m, const char *what, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s: byte %zu: %s", m->name, m->at, what);
}

static oct_status push_global(machine *m, const char *module, const char *name, oct_error *err) {
    char full[128];
    bool fits =
        module && name && snprintf(full, sizeof full, "%s.%s", module, name) < (int)sizeof full;
    for (size_t i = 0; fits && i < OCT_COUNT(globals); i++) {
        oct_pickle *node = strcmp(full, globals[i]) == 0 ? make(m, OCT_PICKLE_IS_GLOBAL) : NULL;
        if (!node)
            continue;
        node->text = globals[i];
        return push(m, node) ? OCT_OK : oct_fail_memory(err);
    }
    if (m->no_memory)
        return oct_fail_memory(err);
    if (!fits)
        return fail(m, "a global's name isn't one", err);
    return oct_fail(err, OCT_INVALID,
                    "%s: byte %zu: it names %s, which isn't part of a checkpoint of tensors; "
                    "nothing was run",
                    m->name, m->at, oct_show(full).text);
}

static bool push_collection(machine *m, oct_pickle_kind kind, size_t first, size_t n) {
    oct_pickle *node = make(m, kind);
    for (size_t i = 0; i < n && node; i++)
        if (!append(m, node, m->stack[first + i]))
            return false;
    return push(m, node);
}

static bool push_tuple(machine *m, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (m->n_stack <= i || m->stack[m->n_stack - 1 - i] == &mark)
            return false;
    m->n_stack -= n;
    return push_collection(m, OCT_PICKLE_IS_TUPLE, m->n_stack, n);
}

static bool push_marked_tuple(machine *m) {
    size_t first, n;
    return pop_mark(m, &first, &n) && push_collection(m, OCT_PICKLE_IS_TUPLE, first, n);
}

/* Items above the mark to the list or dict below it. */
static bool add_marked(machine *m, oct_pickle_kind kind) {
    size_t first, n;
    if (!pop_mark(m, &first, &n))
        return false;
    oct_pickle *to = top(m);
    if (!to || to->kind != kind || (kind == OCT_PICKLE_IS_DICT && n % 2))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!append(m, to, m->stack[first + i]))
            return false;
    return true;
}

static bool add_one(machine *m, oct_pickle_kind kind) {
    oct_pickle *value = pop(m), *key = kind == OCT_PICKLE_IS_DICT ? pop(m) : value, *to = top(m);
    if (!value || !key || !to || to->kind != kind)
        return false;
    return (kind == OCT_PICKLE_IS_LIST || append(m, to, key)) && append(m, to, value);
}

/* REDUCE and NEWOBJ: what would be called isn't. */
static bool push_object(machine *m) {
    oct_pickle *arguments = pop(m), *made = pop(m);
    if (!arguments || arguments->kind != OCT_PICKLE_IS_TUPLE || !made ||
        made->kind != OCT_PICKLE_IS_GLOBAL)
        return false;
    oct_pickle *node = make(m, OCT_PICKLE_IS_OBJECT);
    if (!node)
        return false;
    node->made = made;
    node->items = arguments->items;
    node->n = node->capacity = arguments->n;
    return push(m, node);
}

static bool build(machine *m) {
    oct_pickle *state = pop(m), *object = top(m);
    if (!state || !object || object->kind != OCT_PICKLE_IS_OBJECT || object->state)
        return false;
    object->state = state;
    return true;
}

static bool push_outside(machine *m) {
    oct_pickle *id = pop(m);
    if (!id || id->kind != OCT_PICKLE_IS_TUPLE)
        return false;
    oct_pickle *node = make(m, OCT_PICKLE_IS_OUTSIDE);
    if (!node)
        return false;
    node->items = id->items;
    node->n = node->capacity = id->n;
    return push(m, node);
}

/* ---- opcodes ---- */

static bool skip_frame(machine *m) {
    uint64_t n;
    return take_number(m, 8, &n); /* where frames end decides nothing */
}

static bool check_protocol(machine *m) {
    uint64_t version;
    return take_number(m, 1, &version) && version >= 2 && version <= 5;
}

static bool use_memo(machine *m, int n_bytes, bool (*use)(machine *, size_t)) {
    uint64_t index;
    return take_number(m, n_bytes, &index) && use(m, (size_t)index);
}

static bool push_int(machine *m, int n_bytes) {
    uint64_t value;
    if (!take_number(m, n_bytes, &value))
        return false;
    return push_number(m, OCT_PICKLE_IS_INT, n_bytes == 4 ? (int32_t)value : (int64_t)value);
}

/* An opcode; false: it isn't allowed, or finds what it doesn't fit. */
static bool run(machine *m, unsigned char opcode) {
    switch (opcode) {
    case 0x80:
        return check_protocol(m);
    case 0x95:
        return skip_frame(m);
    case '(':
        return push(m, &mark);
    case 'N':
        return push(m, make(m, OCT_PICKLE_IS_NONE));
    case 0x88:
    case 0x89:
        return push_number(m, OCT_PICKLE_IS_BOOL, opcode == 0x88);
    case 'J':
        return push_int(m, 4);
    case 'K':
        return push_int(m, 1);
    case 'M':
        return push_int(m, 2);
    case 0x8a:
        return push_long(m);
    case 'X':
        return push_text(m, 4);
    case 0x8c:
        return push_text(m, 1);
    case ')':
        return push(m, make(m, OCT_PICKLE_IS_TUPLE));
    case ']':
        return push(m, make(m, OCT_PICKLE_IS_LIST));
    case '}':
        return push(m, make(m, OCT_PICKLE_IS_DICT));
    case 't':
        return push_marked_tuple(m);
    case 0x85:
    case 0x86:
    case 0x87:
        return push_tuple(m, opcode - 0x84u);
    case 'a':
        return add_one(m, OCT_PICKLE_IS_LIST);
    case 'e':
        return add_marked(m, OCT_PICKLE_IS_LIST);
    case 's':
        return add_one(m, OCT_PICKLE_IS_DICT);
    case 'u':
        return add_marked(m, OCT_PICKLE_IS_DICT);
    case 'R':
    case 0x81:
        return push_object(m);
    case 'b':
        return build(m);
    case 'Q':
        return push_outside(m);
    case 0x94:
        return memoize(m, m->n_memo);
    case 'q':
        return use_memo(m, 1, memoize);
    case 'r':
        return use_memo(m, 4, memoize);
    case 'h':
        return use_memo(m, 1, push_memo);
    case 'j':
        return use_memo(m, 4, push_memo);
    default:
        return false;
    }
}

static oct_status step(machine *m, unsigned char opcode, oct_error *err) {
    char what[64];
    if (opcode == 'c') {
        const char *module = take_line(m);
        return push_global(m, module, module ? take_line(m) : NULL, err);
    }
    if (opcode == 0x93) {
        const char *name = oct_pickle_text(pop(m));
        return push_global(m, name ? oct_pickle_text(pop(m)) : NULL, name, err);
    }
    if (run(m, opcode))
        return OCT_OK;
    if (m->no_memory && m->n_nodes <= MAX_NODES)
        return oct_fail_memory(err);
    if (m->n_nodes > MAX_NODES)
        return fail(m, "it has more than 8388608 values", err);
    snprintf(what, sizeof what, "opcode 0x%02x isn't allowed there", opcode);
    return fail(m, what, err);
}

oct_status oct_unpickle(const void *bytes, size_t n, const char *name, oct_arena *arena,
                        const oct_pickle **root, oct_error *err) {
    machine m = {.bytes = bytes, .n = n, .name = name, .arena = arena};
    *root = NULL;
    while (m.at < m.n) {
        unsigned char opcode = m.bytes[m.at++];
        if (opcode == '.') {
            *root = m.n_stack == 1 ? top(&m) : NULL;
            if (!*root || m.at != m.n)
                return fail(&m, "its end isn't one", err);
            return OCT_OK;
        }
        oct_status status = step(&m, opcode, err);
        if (status)
            return status;
    }
    return fail(&m, "it ends before its end", err);
}

/* ---- looking ---- */

const char *oct_pickle_text(const oct_pickle *node) {
    return node && node->kind == OCT_PICKLE_IS_TEXT ? node->text : NULL;
}

const oct_pickle *oct_pickle_of(const oct_pickle *node, oct_pickle_kind kind) {
    return node && node->kind == kind ? node : NULL;
}

const oct_pickle *oct_pickle_object(const oct_pickle *node, const char *global) {
    bool is = node && node->kind == OCT_PICKLE_IS_OBJECT && strcmp(node->made->text, global) == 0;
    return is ? node : NULL;
}

const oct_pickle *oct_pickle_member(const oct_pickle *node, const char *key) {
    if (node && node->kind == OCT_PICKLE_IS_OBJECT)
        node = node->state;
    if (!node || node->kind != OCT_PICKLE_IS_DICT)
        return NULL;
    for (size_t i = node->n; i >= 2; i -= 2) {
        const char *text = oct_pickle_text(node->items[i - 2]);
        if (text && strcmp(text, key) == 0)
            return node->items[i - 1];
    }
    return NULL;
}
