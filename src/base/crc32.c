/* CRC-32 as zip archives have it: see crc32.h. */
#include "base/crc32.h"

uint32_t oct_crc32(const void *bytes, size_t n) {
    uint32_t table[256], crc = 0xffffffff;
    const unsigned char *p = bytes;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320 : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++)
        crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
    return ~crc;
}
