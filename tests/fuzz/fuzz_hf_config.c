/* Any bytes as a config.json: refused, or in range, so that it can be written and read back. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hf/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    oct_hf_config config;
    oct_error err = {0};
    oct_status status = oct_hf_config_parse((const char *)bytes, n_bytes, "fuzz", &config, &err);
    if (status && (!err.message[0] || strchr(err.message, '\n')))
        abort();
    if (!status && (config.head_dim < 1 || config.num_attention_heads < 1 ||
                    config.num_attention_heads % config.num_key_value_heads))
        abort();
    return 0;
}
