/* One float as a vector: the scalar form of formats/simd/lanes.h. */
#ifndef HC_LANES_H
#define HC_LANES_H

#include "base/convert.h"

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
static inline lanes lanes_min(lanes a, lanes b) { return a < b ? a : b; } /* b if either is NaN */
static inline lanes lanes_max(lanes a, lanes b) { return a > b ? a : b; }
static inline lanes lanes_abs(lanes a) { return fabsf(a); }
static inline lanes_mask lanes_above(lanes a, lanes b) { return a > b; }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a && b; }
static inline lanes lanes_pick(lanes_mask mask, lanes a, lanes b) { return mask ? a : b; }
static inline lanes lanes_trunc(lanes a) { return (float)(int32_t)a; }
/* RNE of |a| < 2^22; the sign of 0 may differ between sets. */
static inline lanes lanes_nearest(lanes a) { return (a + 0x1.8p23f) - 0x1.8p23f; }
/* sum + a b; product and sum are exact. */
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return sum + a * b; }
/* LANES x LANES values: lane j of a[i] becomes lane i of a[j]. */
static inline void lanes_turn(lanes *a) { (void)a; }
/* float16, RNE, of |a| <= 65504; and back. */
static inline uint16_t lanes_to_f16(float a) { return hc_f32_to_f16(a); }
static inline float lanes_from_f16(uint16_t a) { return hc_f16_to_f32(a); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) { *to = (uint8_t)(int32_t)a; }

#endif
