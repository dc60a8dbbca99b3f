/* Expands nonzeros to their columns: kernels/sparse/nm.h. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

/* Expands 4-bit nonzeros, 16 at a time: the set nibbles of a mask receive them in order. */
void hc_expand_x4_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    uint64_t total = 0;
    for (int64_t word = 0; word < words; word++)
        total += (uint64_t)_mm_popcnt_u64(masks[word]);
    const uint64_t bytes = (total + 1) / 2;
    uint64_t t = 0; /* nibbles that are placed */
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 4; i++, to += 8) {
            const unsigned bits = (unsigned)(masks[word] >> 16 * i & 0xffff);
            const uint64_t places = _pdep_u64(bits, 0x1111111111111111u) * 15, at = t / 2;
            uint64_t some = 0, last = 0;
            if (at + 9 <= bytes) {
                memcpy(&some, next + at, 8);
                last = next[at + 8];
            } else {
                uint8_t end[9] = {0};
                for (uint64_t j = at; j < bytes; j++)
                    end[j - at] = next[j];
                memcpy(&some, end, 8);
                last = end[8];
            }
            if (t % 2)
                some = some >> 4 | last << 60;
            some = _pdep_u64(some, places);
            memcpy(to, &some, 8);
            t += (uint64_t)_mm_popcnt_u32(bits);
        }
}

/* Expands 8-bit nonzeros, 8 at a time: the set bytes of a mask receive them in order. */
void hc_expand_x8_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t left = 0; /* bytes that are not expanded yet */
    for (int64_t word = 0; word < words; word++)
        left += _mm_popcnt_u64(masks[word]);
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 8; i++, to += 8) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            uint64_t bytes = 0;
            if (left >= 8)
                memcpy(&bytes, next, 8);
            else
                memcpy(&bytes, next, (size_t)count);
            bytes = _pdep_u64(bytes, _pdep_u64(bits, 0x0101010101010101u) * 0xff);
            memcpy(to, &bytes, 8);
            next += count;
            left -= count;
        }
}

/* Expands 32-bit nonzeros, 8 at a time. */
void hc_expand_x32_avx2(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int *next = kept;
    __m256i *to = out;
    for (int64_t word = 0; word < words; word++)
        for (int i = 0; i < 8; i++) {
            const unsigned bits = (unsigned)(masks[word] >> 8 * i & 0xff);
            const int count = (int)_mm_popcnt_u32(bits);
            const uint64_t bytes = _pdep_u64(bits, 0x0101010101010101u) * 0xff;
            const uint64_t ranks = _pdep_u64(0x0706050403020100u, bytes);
            const __m256i places = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
            const __m256i rank = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)ranks));
            const __m256i some = _mm256_maskload_epi32(next, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
            _mm256_storeu_si256(to++, _mm256_and_si256(_mm256_permutevar8x32_epi32(some, rank), places));
            next += count;
        }
}
