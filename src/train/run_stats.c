/* What 8 bits do to a run's tensors: see run_stats.h. */
#include "train/run_stats.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "file/json.h"

/* Elements of a tensor that other formats are tried on. */
enum { TRIED_ELEMENTS = 4096 };

/* One tensor: both directions, and the trials. */
typedef struct entry {
    const oct_plan_row *row;
    int64_t weight;
    oct_role role;
    uint64_t id; /* of the tensor that was seen; 0: none, or one that isn't shared */
    oct_quant_stats along[2], trials[OCT_N_QUANT_TRIALS];
} entry;

typedef struct layer {
    int64_t number;
    const oct_moe *moe;
    int64_t *tokens; /* (E) */
    float *bias;     /* (E) */
} layer;

struct oct_run_stats {
    entry *entries;
    size_t n_entries;
    const entry *last_input; /* siblings read one tensor, which is measured once */
    layer *layers;
    size_t n_layers;
    oct_arena *arena;
    oct_quant_observer observer;
};

static const char *const role_names[OCT_N_ROLES] = {"input", "weight", "gradient"};
/* The product that a copy enters, by role and contracted dimension. */
static const char *const product_names[OCT_N_ROLES][2] = {
    {"wgrad", "forward"}, {"dgrad", "forward"}, {"wgrad", "dgrad"}};
static const char *const expert_weight_names[OCT_N_EXPERT_WEIGHTS] = {"w1", "w2", "w3"};

static entry *find(const oct_run_stats *s, const oct_module *module, int64_t weight,
                   oct_role role) {
    for (size_t i = 0; i < s->n_entries; i++) {
        entry *e = &s->entries[i];
        if (e->row->module == module && e->weight == weight && e->role == role)
            return e;
    }
    return NULL;
}

static void copy_measures(entry *to, const entry *from) {
    memcpy(to->along, from->along, sizeof to->along);
    memcpy(to->trials, from->trials, sizeof to->trials);
}

static oct_status measure(oct_run_stats *s, entry *e, const oct_quant_sight *sight) {
    oct_status status = OCT_OK;
    for (int64_t g = 0; g < sight->n_groups && !status; g++) {
        oct_matrix_view rows = *sight->x;
        rows.rows = sight->offsets[g + 1] - sight->offsets[g];
        rows.data = (const char *)sight->x->data +
                    (size_t)(sight->offsets[g] * sight->x->ld) * oct_dtype_bytes(sight->x->dtype);
        for (int dim = 0; dim < 2 && !status; dim++)
            if (sight->groups[g].along[dim].codes)
                status = oct_quant_stats_add(&rows, &sight->groups[g].along[dim], &e->along[dim]);
    }
    if (status)
        return status;
    return oct_quant_stats_try(sight->x, e->role, 1, TRIED_ELEMENTS, s->arena, e->trials);
}

static oct_status see(void *user, const oct_quant_sight *sight) {
    oct_run_stats *s = user;
    entry *e = find(s, sight->module, sight->weight, sight->role);
    if (!e)
        return OCT_OK;
    const entry *last = s->last_input;
    if (sight->role == OCT_ROLE_INPUT && sight->id > 0 && last && last->id == sight->id &&
        last->row->recipe == e->row->recipe) {
        copy_measures(e, last);
        return OCT_OK;
    }
    oct_status status = measure(s, e, sight);
    e->id = sight->id;
    if (!status && sight->role == OCT_ROLE_INPUT)
        s->last_input = e;
    return status;
}

/* ---- making it ---- */

static size_t weights_of(const oct_plan_row *row) {
    return row->recipe ? row->is_experts ? OCT_N_EXPERT_WEIGHTS : 1 : 0;
}

static oct_status create_entries(const oct_plan *plan, oct_run_stats *s) {
    size_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++)
        n += weights_of(&plan->rows[i]) * OCT_N_ROLES;
    s->entries = oct_calloc_array(n + 1, sizeof *s->entries);
    if (!s->entries)
        return OCT_NO_MEMORY;
    for (int64_t i = 0; i < plan->n_rows; i++)
        for (size_t w = 0; w < weights_of(&plan->rows[i]); w++)
            for (int role = 0; role < OCT_N_ROLES; role++)
                s->entries[s->n_entries++] =
                    (entry){.row = &plan->rows[i], .weight = (int64_t)w, .role = (oct_role)role};
    return OCT_OK;
}

static oct_status create_layers(const oct_model *model, oct_run_stats *s) {
    const int64_t n = oct_model_get_args(model)->n_layers;
    s->layers = oct_calloc_array((size_t)n + 1, sizeof *s->layers);
    if (!s->layers)
        return OCT_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const oct_moe *moe = oct_model_moe(model, i);
        if (!moe)
            continue;
        layer *l = &s->layers[s->n_layers++];
        const size_t E = (size_t)moe->config.rule.n_experts;
        *l = (layer){.number = i, .moe = moe};
        l->tokens = oct_calloc_array(E, sizeof *l->tokens);
        l->bias = oct_calloc_array(E, sizeof *l->bias);
        if (!l->tokens || !l->bias)
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

oct_status oct_run_stats_create(const oct_plan *plan, const oct_model *model, oct_run_stats **out) {
    oct_run_stats *s = oct_calloc_array(1, sizeof *s);
    if (!s)
        return OCT_NO_MEMORY;
    s->observer = (oct_quant_observer){s, see};
    s->arena = oct_arena_create();
    oct_status status = s->arena ? create_entries(plan, s) : OCT_NO_MEMORY;
    if (!status)
        status = create_layers(model, s);
    if (status)
        oct_run_stats_destroy(s);
    else
        *out = s;
    return status;
}

void oct_run_stats_destroy(oct_run_stats *s) {
    if (!s)
        return;
    for (size_t i = 0; i < s->n_layers; i++) {
        oct_free(s->layers[i].tokens);
        oct_free(s->layers[i].bias);
    }
    oct_arena_destroy(s->arena);
    oct_free(s->layers);
    oct_free(s->entries);
    oct_free(s);
}

bool oct_run_stats_is_empty(const oct_run_stats *s) {
    return s->n_entries == 0 && s->n_layers == 0;
}

void oct_run_stats_begin(oct_run_stats *s) {
    s->last_input = NULL;
    for (size_t i = 0; i < s->n_entries; i++) {
        entry *e = &s->entries[i];
        memset(e->along, 0, sizeof e->along);
        memset(e->trials, 0, sizeof e->trials);
        e->id = 0;
    }
}

const oct_quant_observer *oct_run_stats_observer(const oct_run_stats *s) {
    return &s->observer;
}

void oct_run_stats_take_routing(oct_run_stats *s) {
    for (size_t i = 0; i < s->n_layers; i++) {
        const size_t E = (size_t)s->layers[i].moe->config.rule.n_experts;
        memcpy(s->layers[i].tokens, s->layers[i].moe->tokens_per_expert,
               E * sizeof *s->layers[i].tokens);
        memcpy(s->layers[i].bias, s->layers[i].moe->expert_bias, E * sizeof *s->layers[i].bias);
    }
}

const oct_quant_stats *oct_run_stats_find(const oct_run_stats *s, const char *module,
                                          int64_t weight, oct_role role, int dim) {
    for (size_t i = 0; i < s->n_entries; i++) {
        const entry *e = &s->entries[i];
        if (strcmp(e->row->name, module) == 0 && e->weight == weight && e->role == role)
            return e->along[dim].n > 0 ? &e->along[dim] : NULL;
    }
    return NULL;
}

/* ---- JSON ---- */

static void put_real(oct_strbuf *json, const char *name, double value) {
    oct_strbuf_printf(json, ", \"%s\": ", name);
    oct_json_put_real(json, value);
}

static void put_name(const entry *e, oct_strbuf *name) {
    oct_strbuf_puts(name, e->row->name);
    if (e->row->is_experts)
        oct_strbuf_printf(name, ".%s", expert_weight_names[e->weight]);
}

/* Blocks by the exponent of their scale: "scales": {"-8": 313, ...}. */
static void put_scales(const oct_quant_stats *stats, oct_strbuf *json) {
    const char *separator = "";
    oct_strbuf_puts(json, ", \"scales\": {");
    for (int i = 0; i < OCT_N_SCALE_BINS; i++) {
        if (stats->scales[i] == 0)
            continue;
        oct_strbuf_printf(json, "%s\"%d\": %" PRId64, separator, i - 127, stats->scales[i]);
        separator = ", ";
    }
    oct_strbuf_puts(json, "}");
}

static void put_shares(const oct_quant_stats *stats, oct_strbuf *json) {
    const double n = (double)stats->n, blocks = (double)stats->n_blocks;
    put_real(json, "amax", stats->amax);
    put_real(json, "sqnr_db", oct_quant_stats_sqnr(stats));
    put_real(json, "zero", (double)stats->n_zero / n);
    put_real(json, "underflow", (double)stats->n_underflow / n);
    put_real(json, "saturated", (double)stats->n_saturated / n);
    put_real(json, "flat_blocks", (double)stats->n_flat / blocks);
    oct_strbuf_printf(json, ", \"poisoned_blocks\": %" PRId64, stats->n_poisoned);
    put_real(json, "bias", oct_quant_stats_bias(stats));
    put_scales(stats, json);
}

static void put_trials(const entry *e, oct_strbuf *json) {
    oct_strbuf_puts(json, ", \"others_sqnr_db\": {");
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++) {
        oct_strbuf_printf(json, "%s\"%s\": ", i ? ", " : "", oct_quant_trial_name(i));
        oct_json_put_real(json, oct_quant_stats_sqnr(&e->trials[i]));
    }
    oct_strbuf_puts(json, "}");
}

static void put_direction(const entry *e, int dim, oct_strbuf *json) {
    oct_strbuf name = {0};
    put_name(e, &name);
    json->failed = json->failed || name.failed;
    oct_strbuf_puts(json, "{\"module\": ");
    if (!name.failed)
        oct_json_put_string(json, name.text);
    oct_strbuf_printf(json, ", \"role\": \"%s\", \"product\": \"%s\"", role_names[e->role],
                      product_names[e->role][dim]);
    put_shares(&e->along[dim], json);
    if (dim == 1) /* the trials are along rows as well */
        put_trials(e, json);
    oct_strbuf_puts(json, "}");
    oct_strbuf_free(&name);
}

void oct_run_stats_render_tensors(const oct_run_stats *s, oct_strbuf *json) {
    const char *separator = "";
    oct_strbuf_puts(json, "[");
    for (size_t i = 0; i < s->n_entries; i++)
        for (int dim = 1; dim >= 0; dim--) {
            if (s->entries[i].along[dim].n == 0)
                continue;
            oct_strbuf_puts(json, separator);
            put_direction(&s->entries[i], dim, json);
            separator = ", ";
        }
    oct_strbuf_puts(json, "]");
}

/* Of the tokens' distribution over experts, over that of an even one: 1 is even, 0 all at one. */
static double evenness(const layer *l) {
    const int64_t E = l->moe->config.rule.n_experts;
    double all = 0, entropy = 0;
    for (int64_t e = 0; e < E; e++)
        all += (double)l->tokens[e];
    for (int64_t e = 0; e < E; e++) {
        const double share = (double)l->tokens[e] / all;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    return E > 1 ? entropy / log((double)E) : 1;
}

static void put_layer(const layer *l, oct_strbuf *json) {
    const int64_t E = l->moe->config.rule.n_experts;
    oct_strbuf_printf(json, "{\"layer\": %" PRId64 ", \"tokens\": [", l->number);
    for (int64_t e = 0; e < E; e++)
        oct_strbuf_printf(json, "%s%" PRId64, e ? ", " : "", l->tokens[e]);
    oct_strbuf_puts(json, "], \"bias\": [");
    for (int64_t e = 0; e < E; e++) {
        oct_strbuf_puts(json, e ? ", " : "");
        oct_json_put_real(json, (double)l->bias[e]);
    }
    oct_strbuf_puts(json, "]");
    put_real(json, "entropy", evenness(l));
    oct_strbuf_puts(json, "}");
}

void oct_run_stats_render_experts(const oct_run_stats *s, oct_strbuf *json) {
    oct_strbuf_puts(json, "[");
    for (size_t i = 0; i < s->n_layers; i++) {
        oct_strbuf_puts(json, i ? ", " : "");
        put_layer(&s->layers[i], json);
    }
    oct_strbuf_puts(json, "]");
}

/* ---- TensorBoard ---- */

static oct_status append_direction(const entry *e, int dim, int64_t step, oct_event_file *file,
                                   oct_error *err) {
    const oct_quant_stats *stats = &e->along[dim];
    double limits[OCT_N_SCALE_BINS], counts[OCT_N_SCALE_BINS];
    oct_strbuf tag = {0};
    oct_strbuf_puts(&tag, "quantize/");
    put_name(e, &tag);
    oct_strbuf_printf(&tag, "/%s_%s/sqnr_db", role_names[e->role], product_names[e->role][dim]);
    if (tag.failed) {
        oct_strbuf_free(&tag);
        return oct_fail_memory(err);
    }
    for (int i = 0; i < OCT_N_SCALE_BINS; i++) {
        limits[i] = i - 127 + 0.5;
        counts[i] = (double)stats->scales[i];
    }
    const oct_metric sqnr = oct_metric_real(tag.text, oct_quant_stats_sqnr(stats));
    oct_status status = oct_event_file_append(file, step, &sqnr, 1, err);
    if (!status) {
        memcpy(tag.text + tag.length - strlen("sqnr_db"), "scales", sizeof "scales");
        status = oct_event_file_append_histogram(file, step, tag.text, limits, counts,
                                                 OCT_N_SCALE_BINS, err);
    }
    oct_strbuf_free(&tag);
    return status;
}

oct_status oct_run_stats_append_events(const oct_run_stats *s, int64_t step, oct_event_file *file,
                                       oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < s->n_entries && !status; i++)
        for (int dim = 1; dim >= 0 && !status; dim--)
            if (s->entries[i].along[dim].n > 0)
                status = append_direction(&s->entries[i], dim, step, file, err);
    return status;
}
