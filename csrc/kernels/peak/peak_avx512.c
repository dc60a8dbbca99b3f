/* Limits of the machine: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <immintrin.h>

/* peak_fma on 16 lanes. */
int64_t hc_peak_fma_avx512(int64_t steps, void *state) {
    float *const chain = state;
    const __m512 half = _mm512_set1_ps(-0.5f), one = _mm512_set1_ps(1.0f);
    __m512 x_f32x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_f32x16[i] = _mm512_broadcast_f32x4(_mm_loadu_ps(chain + 4 * i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x_f32x16[i] = _mm512_fmadd_ps(x_f32x16[i], half, one);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_ps(chain + 4 * i, _mm512_castps512_ps128(x_f32x16[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 16 * 2 : 0;
}

/* peak_dot on 16 lanes without VNNI. Exact for all bytes, so with 16-bit operands. */
int64_t hc_peak_dot_avx512(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m512i a_i16x32 = _mm512_set1_epi32(2 << 16 | 1);
    const __m512i b_i16x32 = _mm512_set1_epi32(-6 * 65536 + 5);
    __m512i x_i32x16[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x16[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_PEAK_OPAQUE(x_i32x16[i]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x32);
            x_i32x16[i] = _mm512_add_epi32(x_i32x16[i], _mm512_madd_epi16(a_i16x32, b_i16x32));
            HC_PEAK_OPAQUE(x_i32x16[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_i32x16[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 16 * 8 : 0;
}

/* peak_shuffle, 64 bytes per instruction. */
int64_t hc_peak_shuffle_avx512(int64_t steps, void *state) {
    __m128i *const chain = state;
    const __m128i index = _mm_setr_epi8(3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12);
    const __m512i index_u8x64 = _mm512_broadcast_i32x4(index);
    __m512i x_u8x64[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8x64[i] = _mm512_broadcast_i32x4(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8x64[i] = _mm512_shuffle_epi8(x_u8x64[i], index_u8x64);
            HC_PEAK_OPAQUE(x_u8x64[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm512_castsi512_si128(x_u8x64[i]));
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}

/* peak_read, 256 bytes per iteration. */
static inline __m512i line(const char *from, int64_t ahead) {
    if (ahead)
        _mm_prefetch(from + ahead, _MM_HINT_T0);
    return _mm512_load_si512(from);
}

static inline uint64_t sum_lines(const char *from, int64_t size, int64_t ahead) {
    __m512i sum_u64x8[4] = {{0}};
    int64_t at = 0;
    for (; at + 256 <= size; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum_u64x8[i] = _mm512_add_epi64(sum_u64x8[i], line(from + at + 64 * i, ahead));
    }
    for (; at < size; at += 64)
        sum_u64x8[0] = _mm512_add_epi64(sum_u64x8[0], line(from + at, ahead));
    const __m512i low = _mm512_add_epi64(sum_u64x8[0], sum_u64x8[1]),
                  high = _mm512_add_epi64(sum_u64x8[2], sum_u64x8[3]);
    const __m512i sum = _mm512_add_epi64(low, high);
    const __m256i half = _mm256_add_epi64(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    uint64_t two[2]; /* the reductions of immintrin.h add signed numbers, which must not overflow */
    _mm_storeu_si128((__m128i *)two, _mm_add_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    return two[0] + two[1];
}

uint64_t hc_peak_read_avx512(const void *bytes, int64_t size, int64_t ahead) {
    return ahead ? sum_lines(bytes, size, ahead) : sum_lines(bytes, size, 0);
}
