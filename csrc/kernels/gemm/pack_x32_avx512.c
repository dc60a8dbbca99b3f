/* Transposing 16 rows by 16 units in registers: quarters of four rows are gathered by masked broadcasts from memory
 * (loads, no shuffles), then two rounds of interleaving. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

/* Four units of rows i, i + 4, i + 8, i + 12, in that order; at[r] is the address of row r. */
static inline __m512i quarters(const char *const *at, int i, int64_t skip) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(at[i] + skip)));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128((const __m128i *)(at[i + 4] + skip)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128((const __m128i *)(at[i + 8] + skip)));
    return _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128((const __m128i *)(at[i + 12] + skip)));
}

/* 16 rows, 4 units, of which r[i * step] are the quarters of rows i -> 4 registers of one unit of rows 0 .. 15. */
static inline void four_units(const __m512i *r, int step, __m512i flips, __m512i unit[4]) {
    const __m512i r0 = r[0], r1 = r[step], r2 = r[2 * step], r3 = r[3 * step];
    /* lane q of r_i is row 4q + i: the interleavings below move rows 4q .. 4q + 3 of one unit into lane q */
    const __m512i low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
    const __m512i low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
    unit[0] = _mm512_xor_si512(flips, _mm512_unpacklo_epi64(low01, low23));
    unit[1] = _mm512_xor_si512(flips, _mm512_unpackhi_epi64(low01, low23));
    unit[2] = _mm512_xor_si512(flips, _mm512_unpacklo_epi64(high01, high23));
    unit[3] = _mm512_xor_si512(flips, _mm512_unpackhi_epi64(high01, high23));
}

void hc_pack_x32_avx512(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                        uint32_t flip) {
    const __m512i flips = _mm512_set1_epi32((int32_t)flip);
    /* Missing rows repeat the first row, and a mask excludes them from the panel. */
    const __mmask16 mask = (__mmask16)((1u << n_rows) - 1);
    const char *at[16];
    char *to = panel;
    int64_t u = 0;
    for (int i = 0; i < 16; i++)
        at[i] = (const char *)rows + (i < n_rows ? i : 0) * row_bytes;
    /* Whole cache lines of four rows at a time: if rows are a power of 2 apart, L1 has no space for more. */
    for (; n_rows == 16 && u + 16 <= units; u += 16) {
        __m512i r[16], unit[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = quarters(at, i / 4, u * 4 + i % 4 * 16);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            four_units(r + q, 4, flips, unit);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                _mm512_storeu_si512(to + (u + 4 * q + i) * lanes * 4, unit[i]);
        }
    }
    /* The last four may repeat some. */
    for (int64_t next = u; units >= 4 && next < units; next += 4) {
        u = hc_min(next, units - 4);
        __m512i r[4], unit[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            r[i] = quarters(at, i, u * 4);
        four_units(r, 1, flips, unit);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            _mm512_mask_storeu_epi32(to + (u + i) * lanes * 4, mask, unit[i]);
    }
    for (; units < 4 && u < units; u++)
        for (int i = 0; i < n_rows; i++) {
            uint32_t unit;
            memcpy(&unit, at[i] + u * 4, sizeof unit);
            unit ^= flip;
            memcpy(to + (u * lanes + i) * 4, &unit, sizeof unit);
        }
}
