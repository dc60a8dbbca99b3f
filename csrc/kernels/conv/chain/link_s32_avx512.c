/* The last steps of sums in a chain, 16 values at a time in registers: hc_link_s32_avx512. Codes as in
 * codes_s8_avx512.c; they need no saturation, since values are clamped. Codes alone are computed from float32 where that
 * is certain to give the same. */
#include "kernels/conv/codes_s8.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, HALF = 8 };

/* 16 columns, or fewer of a mask. */
INLINE __m512i some(int64_t rows, const __mmask16 mask, int64_t j, const hc_link_tile *tile, const bool clamps,
                    const bool adds, const bool writes, const bool rounds, __m512i largest) {
    const __mmask8 half[2] = {(__mmask8)mask, (__mmask8)(mask >> HALF)};
    const __m512d scale = _mm512_set1_pd((double)tile->scale);
    __m512d scales[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
        scales[h] = _mm512_mul_pd(scale, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(half[h], tile->scales + j + h * HALF)));
    const __m512 bias = tile->bias ? _mm512_maskz_loadu_ps(mask, tile->bias + j) : _mm512_set1_ps(-0.0f);
    const __m512 low = _mm512_set1_ps(tile->steps.low), high = _mm512_set1_ps(tile->steps.high);
    const float reciprocal = rounds ? 1.0f / tile->code_scale : 0;
    const __m512 by = _mm512_set1_ps(reciprocal), magic = _mm512_set1_ps(0x1.8p23f + (float)ZERO);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 sure = _mm512_set1_ps(rounds && inverts(tile->code_scale) ? SURE : -1); /* or never */
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *sums = tile->sums + i * tile->ld + j;
        __m256 part[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            part[h] = _mm512_cvtpd_ps(
                _mm512_mul_pd(scales[h], _mm512_cvtepi32_pd(_mm256_maskz_loadu_epi32(half[h], sums + h * HALF))));
        __m512 y = _mm512_insertf32x8(_mm512_castps256_ps512(part[0]), part[1], 1);
        y = _mm512_add_ps(y, bias);
        if (adds)
            y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, tile->plus + i * tile->step + j));
        if (clamps) /* the second operand if it is NaN */
            y = _mm512_max_ps(low, _mm512_min_ps(high, y));
        largest = _mm512_mask_max_epu32(largest, mask, largest, _mm512_and_si512(_mm512_castps_si512(y), magnitude));
        if (writes)
            _mm512_mask_storeu_ps(tile->to + i * tile->step + j, mask, y);
        if (!rounds)
            continue;
        const __m512 sum = _mm512_fmadd_ps(y, by, magic);
        const __m512 apart = _mm512_fmsub_ps(y, by, _mm512_sub_ps(sum, magic));
        uint8_t *to = tile->codes[i] + tile->at + j;
        const __mmask16 unsure = _mm512_mask_cmp_ps_mask(mask, _mm512_abs_ps(apart), sure, _CMP_NLE_UQ);
        if (__builtin_expect(unsure == 0, 1)) {
            const __m512i unit = _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_set1_epi32(0x4b400000));
            _mm_mask_storeu_epi8(to, mask, _mm512_cvtepi32_epi8(unit));
        } else {
            float values[LANES];
            _mm512_storeu_ps(values, y);
            divided_codes(values, __builtin_popcount(mask), tile->code_scale, HC_PANEL_U8, 0, to);
        }
    }
    return largest;
}

/* Codes alone, in float32. A value differs from the exact one by at most `error`, in codes, where it is not clamped by far:
 * a quotient that may be on the other side of a midpoint is computed exactly. Returns the largest value. */
INLINE __m512 near(int64_t rows, const __mmask16 mask, int64_t j, const hc_link_tile *tile, float error, __m512 most) {
    const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(tile->scale), _mm512_maskz_loadu_ps(mask, tile->scales + j));
    const __m512 bias = tile->bias ? _mm512_maskz_loadu_ps(mask, tile->bias + j) : _mm512_setzero_ps();
    const __m512 low = _mm512_set1_ps(tile->steps.low), high = _mm512_set1_ps(tile->steps.high);
    const __m512 by = _mm512_set1_ps(1.0f / tile->code_scale), magic = _mm512_set1_ps(0x1.8p23f + (float)ZERO);
    const __m512 sure = _mm512_set1_ps(SURE - error);
    for (int64_t i = 0; i < rows; i++) {
        const __m512 sums = _mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(mask, tile->sums + i * tile->ld + j));
        const __m512 value = _mm512_fmadd_ps(sums, scale, bias);
        const __m512 y = _mm512_max_ps(low, _mm512_min_ps(high, value));
        const __m512 sum = _mm512_fmadd_ps(y, by, magic);
        const __m512 apart = _mm512_fmsub_ps(y, by, _mm512_sub_ps(sum, magic));
        const __mmask16 unsure = _mm512_mask_cmp_ps_mask(mask, _mm512_abs_ps(apart), sure, _CMP_NLE_UQ);
        most = _mm512_mask_max_ps(most, mask, value, most);
        if (__builtin_expect(unsure == 0, 1)) {
            const __m512i unit = _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_set1_epi32(0x4b400000));
            _mm_mask_storeu_epi8(tile->codes[i] + tile->at + j, mask, _mm512_cvtepi32_epi8(unit));
        } else {
            hc_link_tile one = *tile;
            one.sums += i * tile->ld;
            one.codes += i;
            some(1, mask, j, &one, true, false, false, true, _mm512_setzero_si512());
        }
    }
    return most;
}

/* The least code, plus ZERO: that of the lower limit. */
static uint8_t least_code(const hc_link_tile *tile) {
    uint8_t code;
    divided_codes(&tile->steps.low, 1, tile->code_scale, HC_PANEL_U8, 0, &code);
    return code;
}

/* The same for 32 columns of two rows at a time, in units of codes: sums * by + offset, of which `by` and `offset` differ
 * from exact ones by little. `by` is at most 0.9, so that values are integers of 32 bits. Larger codes are saturated by
 * packing, smaller ones raised. Returns the largest value. */
INLINE __m512 pairs(int64_t rows, int64_t j, const hc_link_tile *tile, float error, const bool seen, uint8_t least,
                    __m512 most) {
    enum { SIDES = 2 };
    const __m512 unit = _mm512_set1_ps(1.0f / tile->code_scale), scale = _mm512_set1_ps(tile->scale);
    const __m512 sure = _mm512_set1_ps(SURE - error);
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i raised = _mm512_set1_epi8((char)least);
    __m512 by[SIDES], offset[SIDES];
    for (int h = 0; h < SIDES; h++) {
        by[h] = _mm512_mul_ps(_mm512_mul_ps(scale, _mm512_loadu_ps(tile->scales + j + h * LANES)), unit);
        offset[h] = _mm512_set1_ps((float)ZERO);
        if (tile->bias)
            offset[h] = _mm512_fmadd_ps(_mm512_loadu_ps(tile->bias + j + h * LANES), unit, offset[h]);
    }
    for (int64_t i = 0; i < rows; i += 2) {
        const int64_t next = i + 1 < rows ? 1 : 0; /* a last row twice */
        __m512 worst = _mm512_setzero_ps();
        __m512i code[2][SIDES];
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++) {
            const int32_t *sums = tile->sums + (i + r * next) * tile->ld + j;
#pragma GCC unroll 2
            for (int h = 0; h < SIDES; h++) {
                const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + h * LANES));
                const __m512 value = _mm512_fmadd_ps(sum, by[h], offset[h]);
                if (!seen)
                    most = _mm512_max_ps(most, value);
                code[r][h] = _mm512_cvtps_epi32(value);
                worst = _mm512_range_ps(worst, _mm512_sub_ps(value, _mm512_cvtepi32_ps(code[r][h])), 0x0b);
            }
        }
        if (__builtin_expect(_mm512_cmp_ps_mask(worst, sure, _CMP_NLE_UQ) != 0, 0)) {
            hc_link_tile some_rows = *tile;
            some_rows.sums += i * tile->ld;
            some_rows.codes += i;
            for (int h = 0; h < SIDES; h++)
                some(1 + next, 0xffff, j + h * LANES, &some_rows, true, false, false, true, _mm512_setzero_si512());
            continue;
        }
        const __m512i bytes =
            _mm512_packus_epi16(_mm512_packs_epi32(code[0][0], code[0][1]), _mm512_packs_epi32(code[1][0], code[1][1]));
        const __m512i all = _mm512_max_epu8(_mm512_permutexvar_epi32(lanes, bytes), raised);
        _mm256_storeu_si256((void *)(tile->codes[i + next] + tile->at + j), _mm512_extracti64x4_epi64(all, 1));
        _mm256_storeu_si256((void *)(tile->codes[i] + tile->at + j), _mm512_castsi512_si256(all));
    }
    return most;
}

/* The largest of some values, at least 0, by their bits. */
INLINE float largest_of(const float *values, int64_t n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t j = 0; values && j < n; j += LANES) {
        const __mmask16 mask = n - j < LANES ? (__mmask16)((1u << (n - j)) - 1) : 0xffff;
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_maskz_loadu_epi32(mask, values + j), magnitude));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return largest;
}

/* Returns false if codes or the largest magnitude have to be computed exactly. */
INLINE bool nearly(int64_t rows, int64_t columns, const hc_link_tile *tile, uint32_t *largest) {
    enum { WIDE = 2 * LANES };
    const float high = tile->steps.high;
    uint32_t bits;
    memcpy(&bits, &high, sizeof bits);
    const float apart = 0x1p-20f * (high + largest_of(tile->bias, columns)), error = apart / tile->code_scale;
    const bool usual =
        tile->code_scale >= 0x1p-80f && inverts(tile->code_scale); /* scales are normal, or add nothing */
    if (!usual || !(error < 0x1p-6f) || tile->steps.low < -high || *largest > bits)
        return false;
    const bool seen = *largest == bits;
    __m512 most = _mm512_set1_ps(-INFINITY), codes = most;
    int64_t j = 0;
    if (columns >= WIDE && fabsf(high / tile->code_scale - LARGEST) < 0x1p-10f &&
        tile->scale * largest_of(tile->scales, columns) < 0.9f * tile->code_scale) {
        const uint8_t least = least_code(tile);
        for (; j + WIDE <= columns; j += WIDE)
            codes = seen ? pairs(rows, j, tile, error, true, least, codes)
                         : pairs(rows, j, tile, error, false, least, codes);
    }
    for (; j + LANES <= columns; j += LANES)
        most = near(rows, 0xffff, j, tile, error, most);
    if (j < columns)
        most = near(rows, (__mmask16)((1u << (columns - j)) - 1), j, tile, error, most);
    if (seen)
        return true;
    *largest = bits;
    return _mm512_reduce_max_ps(most) >= high + apart || _mm512_reduce_max_ps(codes) >= (float)(ZERO + LARGEST) + error;
}

INLINE uint32_t all(int64_t rows, int64_t columns, const hc_link_tile *tile, const bool clamps, const bool adds,
                    const bool writes, const bool rounds, uint32_t so_far) {
    __m512i largest = _mm512_set1_epi32((int32_t)so_far);
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES)
        largest = some(rows, 0xffff, j, tile, clamps, adds, writes, rounds, largest);
    if (j < columns)
        largest = some(rows, (__mmask16)((1u << (columns - j)) - 1), j, tile, clamps, adds, writes, rounds, largest);
    const uint32_t found = _mm512_reduce_max_epu32(largest);
    return found < 0x7f800000 ? found : HC_LINK_NOT_FINITE;
}

uint32_t hc_link_s32_avx512(int64_t rows, int64_t columns, const hc_link_tile *tile, uint32_t largest) {
    const bool adds = tile->plus != NULL, writes = tile->to != NULL, clamps = tile->steps.clamps;
    uint32_t found = largest;
    if (tile->codes && !writes && !adds && nearly(rows, columns, tile, &found))
        return found;
    if (tile->codes)
        return adds     ? writes ? all(rows, columns, tile, true, true, true, true, largest)
                                 : all(rows, columns, tile, true, true, false, true, largest)
               : writes ? all(rows, columns, tile, true, false, true, true, largest)
                        : all(rows, columns, tile, true, false, false, true, largest);
    if (adds)
        return clamps ? all(rows, columns, tile, true, true, true, false, largest)
                      : all(rows, columns, tile, false, true, true, false, largest);
    return clamps ? all(rows, columns, tile, true, false, true, false, largest)
                  : all(rows, columns, tile, false, false, true, false, largest);
}
