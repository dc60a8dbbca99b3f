/* The int8 matmuls with sums, with float32 group scales and with integer ones, for 1, 2, 3, 4 or all 6 rows of a tile:
 *
 *   bytes  weights up to 16 by vpmaddubsw: int16 holds the sum of four steps (4 * 2 * 255 * 16 < 2^15), which a vpmaddwd by
 *          ones then adds in pairs. This takes half of the instructions of words.
 *   words  all weights by vpmaddwd, which is exact where vpmaddubsw saturates: b is widened to int16 as it is loaded, 4
 *          columns of 4 values per register, so a column has two 32-bit lanes, which are added at the end of a segment.
 *          That leaves columns in the order 0 1 4 5 2 3 6 7.
 *
 * Sums over segments stay in registers, those of 6 rows in memory (L1). */
#include "kernels/dots/avx2.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 8, KR = 4, PART = 4 };

typedef struct {
    const int32_t *a; /* of one step: `size` values for each of mr rows, 1 (bytes) or 2 (words) */
    const int8_t *b;
} hc_steps_at;

/* The sums of one segment of bytes, from init; moves `at` past it. */
INLINE void add_bytes(int32_t steps, hc_steps_at *at, int mr, const int32_t *init, const int rows, __m256i sum[]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int32_t *quads = at->a;
    const int8_t *bytes = at->b;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sum[i] = _mm256_loadu_si256((const __m256i *)init);
    for (int32_t left = steps; left > 0; left -= PART) {
        __m256i part[MR];
        __m256i w = _mm256_loadu_si256((const __m256i *)bytes);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            part[i] = _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w);
        quads += mr;
        bytes += NR * KR;
        for (int32_t more = (left < PART ? left : PART) - 1; more > 0; more--, quads += mr, bytes += NR * KR) {
            w = _mm256_loadu_si256((const __m256i *)bytes);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                part[i] = _mm256_add_epi16(part[i], _mm256_maddubs_epi16(_mm256_set1_epi32(quads[i]), w));
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], ones));
    }
    *at = (hc_steps_at){quads, bytes};
}

/* The sums of one segment of words, columns in the order of vphaddd; moves `at` past it. */
INLINE void add_words(int32_t steps, hc_steps_at *at, int mr, const int rows, __m256i total[]) {
    const int32_t *quads = at->a;
    const int8_t *bytes = at->b;
    __m256i sum[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (; steps > 0; steps--, quads += 2 * mr, bytes += NR * KR) {
        const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)bytes));
        const __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(bytes + 16)));
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const __m256i x = _mm256_castpd_si256(_mm256_broadcast_sd((const double *)(const void *)(quads + 2 * i)));
            sum[i][0] = dot(sum[i][0], x, low);
            sum[i][1] = dot(sum[i][1], x, high);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        total[i] = _mm256_hadd_epi32(sum[i][0], sum[i][1]);
    *at = (hc_steps_at){quads, bytes};
}

/* Converts columns to the order 0 1 4 5 2 3 6 7, and back. */
INLINE __m256i turn(__m256i columns, const bool words) {
    return words ? _mm256_permute4x64_epi64(columns, 0xd8) : columns;
}

INLINE __m256i load(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }

INLINE void multiply(const hc_gemm_few_args *args, const int rows, const hc_few_kind kind, const bool words) {
    const bool in_memory = rows > 4;
    const int32_t *init = args->init;
    const float *scale_a = args->scale_a, *scale_b = args->scale_b;
    hc_steps_at at = {args->a, args->b};
    int32_t *const c = args->c;
    __m256i total[MR];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        total[i] = kind == HC_FEW_SCALED && args->accumulate ? turn(load(c + i * NR), words) : _mm256_setzero_si256();
        if (in_memory)
            _mm256_storeu_si256((__m256i *)(c + i * NR), total[i]);
    }
    for (int64_t s = 0; s < args->n_segments; s++) {
        __m256i sum[MR];
        if (words)
            add_words(args->steps[s], &at, args->mr, rows, sum);
        else {
            add_bytes(args->steps[s], &at, args->mr, init, rows, sum);
            init += NR;
        }
        if (kind == HC_FEW_SUMS) {
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                total[i] = words ? _mm256_add_epi32(sum[i], turn(load(args->init), words)) : sum[i];
            break;
        }
        const __m256 scales = _mm256_castsi256_ps(turn(load(scale_b), words));
        const __m256i factors = _mm256_cvtps_epi32(scales);
        scale_b += NR;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const __m256i before = in_memory ? load(c + i * NR) : total[i];
            if (kind == HC_FEW_SPLIT)
                total[i] = _mm256_add_epi32(before, _mm256_mullo_epi32(sum[i], factors));
            else {
                const __m256 scale = _mm256_mul_ps(_mm256_broadcast_ss(scale_a + i), scales);
                total[i] = _mm256_castps_si256(
                    _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum[i]), _mm256_castsi256_ps(before)));
            }
            if (in_memory)
                _mm256_storeu_si256((__m256i *)(c + i * NR), total[i]);
        }
        if (kind == HC_FEW_SCALED)
            scale_a += args->mr;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const __m256i last = in_memory && kind != HC_FEW_SUMS ? load(c + i * NR) : total[i];
        _mm256_storeu_si256((__m256i *)(c + i * NR), turn(last, words));
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(kind, words, rows)                                                                                        \
    static __attribute__((noinline)) void kind##_##words##_##rows(const hc_gemm_few_args *args) {                      \
        multiply(args, rows, kind, words);                                                                             \
    }
#define CASES(kind, words) CASE(kind, words, 1) CASE(kind, words, 2) CASE(kind, words, 3) CASE(kind, words, 4)
enum { BYTES = false, WORDS = true };
CASES(HC_FEW_SUMS, WORDS)
CASES(HC_FEW_SCALED, BYTES)
CASES(HC_FEW_SCALED, WORDS)
CASES(HC_FEW_SPLIT, BYTES)
CASES(HC_FEW_SPLIT, WORDS)

#define OF_ROWS(kind, words)                                                                                           \
    (args->rows == 1   ? kind##_##words##_1(args)                                                                      \
     : args->rows == 2 ? kind##_##words##_2(args)                                                                      \
     : args->rows == 3 ? kind##_##words##_3(args)                                                                      \
                       : kind##_##words##_4(args))

void hc_gemm_few_avx2(const hc_gemm_few_args *args) {
    if (args->kind == HC_FEW_SCALED)
        OF_ROWS(HC_FEW_SCALED, BYTES);
    else
        OF_ROWS(HC_FEW_SPLIT, BYTES);
}

void hc_gemm_few_words_avx2(const hc_gemm_few_args *args) {
    if (args->kind == HC_FEW_SUMS)
        OF_ROWS(HC_FEW_SUMS, WORDS);
    else if (args->kind == HC_FEW_SCALED)
        OF_ROWS(HC_FEW_SCALED, WORDS);
    else
        OF_ROWS(HC_FEW_SPLIT, WORDS);
}

/* All rows of a tile. */
CASE(HC_FEW_SCALED, BYTES, 6)
CASE(HC_FEW_SPLIT, BYTES, 6)
CASE(HC_FEW_SPLIT, WORDS, 6)

void hc_gemm_small_scaled_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                               const int32_t *init, const float *scale_a, const float *scale_b, float *c,
                               bool accumulate) {
    HC_FEW_SCALED_BYTES_6(&(hc_gemm_few_args){.mr = MR,
                                              .n_segments = n_segments,
                                              .steps = steps,
                                              .a = a,
                                              .b = b,
                                              .init = init,
                                              .scale_a = scale_a,
                                              .scale_b = scale_b,
                                              .c = c,
                                              .accumulate = accumulate});
}

static hc_gemm_few_args split(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_b, int32_t *c) {
    return (hc_gemm_few_args){
        .mr = MR, .n_segments = n_segments, .steps = steps, .a = a, .b = b, .init = init, .scale_b = scale_b, .c = c};
}

void hc_gemm_small_split_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_b, int32_t *c) {
    const hc_gemm_few_args args = split(n_segments, steps, a, b, init, scale_b, c);
    HC_FEW_SPLIT_BYTES_6(&args);
}

void hc_gemm_split_words_avx2(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                              const int32_t *init, const float *scale_b, int32_t *c) {
    const hc_gemm_few_args args = split(n_segments, steps, a, b, init, scale_b, c);
    HC_FEW_SPLIT_WORDS_6(&args);
}
