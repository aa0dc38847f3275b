/* See hf_support.h. */
#include "hf_support.h"

oct_hf_config config_of(const char *text) {
    oct_hf_config config;
    oct_error err = {0};
    if (oct_hf_config_parse(text, strlen(text), "config.json", &config, &err))
        fail_msg("%s", err.message);
    return config;
}
