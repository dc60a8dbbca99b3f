/* One float in the place of several: the scalar form of formats/simd/lanes.h. */
#ifndef HC_LANES_H
#define HC_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 1 };
typedef float lanes;
typedef bool lanes_mask;
static inline lanes lanes_load(const float *from) { return *from; }
static inline void lanes_store(float *to, lanes a) { *to = a; }
static inline lanes lanes_of(float a) { return a; }
static inline lanes lanes_add(lanes a, lanes b) { return a + b; }
static inline lanes lanes_sub(lanes a, lanes b) { return a - b; }
static inline lanes lanes_mul(lanes a, lanes b) { return a * b; }
static inline lanes lanes_div(lanes a, lanes b) { return a / b; }
static inline lanes lanes_min(lanes a, lanes b) { return a < b ? a : b; } /* b where either is NaN */
static inline lanes lanes_max(lanes a, lanes b) { return a > b ? a : b; }
static inline lanes lanes_abs(lanes a) { return fabsf(a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return a > b; }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a && b; }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return mask ? a : b; }
static inline lanes lanes_trunc(lanes a) { return (float)(int32_t)a; }
static inline void lanes_store_bytes(uint8_t *to, lanes a) { *to = (uint8_t)(int32_t)a; }

/* 4 x 4 values: row i at from + i * stride becomes column i of what is written. */
static inline void lanes_transpose4(const float *from, int64_t stride, float *to, int64_t to_stride) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            to[j * to_stride + i] = from[i * stride + j];
}

#endif
