/* Limits of the machine: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <immintrin.h>

/* peak_fma on 8 lanes. */
int64_t hc_peak_fma_avx2(int64_t steps, void *state) {
    float *const chain = state;
    const __m256 half = _mm256_set1_ps(-0.5f), one = _mm256_set1_ps(1.0f);
    __m256 x_f32x8[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_f32x8[i] = _mm256_broadcast_ps((const __m128 *)(chain + 4 * i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x_f32x8[i] = _mm256_fmadd_ps(x_f32x8[i], half, one);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_ps(chain + 4 * i, _mm256_castps256_ps128(x_f32x8[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 8 * 2 : 0;
}

/* peak_dot on 8 lanes. Exact for all bytes, so with 16-bit operands: vpmaddubsw would saturate. */
int64_t hc_peak_dot_avx2(int64_t steps, void *state) {
    __m128i *const chain = state;
    __m256i a_i16x16 = _mm256_set1_epi32(2 << 16 | 1);
    const __m256i b_i16x16 = _mm256_set1_epi32(-6 * 65536 + 5);
    __m256i x_i32x8[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32x8[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x16);
            x_i32x8[i] = _mm256_add_epi32(x_i32x8[i], _mm256_madd_epi16(a_i16x16, b_i16x16));
            HC_PEAK_OPAQUE(x_i32x8[i]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            HC_PEAK_OPAQUE(a_i16x16);
            x_i32x8[i] = _mm256_add_epi32(x_i32x8[i], _mm256_madd_epi16(a_i16x16, b_i16x16));
            HC_PEAK_OPAQUE(x_i32x8[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm256_castsi256_si128(x_i32x8[i]));
    return steps > 0 ? HC_PEAK_CHAINS * 8 * 8 : 0;
}

/* peak_shuffle, 32 bytes per instruction. */
int64_t hc_peak_shuffle_avx2(int64_t steps, void *state) {
    __m128i *const chain = state;
    const __m128i index = _mm_setr_epi8(3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12);
    const __m256i index_u8x32 = _mm256_broadcastsi128_si256(index);
    __m256i x_u8x32[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8x32[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(chain + i));
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8x32[i] = _mm256_shuffle_epi8(x_u8x32[i], index_u8x32);
            HC_PEAK_OPAQUE(x_u8x32[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, _mm256_castsi256_si128(x_u8x32[i]));
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}

/* peak_read, 256 bytes per iteration. */
static inline __m256i line(const char *from, int64_t ahead) {
    if (ahead)
        _mm_prefetch(from + ahead, _MM_HINT_T0);
    return _mm256_add_epi64(_mm256_load_si256((const __m256i *)from), _mm256_load_si256((const __m256i *)from + 1));
}

static inline uint64_t sum_lines(const char *from, int64_t size, int64_t ahead) {
    __m256i sum_u64x4[4] = {{0}};
    int64_t at = 0;
    for (; at + 256 <= size; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum_u64x4[i] = _mm256_add_epi64(sum_u64x4[i], line(from + at + 64 * i, ahead));
    }
    for (; at < size; at += 64)
        sum_u64x4[0] = _mm256_add_epi64(sum_u64x4[0], line(from + at, ahead));
    uint64_t word[4];
    const __m256i low = _mm256_add_epi64(sum_u64x4[0], sum_u64x4[1]),
                  high = _mm256_add_epi64(sum_u64x4[2], sum_u64x4[3]);
    _mm256_storeu_si256((__m256i *)word, _mm256_add_epi64(low, high));
    return (word[0] + word[1]) + (word[2] + word[3]);
}

uint64_t hc_peak_read_avx2(const void *bytes, int64_t size, int64_t ahead) {
    return ahead ? sum_lines(bytes, size, ahead) : sum_lines(bytes, size, 0);
}
