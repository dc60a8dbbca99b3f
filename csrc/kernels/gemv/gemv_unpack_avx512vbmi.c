/* gemv_unpack: 64 codes at a time. Eight codes are `bits` bytes. vpermb copies those bytes to 64-bit lanes, and
 * vpmultishiftqb moves every code's bits to a byte.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { AHEAD = 4096 }; /* bytes, of the next rows: Zen 4, 2026-11 */

void hc_gemv_unpack_avx512vbmi(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out) {
    const uint64_t each = 0x0101010101010101, steps = 0x0706050403020100;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), step = _mm512_set1_epi64((int64_t)steps);
    const __m512i lane_bytes = _mm512_mullo_epi64(lanes, _mm512_set1_epi64((int64_t)(each * (uint64_t)bits)));
    const __m512i place = _mm512_add_epi8(lane_bytes, step);
    const __m512i shift = _mm512_set1_epi64((int64_t)(steps * (uint64_t)bits));
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    int64_t i = 0, left = row_bytes;
    for (; i + 64 <= n && left >= 64; i += 64, stored += 8 * bits, left -= 8 * bits) { /* masked stores are slow */
        _mm_prefetch((const char *)((uintptr_t)stored + AHEAD), _MM_HINT_T1);
        const __m512i spread = _mm512_permutexvar_epi8(place, _mm512_loadu_si512(stored));
        _mm512_storeu_si512(out + i, _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, spread), mask));
    }
    for (; i < n; i += 64, stored += 8 * bits, left -= 8 * bits) {
        const __m512i bytes = left >= 64  ? _mm512_loadu_si512(stored)
                              : left <= 0 ? _mm512_setzero_si512()
                                          : _mm512_maskz_loadu_epi8((1ull << left) - 1, stored);
        const __m512i codes = _mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(place, bytes));
        const int64_t rest = (n - i + 7) / 8 * 8;
        const __mmask64 wanted = rest >= 64 ? ~0ull : (1ull << rest) - 1;
        _mm512_mask_storeu_epi8(out + i, wanted, _mm512_and_si512(codes, mask));
    }
}
