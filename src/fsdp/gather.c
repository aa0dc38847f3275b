/* Gathers: see gather.h.
 *
 * A message is one segment a member, in order of rank. A member's segment holds slot after slot,
 * matrix after matrix (those that it has rows of), copy after copy: the codes of its rows as that
 * copy stores them, then their scales where these travel. In high precision: the rows of each slot.
 * All ranks walk the same list, so no header is sent. */
#include "fsdp/gather.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "op/elementwise.h"
#include "quant/matrix_amax.h"

static size_t code_bytes(const oct_qmatrix *q) {
    return (size_t)(q->rows * q->cols);
}

/* ---- amaxes ---- */

static int64_t n_amaxes(const oct_slot *slot) {
    if (!slot->low_precision || slot->recipe->granularity == OCT_MX)
        return 0;
    return slot->shape.E * (slot->recipe->granularity == OCT_PER_TENSOR ? 1 : slot->shape.K);
}

/* This shard's rows of matrix e. */
static oct_matrix_view local_rows(const oct_slot *slot, int64_t e, oct_comm *comm) {
    const oct_param *param = slot->param;
    oct_rows rows = oct_slot_matrix_rows(slot, e, oct_comm_rank(comm));
    int64_t row = slot->first_row + e * slot->shape.N + rows.first;
    int64_t at = row * slot->shape.K - param->first;
    return (oct_matrix_view){.data = rows.n ? param->value + at : NULL,
                             .dtype = OCT_F32,
                             .rows = rows.n,
                             .cols = slot->shape.K,
                             .ld = slot->shape.K};
}

/* As the quantizer finds them: see oct_matrix_amax. */
static void round_amaxes(const oct_slot *slot, float *amaxes) {
    for (int64_t i = 0; slot->recipe->weight_source == OCT_BF16 && i < n_amaxes(slot); i++)
        amaxes[i] = oct_bf16_decode(oct_bf16_encode(amaxes[i]));
}

static oct_status local_amaxes(oct_slot *slot, oct_comm *comm, oct_arena *scratch, float *out) {
    oct_status status = OCT_OK;
    for (int64_t e = 0; e < slot->shape.E && !status; e++) {
        oct_matrix_view view = local_rows(slot, e, comm);
        if (slot->recipe->granularity == OCT_PER_TENSOR)
            status = oct_matrix_amax(&view, scratch, &out[e]);
        else
            oct_matrix_column_amaxes(&view, out + e * slot->shape.K);
    }
    round_amaxes(slot, out);
    return status;
}

oct_status oct_gather_amaxes(oct_unit *units, int64_t n_units, oct_comm *comm, oct_arena *scratch) {
    int64_t n = 0, at = 0;
    oct_status status = OCT_OK;
    for (int64_t u = 0; u < n_units; u++)
        for (int64_t s = 0; s < units[u].n_slots; s++)
            n += n_amaxes(&units[u].slots[s]);
    if (n == 0)
        return OCT_OK;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    float *all = oct_arena_alloc_array(scratch, (size_t)n, sizeof *all);
    if (!all)
        return OCT_NO_MEMORY;
    /* In order of the model, which is the same on all ranks: addresses aren't. */
    for (int64_t u = 0; u < n_units && !status; u++)
        for (int64_t s = 0; s < units[u].n_slots && !status; s++) {
            oct_slot *slot = &units[u].slots[s];
            if (n_amaxes(slot))
                status = local_amaxes(slot, comm, scratch, all + at);
            at += n_amaxes(slot);
        }
    if (!status)
        status = oct_comm_max_f32(comm, all, n);
    at = 0;
    for (int64_t u = 0; u < n_units && !status; u++)
        for (int64_t s = 0; s < units[u].n_slots && !status; s++) {
            oct_slot *slot = &units[u].slots[s];
            size_t n_own = (size_t)n_amaxes(slot);
            if (n_own && !slot->amaxes)
                slot->amaxes = oct_malloc_array(n_own, sizeof *slot->amaxes);
            if (n_own && !slot->amaxes)
                status = OCT_NO_MEMORY;
            else if (n_own)
                memcpy(slot->amaxes, all + at, n_own * sizeof *all);
            at += (int64_t)n_own;
        }
    oct_arena_release(scratch, mark);
    return status;
}

/* What the whole of matrix e is scaled by. */
static oct_amax whole_amax(const oct_slot *slot, int64_t e) {
    oct_amax amax = oct_delayed_amax(slot->delayed, slot->delayed_slot);
    if (!slot->amaxes)
        return amax;
    if (slot->recipe->granularity == OCT_PER_CHANNEL) {
        amax.columns = slot->amaxes + e * slot->shape.K;
        return amax;
    }
    amax.seen = slot->amaxes[e];
    if (amax.use < 0)
        amax.use = amax.seen;
    return amax;
}

/* ---- this rank's segment ---- */

static void restart_copies(oct_arena *const arenas[2]) {
    for (int i = 0; i < 2; i++)
        oct_arena_release(arenas[i], (oct_arena_mark){0, 0});
}

/* Quantizes this shard's rows for what is missing of `which`; kept until the master changes, for
 * all micro-batches. */
static oct_status quantize_local(oct_slot *slot, oct_along which, oct_comm *comm) {
    if (slot->local_version != slot->param->version) {
        restart_copies(slot->local_copies);
        memset(slot->local, 0, (size_t)slot->shape.E * sizeof *slot->local);
        slot->local_held = 0;
        slot->local_version = slot->param->version;
    }
    if (oct_recipe_shares_copies(slot->recipe, OCT_ROLE_WEIGHT))
        which = OCT_ALONG_BOTH;
    oct_along missing = which & ~(unsigned)slot->local_held;
    oct_status status = OCT_OK;
    for (int64_t e = 0; e < slot->shape.E && missing && !status; e++) {
        oct_matrix_view view = local_rows(slot, e, comm);
        oct_amax amax = whole_amax(slot, e);
        oct_quantized made;
        if (view.rows == 0)
            continue;
        status = oct_quantize(&view, slot->recipe, OCT_ROLE_WEIGHT, missing, slot->local_copies,
                              &amax, &made);
        for (int i = 0; i < 2 && !status; i++)
            if (made.along[i].codes)
                slot->local[e].along[i] = made.along[i];
    }
    slot->local_held |= missing;
    return status;
}

static char *put(char *to, const void *from, size_t n_bytes) {
    memcpy(to, from, n_bytes);
    return to + n_bytes;
}

static oct_status pack_codes(oct_unit *unit, const oct_gather *g, oct_comm *comm, char *to) {
    for (int64_t s = 0; s < unit->n_slots; s++) {
        oct_slot *slot = &unit->slots[s];
        int dims[2];
        if (!slot->low_precision)
            continue;
        oct_status status = quantize_local(slot, g->which, comm);
        if (status)
            return status;
        int n_dims = oct_slot_copies(slot, g->which, g->held, dims);
        for (int64_t e = 0; e < slot->shape.E; e++)
            for (int i = 0; i < n_dims; i++) {
                const oct_qmatrix *q = &slot->local[e].along[dims[i]];
                if (!q->codes)
                    continue;
                to = put(to, q->codes, code_bytes(q));
                if (oct_scales_travel(q))
                    to = put(to, q->scales, oct_qmatrix_scale_bytes(q));
            }
    }
    return OCT_OK;
}

static oct_status pack_dense(const oct_unit *unit, char *to) {
    for (int64_t s = 0; s < unit->n_slots; s++) {
        const oct_slot *slot = &unit->slots[s];
        if (slot->low_precision || slot->param->n_held == 0)
            continue;
        size_t n = (size_t)slot->param->n_held;
        if (slot->dense == OCT_F32) { /* which need not be aligned here */
            to = put(to, slot->param->value, n * sizeof(float));
            continue;
        }
        oct_tensor from = oct_tensor_1d(OCT_F32, slot->param->n_held, slot->param->value);
        oct_tensor half = oct_tensor_1d(slot->dense, slot->param->n_held, to);
        oct_status status = oct_cast(&from, &half);
        if (status)
            return status;
        to += oct_tensor_bytes(&half);
    }
    return OCT_OK;
}

/* ---- putting segments together ---- */

/* Rows `rows` of matrix q out of a segment; returns what follows there. */
static const char *unpack_piece(const oct_slot *slot, const char *from, oct_rows rows, int dim,
                                oct_qmatrix *q) {
    oct_qmatrix piece =
        oct_qmatrix_shape(slot->recipe, OCT_ROLE_WEIGHT, rows.n, slot->shape.K, dim);
    const char *scales = from + code_bytes(&piece);
    size_t n_scales = oct_scales_travel(&piece) ? oct_qmatrix_scale_bytes(&piece) : 0;
    if (piece.transposed) {
        for (int64_t k = 0; k < piece.rows; k++)
            memcpy(q->codes + k * q->cols + rows.first, from + k * piece.cols, (size_t)piece.cols);
        for (int64_t k = 0; k < piece.rows && n_scales; k++)
            memcpy((uint8_t *)q->scales + k * q->ld_scales + rows.first / OCT_MX_BLOCK,
                   scales + k * piece.ld_scales, (size_t)piece.ld_scales);
        return scales + n_scales;
    }
    memcpy(q->codes + rows.first * q->cols, from, code_bytes(&piece));
    size_t at = q->scaling == OCT_SCALING_MX ? (size_t)(rows.first / q->block_rows * q->ld_scales)
                                             : (size_t)rows.first * sizeof(float);
    if (n_scales)
        memcpy((char *)q->scales + at, scales, n_scales);
    return scales + n_scales;
}

/* Scales that don't travel follow from the amaxes of the whole. */
static void fill_scales(const oct_slot *slot, int64_t e, oct_qmatrix *q) {
    float target = slot->recipe->target[OCT_ROLE_WEIGHT];
    oct_amax amax = whole_amax(slot, e);
    if (q->scaling == OCT_SCALING_TENSOR)
        *(float *)q->scales = oct_scale_from_amax(amax.use, target);
    for (int64_t k = 0; k < q->rows && q->scaling == OCT_SCALING_ROW; k++)
        ((float *)q->scales)[k] = oct_scale_from_amax(amax.columns[k], target);
}

static size_t assembled_bytes(const oct_unit *unit, const oct_gather *g) {
    size_t n_bytes = 0;
    for (int64_t s = 0; s < unit->n_slots; s++) {
        const oct_slot *slot = &unit->slots[s];
        oct_matrices m = slot->shape;
        int dims[2];
        if (!slot->low_precision) {
            n_bytes +=
                g->dense
                    ? oct_align_to_line((size_t)(m.E * m.N * m.K) * oct_dtype_bytes(slot->dense))
                    : 0;
            continue;
        }
        int n_dims = oct_slot_copies(slot, g->which, g->held, dims);
        for (int i = 0; i < n_dims; i++) {
            oct_qmatrix q = oct_qmatrix_shape(slot->recipe, OCT_ROLE_WEIGHT, m.N, m.K, dims[i]);
            n_bytes += (size_t)m.E * (oct_align_to_line(code_bytes(&q)) +
                                      oct_align_to_line(oct_qmatrix_scale_bytes(&q)));
        }
    }
    return n_bytes;
}

/* Gives the slot's matrices their places in the assembled buffer. */
static char *place_codes(oct_slot *slot, const oct_gather *g, char *at) {
    oct_matrices m = slot->shape;
    int dims[2], n_dims = oct_slot_copies(slot, g->which, g->held, dims);
    for (int64_t e = 0; e < m.E; e++)
        for (int i = 0; i < n_dims; i++) {
            oct_qmatrix q = oct_qmatrix_shape(slot->recipe, OCT_ROLE_WEIGHT, m.N, m.K, dims[i]);
            q.codes = (uint8_t *)at;
            at += oct_align_to_line(code_bytes(&q));
            q.scales = at;
            at += oct_align_to_line(oct_qmatrix_scale_bytes(&q));
            if (!oct_scales_travel(&q))
                fill_scales(slot, e, &q);
            slot->whole[e].along[dims[i]] = q;
            if (oct_recipe_shares_copies(slot->recipe, OCT_ROLE_WEIGHT))
                slot->whole[e].along[0] = q;
        }
    return at;
}

static void place(oct_unit *unit, const oct_gather *g, char *at) {
    for (int64_t s = 0; s < unit->n_slots; s++) {
        oct_slot *slot = &unit->slots[s];
        oct_matrices m = slot->shape;
        if (slot->low_precision) {
            at = place_codes(slot, g, at);
        } else if (g->dense) {
            slot->values = at;
            at += oct_align_to_line((size_t)(m.E * m.N * m.K) * oct_dtype_bytes(slot->dense));
        }
    }
}

static void unpack_codes(oct_unit *unit, const oct_gather *g, const char *from) {
    for (int member = 0; member < unit->n_members; member++)
        for (int64_t s = 0; s < unit->n_slots; s++) {
            oct_slot *slot = &unit->slots[s];
            int dims[2];
            if (!slot->low_precision)
                continue;
            int n_dims = oct_slot_copies(slot, g->which, g->held, dims);
            for (int64_t e = 0; e < slot->shape.E; e++) {
                oct_rows rows = oct_slot_matrix_rows(slot, e, member);
                for (int i = 0; i < n_dims && rows.n; i++)
                    from = unpack_piece(slot, from, rows, dims[i], &slot->whole[e].along[dims[i]]);
            }
        }
}

static void unpack_dense(oct_unit *unit, const char *from) {
    for (int member = 0; member < unit->n_members; member++)
        for (int64_t s = 0; s < unit->n_slots; s++) {
            oct_slot *slot = &unit->slots[s];
            if (slot->low_precision)
                continue;
            oct_rows rows = oct_slot_rows(slot, member);
            size_t row_bytes = (size_t)slot->shape.K * oct_dtype_bytes(slot->dense);
            size_t n_bytes = (size_t)rows.n * row_bytes;
            memcpy((char *)slot->values + (size_t)rows.first * row_bytes, from, n_bytes);
            from += n_bytes;
        }
}

/* ---- begin and end ---- */

/* One of the two messages. The segment of this rank is packed in place. */
static oct_status begin_message(oct_unit *unit, int kind, oct_comm *comm, oct_buffers *buffers) {
    oct_gather *g = &unit->gather;
    int n_ranks = unit->n_members, rank = oct_comm_rank(comm);
    size_t total = 0;
    size_t *sizes = oct_malloc_array(2 * (size_t)n_ranks, sizeof *sizes);
    if (!sizes)
        return OCT_NO_MEMORY;
    for (int r = 0; r < n_ranks; r++) {
        sizes[r] = kind == 0 ? oct_unit_code_bytes(unit, g->which, g->held, r)
                             : oct_unit_dense_bytes(unit, r);
        sizes[n_ranks + r] = total;
        total += sizes[r];
    }
    oct_status status = OCT_OK;
    if (total) {
        g->receive[kind] = oct_buffers_take(buffers, total);
        status = g->receive[kind] ? OCT_OK : OCT_NO_MEMORY;
    }
    if (!status && total) {
        char *own = g->receive[kind]->data + sizes[n_ranks + rank];
        status = kind == 0 ? pack_codes(unit, g, comm, own) : pack_dense(unit, own);
        if (!status)
            status = oct_comm_all_gather_begin(
                comm, own, g->receive[kind]->data, sizes, sizes + n_ranks,
                kind == 0 ? OCT_TRAFFIC_GATHER_8BIT : OCT_TRAFFIC_GATHER_HIGH, &g->requests[kind]);
    }
    oct_free(sizes);
    return status;
}

oct_status oct_gather_begin(oct_unit *unit, oct_need need, oct_comm *comm, oct_buffers *buffers) {
    oct_gather *g = &unit->gather;
    oct_along which = need.which & ~(unsigned)unit->held;
    bool dense = need.dense && !unit->dense_held;
    if (g->active || (!which && !dense))
        return OCT_OK;
    *g = (oct_gather){.active = true, .which = which, .held = unit->held, .dense = dense};
    oct_status status = which ? begin_message(unit, 0, comm, buffers) : OCT_OK;
    return status || !dense ? status : begin_message(unit, 1, comm, buffers);
}

static oct_status wait_for(oct_gather *g) {
    oct_status first = oct_comm_end(&g->requests[0]), second = oct_comm_end(&g->requests[1]);
    return first ? first : second;
}

static void forget(oct_gather *g) {
    oct_buffers_give_back(g->receive[0]);
    oct_buffers_give_back(g->receive[1]);
    *g = (oct_gather){0};
}

static oct_status finish(oct_unit *unit, oct_buffers *buffers) {
    oct_gather *g = &unit->gather;
    oct_status status = wait_for(g);
    size_t n_bytes = assembled_bytes(unit, g);
    oct_buffer *to = status || unit->n_assembled == OCT_MAX_ASSEMBLED
                         ? NULL
                         : oct_buffers_take(buffers, n_bytes ? n_bytes : 1);
    if (to) {
        unit->assembled[unit->n_assembled++] = to;
        place(unit, g, to->data);
        if (g->receive[0])
            unpack_codes(unit, g, g->receive[0]->data);
        if (g->receive[1])
            unpack_dense(unit, g->receive[1]->data);
        unit->held |= g->which;
        unit->dense_held |= g->dense;
    } else if (!status) {
        status = OCT_NO_MEMORY;
    }
    forget(g);
    return status;
}

oct_status oct_gather_ensure(oct_unit *unit, oct_need need, oct_comm *comm, oct_buffers *buffers) {
    oct_status status = OCT_OK;
    if (unit->gather.active)
        status = finish(unit, buffers);
    if (!status)
        status = oct_gather_begin(unit, need, comm, buffers);
    if (!status && unit->gather.active)
        status = finish(unit, buffers);
    return status;
}

void oct_gather_release(oct_unit *unit) {
    if (unit->gather.active)
        wait_for(&unit->gather);
    forget(&unit->gather);
    for (int64_t s = 0; s < unit->n_slots; s++) {
        oct_slot *slot = &unit->slots[s];
        slot->values = NULL;
        if (!slot->whole)
            continue;
        memset(slot->whole, 0, (size_t)slot->shape.E * sizeof *slot->whole);
        restart_copies(slot->copies);
    }
    for (int i = 0; i < unit->n_assembled; i++)
        oct_buffers_give_back(unit->assembled[i]);
    unit->n_assembled = 0;
    unit->held = 0;
    unit->dense_held = false;
}

/* ---- what modules ask for ---- */

oct_status oct_gather_dense(const oct_slot *slot, oct_dtype dtype, oct_tensor *out) {
    const oct_param *param = slot->param;
    if (!slot->values || dtype != slot->dense)
        return OCT_INVALID;
    *out = (oct_tensor){.dtype = dtype, .n_dims = param->n_dims, .data = slot->values};
    memcpy(out->shape, param->shape, sizeof param->shape);
    if (param->n_dims == 3)
        out->shape[0] = slot->shape.E;
    return OCT_OK;
}

/* From the weight that was gathered in high precision; kept until that goes. */
static oct_status quantize_gathered(oct_slot *slot, int64_t expert, oct_along which,
                                    oct_amax *amax) {
    oct_matrices m = slot->shape;
    oct_quantized *q = &slot->whole[expert], made;
    oct_along missing =
        (q->along[0].codes ? 0 : OCT_ALONG_0) | (q->along[1].codes ? 0 : OCT_ALONG_1);
    missing &= which;
    if (!missing)
        return OCT_OK;
    size_t at = (size_t)(expert * m.N * m.K) * oct_dtype_bytes(slot->dense);
    oct_matrix_view view = {(char *)slot->values + at, slot->dense, m.N, m.K, m.K};
    oct_status status =
        oct_quantize(&view, slot->recipe, OCT_ROLE_WEIGHT, missing, slot->copies, amax, &made);
    for (int i = 0; i < 2 && !status; i++)
        if (made.along[i].codes)
            q->along[i] = made.along[i];
    return status;
}

oct_status oct_gather_quantized(oct_slot *slot, int64_t expert, const oct_recipe *recipe,
                                oct_along which, oct_amax *amax, oct_quantized *out) {
    oct_status status = OCT_OK;
    if (recipe != slot->recipe || expert < 0 || expert >= slot->shape.E)
        return OCT_INVALID;
    if (slot->low_precision) {
        oct_amax whole = whole_amax(slot, expert);
        if (amax)
            amax->seen = whole.seen;
    } else if (slot->values) {
        oct_amax own = amax ? *amax : (oct_amax){.use = -1.0f};
        status = quantize_gathered(slot, expert, which, &own);
        if (amax && own.seen > 0)
            amax->seen = own.seen;
    }
    *out = slot->whole[expert];
    /* Who asks for both needs the one of the phase. */
    bool here = ((which & OCT_ALONG_0) && out->along[0].codes) ||
                ((which & OCT_ALONG_1) && out->along[1].codes);
    return status ? status : here ? OCT_OK : OCT_INVALID;
}
