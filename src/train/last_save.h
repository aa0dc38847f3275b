/* checkpoint.last_save_in_hf: the last checkpoint of a run as a Hugging Face folder too. */
#ifndef OCT_TRAIN_LAST_SAVE_H
#define OCT_TRAIN_LAST_SAVE_H

#include "train/trainer_state.h"

/* The first rank's, before the first step: whether the model would be refused at the end of the
 * run, and whether the folder's name is free; the key is named. OCT_OK where the job asks for none,
 * or no step is left. */
oct_status oct_trainer_check_last_model(const oct_trainer *t, oct_error *err);
oct_status oct_trainer_check_last_name(const oct_trainer *t, oct_error *err);
/* The first rank's, once the checkpoint of the last step is saved: "step-N-hf" beside it, in
 * checkpoint.export_dtype, read from the checkpoint. OCT_OK where the job asks for none, or steps
 * are left. */
oct_status oct_trainer_export_last(const oct_trainer *t, oct_error *err);

#endif
