/* The tree of modules: see module.h. */
#include "nn/module.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

int64_t oct_param_elements(const oct_param *param) {
    int64_t n = 1;
    for (int i = 0; i < param->n_dims; i++)
        n *= param->shape[i];
    return n;
}

static char *join_name(const char *parent, const char *component) {
    size_t n = strlen(parent), m = strlen(component);
    char *name = oct_malloc(n + m + 2);
    if (!name)
        return NULL;
    if (n) {
        memcpy(name, parent, n);
        name[n++] = '.';
    }
    memcpy(name + n, component, m + 1);
    return name;
}

/* Room for one more pointer in an array of n. */
static oct_status grow(void *array, int64_t n) {
    void **old;
    memcpy(&old, array, sizeof old);
    void **grown = oct_realloc_array(old, (size_t)n + 1, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    memcpy(array, &grown, sizeof grown);
    return OCT_OK;
}

/* On failure `m` is still its creator's. */
static oct_status join_tree(oct_module *m, const oct_module_ops *ops, oct_module *parent,
                            const char *component) {
    m->ops = ops;
    m->name = join_name(parent ? parent->name : "", component);
    if (!m->name)
        return OCT_NO_MEMORY;
    if (!parent)
        return OCT_OK;
    oct_status status = grow(&parent->children, parent->n_children);
    if (status)
        return status;
    m->parent = parent;
    m->params_mode = parent->params_mode;
    parent->children[parent->n_children++] = m;
    return OCT_OK;
}

void *oct_module_create(size_t n_bytes, oct_module_kind kind, const oct_module_ops *ops,
                        oct_module *parent, const char *component) {
    oct_module *m = oct_calloc_array(1, n_bytes);
    if (!m)
        return NULL;
    m->kind = kind;
    if (join_tree(m, ops, parent, component) == OCT_OK)
        return m;
    oct_module_destroy(m);
    return NULL;
}

static void destroy_param(oct_param *param) {
    if (!param)
        return;
    oct_free(param->name);
    oct_free(param->value);
    oct_free(param->grad);
    oct_free(param);
}

static oct_status allocate_value(oct_param *param) {
    size_t n = 1;
    for (int i = 0; i < param->n_dims; i++)
        if (!oct_mul_size(n, (size_t)param->shape[i], &n))
            return OCT_NO_MEMORY;
    param->value = oct_calloc_array(n, sizeof(float));
    return param->value ? OCT_OK : OCT_NO_MEMORY;
}

oct_status oct_module_add_param(oct_module *m, const char *component, int n_dims,
                                const int64_t *shape, oct_init init, oct_param **out) {
    oct_param *param = oct_calloc_array(1, sizeof *param);
    oct_status status = OCT_NO_MEMORY;
    if (!param || !(param->name = join_name(m->name, component)))
        goto cleanup;
    param->n_dims = n_dims;
    memcpy(param->shape, shape, (size_t)n_dims * sizeof *shape);
    param->init = init;
    param->version = 1;
    param->n_held = oct_param_elements(param);
    status = m->params_mode == OCT_PARAMS_ALLOCATED ? allocate_value(param) : OCT_OK;
    if (status)
        goto cleanup;
    status = grow(&m->params, m->n_params);
    if (status)
        goto cleanup;
    m->params[m->n_params++] = param;
    *out = param;
    return OCT_OK;
cleanup:
    destroy_param(param);
    return status;
}

void oct_module_destroy(oct_module *m) {
    if (!m)
        return;
    for (int64_t i = 0; i < m->n_children; i++)
        oct_module_destroy(m->children[i]);
    if (m->ops && m->ops->destroy)
        m->ops->destroy(m);
    for (int64_t i = 0; i < m->n_params; i++)
        destroy_param(m->params[i]);
    oct_free(m->params);
    oct_free(m->children);
    oct_free(m->name);
    oct_free(m);
}

oct_status oct_module_visit(oct_module *root, oct_module_visitor visitor, void *context) {
    oct_status status = visitor(root, context);
    for (int64_t i = 0; !status && i < root->n_children; i++)
        status = oct_module_visit(root->children[i], visitor, context);
    return status;
}

oct_module *oct_module_find(oct_module *root, const char *name) {
    if (strcmp(root->name, name) == 0)
        return root;
    for (int64_t i = 0; i < root->n_children; i++) {
        oct_module *found = oct_module_find(root->children[i], name);
        if (found)
            return found;
    }
    return NULL;
}

typedef struct param_list {
    oct_param **params;
    int64_t n;
} param_list;

static oct_status count_params(oct_module *m, void *context) {
    ((param_list *)context)->n += m->n_params;
    return OCT_OK;
}

static oct_status append_params(oct_module *m, void *context) {
    param_list *list = context;
    for (int64_t i = 0; i < m->n_params; i++)
        list->params[list->n++] = m->params[i];
    return OCT_OK;
}

oct_status oct_module_params(oct_module *root, oct_param ***params, int64_t *n_params) {
    param_list list = {0};
    oct_module_visit(root, count_params, &list);
    list.params = oct_malloc_array((size_t)list.n, sizeof *list.params);
    if (!list.params)
        return OCT_NO_MEMORY;
    list.n = 0;
    oct_module_visit(root, append_params, &list);
    *params = list.params;
    *n_params = list.n;
    return OCT_OK;
}

bool oct_module_keeps_input(const oct_module *m) {
    return m->ops->passes_input ? m->ops->passes_input(m) : m->ops->keeps_input;
}
