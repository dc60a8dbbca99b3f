/* Codes of 4 bits as bytes, four at once:  code * s = (u * s + (128 - 8 s)) xor 128 with u = code + 8, as 8 <= code * s + 128 <= 233. */
#ifndef HC_CUDA_NIBBLES_H
#define HC_CUDA_NIBBLES_H

#include "cuda/definition.h"

/* Signed products of four bytes u and a scale of 0 to 15. */
static inline HC_DEVICE uint32_t hc_scaled_codes(uint32_t u, uint32_t scale) {
    return (u * scale + hc_held(0x80808080u - 0x08080808u * scale)) ^ 0x80808080u; /* which some words share */
}

/* The low code of each byte, 8 more. */
static inline HC_DEVICE uint32_t hc_unsigned_codes(uint32_t word) { return hc_and_xor(word, 0x0f0f0f0fu, 0x08080808u); }

/* The eight codes of a word as bytes in their order, times a scale for each four. */
static inline HC_DEVICE void hc_decode_nibbles(uint32_t word, uint32_t first_scale, uint32_t second_scale,
                                               uint32_t to[2]) {
    const uint32_t even = hc_unsigned_codes(word), odd = hc_unsigned_codes(word >> 4);
    to[0] = hc_scaled_codes(hc_permute_bytes(even, odd, 0x5140), first_scale);
    to[1] = hc_scaled_codes(hc_permute_bytes(even, odd, 0x7362), second_scale);
}

#endif
