/* The int8 matmuls with sums, with float32 group scales and with integer ones, for tiles of which few rows are used: the
 * weights are then the time, and rows without values would take as long as others. One and two rows have two sums for
 * each value, so that products do not wait for each other. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { NR = 32, WIDE = NR / 16, KR = 4, MOST = 8, AHEAD_BYTES = 2048 };

/* Adds one step to the sums. */
INLINE void add_step(const int32_t *quads, const int8_t *b, const int rows, __m512i sum[][WIDE]) {
    const __m512i low = _mm512_loadu_si512(b), high = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const __m512i x = _mm512_set1_epi32(quads[i]);
        sum[i][0] = dot(sum[i][0], x, low);
        sum[i][1] = dot(sum[i][1], x, high);
    }
}

/* The sums of one segment. */
INLINE void add_steps(int32_t steps, const int32_t *quads, int mr, const int8_t *b, const int32_t *init, const int rows,
                      __m512i sum[][WIDE]) {
    __m512i odd[MOST][WIDE];
    const __m512i low = _mm512_loadu_si512(init), high = _mm512_loadu_si512(init + 16);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        sum[i][0] = low;
        sum[i][1] = high;
        odd[i][0] = odd[i][1] = _mm512_setzero_si512();
    }
    for (; steps > 1; steps -= 2, quads += 2 * mr, b += 2 * NR * KR) {
#pragma GCC unroll 4
        for (int line = 0; line < 4; line++)
            _mm_prefetch((const char *)((uintptr_t)b + AHEAD_BYTES + (uintptr_t)(64 * line)), _MM_HINT_T0);
        add_step(quads, b, rows, sum);
        add_step(quads + mr, b + NR * KR, rows, rows <= 2 ? odd : sum);
    }
    if (steps > 0)
        add_step(quads, b, rows, sum);
#pragma GCC unroll 2
    for (int i = 0; i < rows && rows <= 2; i++) {
        sum[i][0] = _mm512_add_epi32(sum[i][0], odd[i][0]);
        sum[i][1] = _mm512_add_epi32(sum[i][1], odd[i][1]);
    }
}

INLINE void multiply(const hc_gemm_few_args *args, const int rows, const hc_few_kind kind) {
    const int32_t *quads = args->a, *init = args->init;
    const int8_t *b = args->b;
    const float *scale_a = args->scale_a, *scale_b = args->scale_b;
    const int mr = args->mr;
    __m512i total[MOST][WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDE; j++)
            total[i][j] = kind == HC_FEW_SCALED && args->accumulate
                              ? _mm512_loadu_si512((float *)args->c + i * NR + j * 16)
                              : _mm512_setzero_si512();
    for (int64_t s = 0; s < args->n_segments; s++) {
        __m512i sum[MOST][WIDE];
        const int32_t steps = args->steps[s];
        add_steps(steps, quads, mr, b, init, rows, sum);
        quads += (int64_t)steps * mr;
        b += (int64_t)steps * NR * KR;
        init += NR;
        if (kind == HC_FEW_SUMS) {
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < WIDE; j++)
                    total[i][j] = sum[i][j];
            continue;
        }
        const __m512 low = _mm512_loadu_ps(scale_b), high = _mm512_loadu_ps(scale_b + 16);
        scale_b += NR;
        if (kind == HC_FEW_SPLIT) {
            const __m512i factor[WIDE] = {_mm512_cvtps_epi32(low), _mm512_cvtps_epi32(high)};
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < WIDE; j++)
                    total[i][j] = _mm512_add_epi32(total[i][j], _mm512_mullo_epi32(sum[i][j], factor[j]));
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const __m512 x = _mm512_set1_ps(scale_a[i]), scale[WIDE] = {_mm512_mul_ps(x, low), _mm512_mul_ps(x, high)};
            for (int j = 0; j < WIDE; j++)
                total[i][j] = _mm512_castps_si512(
                    _mm512_fmadd_ps(scale[j], _mm512_cvtepi32_ps(sum[i][j]), _mm512_castsi512_ps(total[i][j])));
        }
        scale_a += mr;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDE; j++)
            _mm512_storeu_si512((int32_t *)args->c + i * NR + j * 16, total[i][j]);
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(kind, rows)                                                                                               \
    static __attribute__((noinline)) void kind##_##rows(const hc_gemm_few_args *args) { multiply(args, rows, kind); }
#define CASES(kind) CASE(kind, 1) CASE(kind, 2) CASE(kind, 3) CASE(kind, 4) CASE(kind, 6)
CASES(HC_FEW_SUMS)
CASE(HC_FEW_SUMS, 8)
CASES(HC_FEW_SCALED)
CASES(HC_FEW_SPLIT)

#define OF_ROWS(kind)                                                                                                  \
    (args->rows == 1   ? kind##_1(args)                                                                                \
     : args->rows == 2 ? kind##_2(args)                                                                                \
     : args->rows == 3 ? kind##_3(args)                                                                                \
     : args->rows == 4 ? kind##_4(args)                                                                                \
                       : kind##_6(args))

void hc_gemm_few_avx512vnni(const hc_gemm_few_args *args) {
    if (args->kind == HC_FEW_SUMS && args->rows > 6)
        HC_FEW_SUMS_8(args);
    else if (args->kind == HC_FEW_SUMS)
        OF_ROWS(HC_FEW_SUMS);
    else if (args->kind == HC_FEW_SCALED)
        OF_ROWS(HC_FEW_SCALED);
    else
        OF_ROWS(HC_FEW_SPLIT);
}

/* Panels of gemm_small_split have as many rows as sums of both kinds fit registers. */
void hc_gemm_small_split_avx512vnni(int64_t n_segments, const int32_t *steps, const void *a, const int8_t *b,
                                    const int32_t *init, const float *scale_b, int32_t *c) {
    const hc_gemm_few_args args = {.kind = HC_FEW_SPLIT,
                                   .rows = 6,
                                   .mr = 6,
                                   .n_segments = n_segments,
                                   .steps = steps,
                                   .a = a,
                                   .b = b,
                                   .init = init,
                                   .scale_b = scale_b,
                                   .c = c};
    HC_FEW_SPLIT_6(&args);
}
