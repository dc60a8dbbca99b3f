/* gemv_rows: 64 accumulators in eight registers, in the order of x. A register of codes holds 8 words; with 8 bits a
 * second one holds the block's other 8, with 32 bits eight hold a value each.
 */
#include "kernels/gemv/gemv_avx2.h"

/* Code at bit `bit` of each word: mantissa bits of 2^(23 - bit), minus that. */
INLINE __m256 code_f32x8(__m256i words, int bits, int bit) {
    const __m256i exponent = _mm256_set1_epi32((150 - bit) << 23);
    const __m256i field =
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(((1 << bits) - 1) << bit)), exponent);
    return _mm256_sub_ps(_mm256_castsi256_ps(field), _mm256_castsi256_ps(exponent));
}

/* Entry by nibble j of each word: vpermps reads three bits of an index; the fourth, as a sign, selects the half. */
INLINE __m256 entry_f32x8(const float *table, __m256i words, int j) {
    const __m256i index = _mm256_srli_epi32(words, 4 * j), upper = _mm256_slli_epi32(words, 28 - 4 * j);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index),
                            _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index), _mm256_castsi256_ps(upper));
}

/* acc[i] += x * codes for 64 codes; register i holds positions 8 i .. 8 i + 7. */
INLINE void add_block(const uint8_t *codes, const float *table, const hc_float8_f32x8 *float8, const float *x, int bits,
                      __m256i flips, __m256 zero, __m256 acc[8]) {
    for (int i = 0; bits == 32 && i < 8; i++)
        acc[i] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i),
                                 _mm256_loadu_ps((const float *)(const void *)(codes + 32 * i)), acc[i]);
    if (bits == 32)
        return;
#pragma GCC unroll 2
    for (int upper = 0; upper < bits / 4; upper++) {
        const __m256i loaded = _mm256_loadu_si256((const __m256i *)(codes + 32 * upper));
        const __m256i low = _mm256_xor_si256(loaded, flips), high = _mm256_srli_epi32(low, 16);
        const __m256i special = float8 ? special_bytes(float8, loaded) : _mm256_setzero_si256();
        const bool has_special = float8 && _mm256_movemask_epi8(special) != 0;
#pragma GCC unroll 8
        for (int j = 0; j < 32 / bits; j++) {
            const __m256i words = j < 16 / bits ? low : high;
            __m256 c = table    ? entry_f32x8(table, loaded, j)
                       : float8 ? float8_f32x8(float8, loaded, j)
                                : _mm256_sub_ps(code_f32x8(words, bits, j * bits % 16), zero);
            if (has_special) {
                const __m256i infinity = _mm256_castps_si256(_mm256_set1_ps(INFINITY));
                const __m256i exponent = _mm256_srai_epi32(_mm256_slli_epi32(special, 24 - 8 * j), 31);
                c = _mm256_or_ps(c, _mm256_castsi256_ps(_mm256_and_si256(exponent, infinity)));
            }
            const int i = bits == 8 ? 2 * j + upper : j;
            acc[i] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i), c, acc[i]);
        }
    }
}

INLINE float fold(__m256 a[8], int bits) {
    __m256 b[4];
    if (bits == 32) {
        for (int j = 0; j < 4; j++)
            b[j] = _mm256_add_ps(a[j], a[j + 4]);
        const __m256 sum = _mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3]));
        const __m256 half = _mm256_add_ps(sum, _mm256_permute2f128_ps(sum, sum, 1));
        const __m256 quarter = _mm256_add_ps(half, _mm256_permute_ps(half, 0x4e));
        return _mm256_cvtss_f32(_mm256_add_ps(quarter, _mm256_permute_ps(quarter, 0xb1)));
    }
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

/* The last columns, fewer than 64, by the definition, since no other accumulator may add a padded code. */
static void add_tail(const hc_gemv_floats_args *args, int r, int64_t first, const float *x, float zero, __m256 acc[8]) {
    float sums[64];
    memcpy(sums, acc, sizeof sums);
    for (int64_t k = 0; first + k < args->columns; k++) {
        const int64_t place = args->bits == 32 ? k : args->bits == 8 ? k % 4 * 16 + k / 4 : k % 8 * 8 + k / 8;
        sums[place] = fmaf(x[place], hc_gemv_code(args, r, first + k, zero), sums[place]);
    }
    memcpy(acc, sums, sizeof sums);
}

INLINE void gemv_rows(const hc_gemv_floats_args *args, int bits, bool has_table, bool is_float8) {
    const int n_vectors = args->n_vectors;
    const hc_float8_f32x8 float8 = make_float8(args);
    const __m256i flips = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        const int r = i / n_vectors, v = i % n_vectors;
        const float *table = has_table ? args->table[r] : NULL;
        const float zero = args->zeros[r] ? args->zeros[r][0] : args->zero;
        const float *x = args->x + v * 64;
        __m256 acc[8];
        for (int j = 0; j < 8; j++)
            acc[j] = _mm256_setzero_ps();
        int64_t k = 0;
        for (; k + 64 <= args->columns; k += 64, x += 64 * n_vectors) {
            for (int64_t line = 0; line < 8 * bits; line += 64)
                _mm_prefetch((const char *)args->next[r] + k * bits / 8 + line, _MM_HINT_T1);
            add_block(args->codes[r] + k * bits / 8, table, is_float8 ? &float8 : NULL, x, bits, flips,
                      _mm256_set1_ps(zero), acc);
        }
        if (k < args->columns)
            add_tail(args, r, k, x, zero, acc);
        args->out[i] = fold(acc, bits);
    }
}

void hc_gemv_rows_avx2(const hc_gemv_floats_args *args) {
    if (args->bits == 32)
        gemv_rows(args, 32, false, false);
    else if (args->bits == 8)
        args->exponent_bits ? gemv_rows(args, 8, false, true) : gemv_rows(args, 8, false, false);
    else
        args->table[0] ? gemv_rows(args, 4, true, false) : gemv_rows(args, 4, false, false);
}
