/* Loads codes of 2 to 7 bits as bytes: eight codes are `bits` bytes. vpermb copies those bytes to 64-bit lanes, and
 * vpmultishiftqb moves every code's bits to a byte, as in gemv_unpack, but without writing the bytes to memory.
 */
#ifndef HC_GEMV_PACKED_AVX512_H
#define HC_GEMV_PACKED_AVX512_H

#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t bytes; /* bytes of codes per register */
    __m512i place, shift, mask;
} hc_code_loader;

/* 64 codes, of which the row has `left` bytes. */
INLINE __m512i load_codes(const hc_code_loader *loader, const uint8_t *codes, int64_t left) {
    const __m512i stored = left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
    const __m512i spread = _mm512_permutexvar_epi8(loader->place, stored);
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(loader->shift, spread), loader->mask);
}

static hc_code_loader make_loader(int code_bits) {
    const uint64_t each = 0x0101010101010101, steps = 0x0706050403020100, bits = (uint64_t)code_bits;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i lane_bytes = _mm512_mullo_epi64(lanes, _mm512_set1_epi64((int64_t)(each * bits)));
    return (hc_code_loader){.bytes = 8 * code_bits,
                            .place = _mm512_add_epi8(lane_bytes, _mm512_set1_epi64((int64_t)steps)),
                            .shift = _mm512_set1_epi64((int64_t)(steps * bits)),
                            .mask = _mm512_set1_epi8((char)((1 << bits) - 1))};
}

#endif
