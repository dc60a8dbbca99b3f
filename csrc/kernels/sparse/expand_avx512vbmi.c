/* Expands 8-bit nonzeros, 64 at a time: the index of a column's byte is the number of nonzeros before the column. */
#include "kernels/kernel.h"

#include <immintrin.h>

void hc_expand_x8_avx512vbmi(int64_t words, const uint64_t *masks, const void *kept, void *out) {
    const __m512i eighths =
        _mm512_set_epi64(0x0707070707070707, 0x0606060606060606, 0x0505050505050505, 0x0404040404040404,
                         0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const uint8_t *next = kept;
    uint8_t *to = out;
    int64_t left = 0; /* bytes that are not expanded yet */
    for (int64_t word = 0; word < words; word++)
        left += _mm_popcnt_u64(masks[word]);
    for (int64_t word = 0; word < words; word++, to += 64) {
        const uint64_t mask = masks[word], ones = 0x0101010101010101u;
        const int64_t count = _mm_popcnt_u64(mask);
        /* number of nonzeros in the preceding eighths: prefix sums of the counts of eighths */
        uint64_t sums = mask - (mask >> 1 & 0x5555555555555555u);
        sums = (sums & 0x3333333333333333u) + (sums >> 2 & 0x3333333333333333u);
        sums = ((sums + (sums >> 4)) & 0x0f0f0f0f0f0f0f0fu) * ones << 8;
        const __m512i before = _mm512_permutexvar_epi8(eighths, _mm512_set1_epi64((long long)sums));
        __m512i inside = _mm512_movm_epi8(mask); /* -1 per nonzero; prefix sums within an eighth */
        inside = _mm512_add_epi8(inside, _mm512_slli_epi64(inside, 8));
        inside = _mm512_add_epi8(inside, _mm512_slli_epi64(inside, 16));
        inside = _mm512_add_epi8(inside, _mm512_slli_epi64(inside, 32));
        const __m512i index = _mm512_sub_epi8(_mm512_sub_epi8(before, inside), _mm512_set1_epi8(1));
        const __m512i bytes =
            left >= 64 ? _mm512_loadu_si512(next) : _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, (unsigned)count), next);
        _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi8(mask, index, bytes));
        next += count;
        left -= count;
    }
}
