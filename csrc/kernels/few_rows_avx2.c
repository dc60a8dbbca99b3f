/* few_rows: 64 accumulators in eight registers, in the order of x. A register of codes holds 8 words; with 8 bits a
 * second one holds the block's other 8.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Code at bit `bit` of each word: mantissa bits of 2^(23 - bit), minus that. */
INLINE __m256 code_f32x8(__m256i words, int bits, int bit) {
    const __m256i exponent = _mm256_set1_epi32((150 - bit) << 23);
    const __m256i field =
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(((1 << bits) - 1) << bit)), exponent);
    return _mm256_sub_ps(_mm256_castsi256_ps(field), _mm256_castsi256_ps(exponent));
}

/* acc[i] += x * codes for 64 codes; register i holds places 8 i .. 8 i + 7. */
INLINE void add_block(const uint8_t *codes, const float *x, int bits, __m256i flips, __m256 zero, __m256 acc[8]) {
#pragma GCC unroll 2
    for (int upper = 0; upper < bits / 4; upper++) {
        const __m256i loaded = _mm256_loadu_si256((const __m256i *)(codes + 32 * upper));
        const __m256i low = _mm256_xor_si256(loaded, flips), high = _mm256_srli_epi32(low, 16);
#pragma GCC unroll 8
        for (int j = 0; j < 32 / bits; j++) {
            const __m256i words = j < 16 / bits ? low : high;
            const __m256 c = _mm256_sub_ps(code_f32x8(words, bits, j * bits % 16), zero);
            const int i = bits == 8 ? 2 * j + upper : j;
            acc[i] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i), c, acc[i]);
        }
    }
}

INLINE float fold(__m256 a[8], int bits) {
    __m256 b[4];
    for (int j = 0; j < 4; j++) /* 8 bits: words 8 to 15; 4 bits: nibbles 4 to 7, which come after the lanes */
        b[j] = bits == 8 ? _mm256_add_ps(a[2 * j], a[2 * j + 1]) : a[j];
    for (int j = 0; j < (bits == 8 ? 4 : 8); j++) {
        __m256 *sum = bits == 8 ? &b[j] : &a[j];
        *sum = _mm256_add_ps(*sum, _mm256_permute2f128_ps(*sum, *sum, 1));
        *sum = _mm256_add_ps(*sum, _mm256_permute_ps(*sum, 0x4e));
        *sum = _mm256_add_ps(*sum, _mm256_permute_ps(*sum, 0xb1));
    }
    for (int j = 0; bits == 4 && j < 4; j++)
        b[j] = _mm256_add_ps(a[j], a[j + 4]);
    return _mm256_cvtss_f32(_mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3])));
}

INLINE void few_rows(const hc_few_floats_args *args, int bits) {
    const int n_vectors = args->n_vectors;
    const int64_t step = 8 * bits, row_bytes = (args->columns * bits + 7) / 8;
    const __m256i flips = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    for (int i = 0; i < HC_FEW_ROWS * n_vectors; i++) {
        const int r = i / n_vectors, v = i % n_vectors;
        const uint8_t *codes = args->codes[r];
        const __m256 zero = _mm256_set1_ps(args->zeros[r] ? args->zeros[r][0] : args->zero);
        const float *x = args->x + v * 64;
        __m256 acc[8];
        for (int j = 0; j < 8; j++)
            acc[j] = _mm256_setzero_ps();
        int64_t place = 0;
        for (; place + step <= row_bytes; place += step, x += 64 * n_vectors) {
            _mm_prefetch((const char *)args->next[r] + place, _MM_HINT_T1);
            add_block(codes + place, x, bits, flips, zero, acc);
        }
        if (place < row_bytes) {
            uint8_t last[64] = {0};
            memcpy(last, codes + place, (size_t)(row_bytes - place));
            add_block(last, x, bits, flips, zero, acc);
        }
        args->out[i] = fold(acc, bits);
    }
}

void hc_few_rows_avx2(const hc_few_floats_args *args) {
    if (args->bits == 4)
        few_rows(args, 4);
    else
        few_rows(args, 8);
}
