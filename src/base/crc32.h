/* CRC-32 as zip archives have it: polynomial 0xedb88320, reflected. */
#ifndef OCT_BASE_CRC32_H
#define OCT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t oct_crc32(const void *bytes, size_t n);

#endif
