// CRC-64/XZ, eight bytes at a time.
#include <string.h>

#include "model.h"

uint64_t st3_checksum(const void* bytes, int64_t size) {
    uint64_t table[8][256], crc = ~0ull;
    const uint8_t* from = bytes;
    for (int i = 0; i < 256; i++) {
        uint64_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xc96c5795d7870f42 : 0);
        table[0][i] = value;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    for (; size >= 8; size -= 8, from += 8) {  // byte i of the word has 7 - i bytes after it
        uint64_t word, next = 0;
        memcpy(&word, from, 8);
        word ^= crc;
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) next ^= table[7 - i][word >> 8 * i & 255];
        crc = next;
    }
    for (; size > 0; size--) crc = crc >> 8 ^ table[0][(crc ^ *from++) & 255];
    return ~crc;
}
