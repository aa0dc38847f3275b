/* Gathering the weights of a unit, and freeing them. Internal to src/fsdp. */
#ifndef OCT_FSDP_GATHER_H
#define OCT_FSDP_GATHER_H

#include "fsdp/units.h"

/* Collective: the amaxes of all weights of n units whose scales depend on the whole, in one
 * reduction over their members. For new masters, before the first gather. */
oct_status oct_gather_amaxes(oct_unit *units, int64_t n, oct_comm *comm, oct_arena *scratch);

/* Collective: starts bringing what the unit lacks of `need`; nothing lacks: nothing is done. */
oct_status oct_gather_begin(oct_unit *unit, oct_need need, oct_comm *comm, oct_buffers *buffers);
/* Collective: the unit then has all of `need`. */
oct_status oct_gather_ensure(oct_unit *unit, oct_need need, oct_comm *comm, oct_buffers *buffers);
/* Waits for what is under way, drops it and all that was gathered. */
void oct_gather_release(oct_unit *unit);

/* What modules ask for. OCT_INVALID: the unit isn't gathered in that form. */
oct_status oct_gather_dense(const oct_slot *slot, oct_dtype dtype, oct_tensor *out);
oct_status oct_gather_quantized(oct_slot *slot, int64_t expert, const oct_recipe *recipe,
                                oct_along which, oct_amax *amax, oct_quantized *out);

#endif
