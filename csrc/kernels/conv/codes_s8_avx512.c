/* 8-bit codes, 64 values at a time: adding 1.5 * 2^23 + ZERO to x * (1 / scale) rounds it to an integer in the low bits
 * of the sum. The remainder shows whether the quotient may be on the other side of a midpoint. */
#include "kernels/conv/codes_s8.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, STEP = 4 * LANES };

INLINE __mmask16 first_lanes(int64_t n) { return n >= LANES ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0; }

uint32_t hc_largest_f32_avx512(const float *x, int64_t n, uint32_t so_far) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most[4];
    for (int j = 0; j < 4; j++)
        most[j] = _mm512_set1_epi32((int32_t)so_far);
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            most[j] = _mm512_max_epu32(most[j], _mm512_and_si512(_mm512_loadu_si512(x + i + j * LANES), magnitude));
    for (; i < n; i += LANES) {
        const __m512i last = _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i);
        most[0] = _mm512_max_epu32(most[0], _mm512_and_si512(last, magnitude));
    }
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(most[0], most[1]), _mm512_max_epu32(most[2], most[3])));
}

/* Codes of at most STEP values, plus `zero`, as bytes in the order of x; false if they must be computed by division. */
INLINE bool units(const float *x, int64_t n, const bool whole, float reciprocal, int zero, __m512i unit[4]) {
    const __m512 magic = _mm512_set1_ps(0x1.8p23f + (float)zero), by = _mm512_set1_ps(reciprocal);
    __m512 worst = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512 value =
            whole ? _mm512_loadu_ps(x + j * LANES) : _mm512_maskz_loadu_ps(first_lanes(n - j * LANES), x + j * LANES);
        const __m512 sum = _mm512_fmadd_ps(value, by, magic);
        const __m512 apart = _mm512_fmsub_ps(value, by, _mm512_sub_ps(sum, magic));
        worst = _mm512_range_ps(worst, apart, 0x0b); /* the larger magnitude, as positive */
        unit[j] = _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_set1_epi32(0x4b400000));
    }
    return _mm512_cmp_ps_mask(worst, _mm512_set1_ps(SURE), _CMP_GT_OQ) == 0;
}

/* Packing saturates `zero` - LARGEST to `zero` + LARGEST to 0 .. 255. */
INLINE __m512i bytes_of(const __m512i unit[4]) {
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packs_epi32(unit[0], unit[1]), _mm512_packs_epi32(unit[2], unit[3]));
    return _mm512_max_epu8(_mm512_permutexvar_epi32(lanes, bytes), _mm512_set1_epi8(ZERO - LARGEST));
}

static void to_bytes(const float *x, int64_t n, float scale, uint8_t *to) {
    const float reciprocal = 1.0f / scale;
    __m512i unit[4];
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP)
        if (__builtin_expect(units(x + i, STEP, true, reciprocal, ZERO, unit), 1))
            _mm512_storeu_si512(to + i, bytes_of(unit));
        else
            divided_codes(x + i, STEP, scale, HC_PANEL_U8, i, to);
    if (i == n)
        return;
    if (units(x + i, n - i, false, reciprocal, ZERO, unit))
        _mm512_mask_storeu_epi8(to + i, ((__mmask64)1 << (n - i)) - 1, bytes_of(unit));
    else
        divided_codes(x + i, n - i, scale, HC_PANEL_U8, i, to);
}

static void to_words(const float *x, int64_t n, float scale, int16_t *to) {
    const __m512i most = _mm512_set1_epi32(LARGEST), least = _mm512_set1_epi32(-LARGEST);
    const float reciprocal = 1.0f / scale;
    __m512i unit[4];
    for (int64_t i = 0; i < n; i += STEP) {
        if (!units(x + i, n - i, false, reciprocal, 0, unit)) {
            divided_codes(x + i, n - i < STEP ? n - i : STEP, scale, HC_PANEL_S16, i, to);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m512i code = _mm512_max_epi32(_mm512_min_epi32(unit[j], most), least);
            _mm256_mask_storeu_epi16(to + i + j * LANES, first_lanes(n - i - j * LANES), _mm512_cvtepi32_epi16(code));
        }
    }
}

/* Multiplied by the scale if form is HC_CODES_ROUNDED. */
INLINE void to_floats(const float *x, int64_t n, float scale, const int form, float *to) {
    const __m512i most = _mm512_set1_epi32(LARGEST), least = _mm512_set1_epi32(-LARGEST);
    const float reciprocal = 1.0f / scale;
    __m512i unit[4];
    for (int64_t i = 0; i < n; i += STEP) {
        const bool whole = i + STEP <= n;
        if (!(whole ? units(x + i, STEP, true, reciprocal, 0, unit)
                    : units(x + i, n - i, false, reciprocal, 0, unit))) {
            divided_codes(x + i, n - i < STEP ? n - i : STEP, scale, form, i, to);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512 code = _mm512_cvtepi32_ps(_mm512_max_epi32(_mm512_min_epi32(unit[j], most), least));
            if (form == HC_CODES_ROUNDED)
                code = _mm512_mul_ps(code, _mm512_set1_ps(scale));
            if (whole)
                _mm512_storeu_ps(to + i + j * LANES, code);
            else
                _mm512_mask_storeu_ps(to + i + j * LANES, first_lanes(n - i - j * LANES), code);
        }
    }
}

void hc_codes_s8_avx512(const float *x, int64_t n, float scale, int form, void *to) {
    if (!inverts(scale))
        divided_codes(x, n, scale, form, 0, to);
    else if (form == HC_PANEL_S16)
        to_words(x, n, scale, to);
    else if (form == HC_PANEL_F32)
        to_floats(x, n, scale, HC_PANEL_F32, to);
    else if (form == HC_CODES_ROUNDED)
        to_floats(x, n, scale, HC_CODES_ROUNDED, to);
    else
        to_bytes(x, n, scale, to);
}

static void pairs(const float *a, const float *b, int64_t n, float scale, int32_t *to) {
    const __m512i most = _mm512_set1_epi16(LARGEST), least = _mm512_set1_epi16(-LARGEST);
    const float reciprocal = 1.0f / scale;
    for (int64_t i = 0; i < n; i += STEP) {
        __m512i low[4],
            high[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
        const bool sure =
            units(a + i, n - i, false, reciprocal, 0, low) && (!b || units(b + i, n - i, false, reciprocal, 0, high));
        if (!sure) {
            divided_pairs(a + i, b ? b + i : b, n - i < STEP ? n - i : STEP, scale, to + i);
            continue;
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m512i pair = _mm512_mask_blend_epi16(0xaaaaaaaa, low[j], _mm512_slli_epi32(high[j], 16));
            _mm512_mask_storeu_epi32(to + i + j * LANES, first_lanes(n - i - j * LANES),
                                     _mm512_max_epi16(_mm512_min_epi16(pair, most), least));
        }
    }
}

void hc_code_pairs_s8_avx512(const float *a, const float *b, int64_t n, float scale, int32_t *to) {
    if (!inverts(scale))
        divided_pairs(a, b, n, scale, to);
    else
        pairs(a, b, n, scale, to);
}
