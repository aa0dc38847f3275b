/* The shapes of AMX tiles, as ldtilecfg reads them. */
#ifndef OCT_KERNEL_GEMM_AMX_TILE_CONFIG_H
#define OCT_KERNEL_GEMM_AMX_TILE_CONFIG_H

#include <stdint.h>

typedef struct oct_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} oct_tile_config;
_Static_assert(sizeof(oct_tile_config) == 64, "as ldtilecfg reads it");

#endif
