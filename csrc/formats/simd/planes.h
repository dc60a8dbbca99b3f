/* Levels of codes by planes of bytes (formats/planes.h). The SIMD set provides PLANE_CODES and plane_levels. */
#ifndef HC_SIMD_PLANES_H
#define HC_SIMD_PLANES_H

#include "formats/simd/simd.h"

/* Levels of n codes by loads, two to a store. */
static inline __attribute__((always_inline)) void load_levels(const uint8_t *codes, int64_t n, const float *level,
                                                              float *to) {
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, codes + i, sizeof word);
#pragma GCC unroll 4
        for (int64_t j = 0; j < 8; j += 2, word >>= 16) {
            const uint64_t pair =
                (uint64_t)hc_f32_bits(level[word & 255]) | (uint64_t)hc_f32_bits(level[word >> 8 & 255]) << 32;
            memcpy(to + i + j, &pair, sizeof pair);
        }
    }
}

/* In each step PLANE_CODES * times codes are looked up by shuffles, and the next `loaded` codes are loaded from the
 * table meanwhile: the two use different units of a core. */
static inline __attribute__((always_inline)) int64_t mixed_levels(const hc_planes *planes, int blocks, int n_planes,
                                                                  int times, int64_t loaded, const uint8_t *codes,
                                                                  int64_t n, const float *level, float *to) {
    const int64_t step = times * PLANE_CODES + loaded;
    int64_t i = 0;
    for (; i + step <= n; i += step) {
#pragma GCC unroll 2
        for (int64_t j = 0; j < times * PLANE_CODES; j += PLANE_CODES)
            if (__builtin_expect(!plane_levels(planes, blocks, n_planes, codes + i + j, to + i + j), 0))
                load_levels(codes + i + j, PLANE_CODES, level, to + i + j);
        load_levels(codes + i + step - loaded, loaded, level, to + i + step - loaded);
    }
    return i;
}

#define HC_PLANES(name, blocks, n_planes, times, loaded)                                                               \
    static __attribute__((noinline)) int64_t name(const hc_planes *planes, const uint8_t *codes, int64_t n,            \
                                                  const float *level, float *to) {                                     \
        return mixed_levels(planes, blocks, n_planes, times, loaded, codes, n, level, to);                             \
    }
HC_PLANES(levels_1_2, 1, 2, 1, 0)
HC_PLANES(levels_1_4, 1, 4, 1, 0)
HC_PLANES(levels_2_2, 2, 2, 1, 0)
HC_PLANES(levels_2_4, 2, 4, 1, 0)
HC_PLANES(levels_4_2, 4, 2, 1, 0)
HC_PLANES(levels_4_4, 4, 4, 1, 0)
HC_PLANES(levels_8_2, 8, 2, 2, 32)
HC_PLANES(levels_8_4, 8, 4, 1, 32)

/* to[i] = level[codes[i]], for planes with blocks. */
static inline void simd_planes(const hc_planes *planes, const uint8_t *codes, int64_t n, const float *level,
                               float *to) {
    int64_t i = planes->blocks == 1   ? (planes->n_planes == 2 ? levels_1_2 : levels_1_4)(planes, codes, n, level, to)
                : planes->blocks == 2 ? (planes->n_planes == 2 ? levels_2_2 : levels_2_4)(planes, codes, n, level, to)
                : planes->blocks == 4 ? (planes->n_planes == 2 ? levels_4_2 : levels_4_4)(planes, codes, n, level, to)
                                      : (planes->n_planes == 2 ? levels_8_2 : levels_8_4)(planes, codes, n, level, to);
    for (; i < n; i++)
        to[i] = level[codes[i]];
}

#endif
