/* Vectors of one float, which define the operations of base/lanes/<set>.h: avx2.h, avx512.h, neon.h. A file includes one
 * of them. Code that is written with these operations has the same result for every set: each operation is rounded once.
 */
#ifndef HC_LANES_SCALAR_H
#define HC_LANES_SCALAR_H

#include "base/convert.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 1 };
typedef float lanes;
typedef bool lanes_mask;
static inline lanes lanes_load(const float *from) { return *from; }
static inline void lanes_store(float *to, lanes a) { *to = a; }
/* The first n < LANES floats, followed by zeros. */
static inline lanes lanes_load_some(const float *from, int64_t n) { return n > 0 ? *from : 0; }
static inline void lanes_store_some(float *to, lanes a, int64_t n) {
    if (n > 0)
        *to = a;
}
static inline lanes lanes_of(float a) { return a; }
static inline lanes lanes_add(lanes a, lanes b) { return a + b; }
static inline lanes lanes_sub(lanes a, lanes b) { return a - b; }
static inline lanes lanes_mul(lanes a, lanes b) { return a * b; }
static inline lanes lanes_div(lanes a, lanes b) { return a / b; }
static inline lanes lanes_min(lanes a, lanes b) { return a < b ? a : b; } /* b if either is NaN */
static inline lanes lanes_max(lanes a, lanes b) { return a > b ? a : b; }
static inline lanes lanes_abs(lanes a) { return fabsf(a); }
static inline lanes lanes_relu(lanes a) { return a <= 0 ? 0.0f : a; } /* NaN stays */
static inline lanes_mask lanes_above(lanes a, lanes b) { return a > b; }
static inline lanes_mask lanes_both(lanes_mask a, lanes_mask b) { return a && b; }
static inline lanes lanes_select(lanes_mask mask, lanes a, lanes b) { return mask ? a : b; }
static inline lanes lanes_trunc(lanes a) { return (float)(int32_t)a; }
/* RNE of |a| < 2^22; the sign of 0 may differ between sets. */
static inline lanes lanes_nearest(lanes a) { return (a + 0x1.8p23f) - 0x1.8p23f; }
static inline lanes lanes_fma(lanes a, lanes b, lanes c) { return fmaf(a, b, c); } /* a b + c */
/* sum + a b; product and sum are exact. */
static inline lanes lanes_add_exact(lanes sum, lanes a, lanes b) { return sum + a * b; }
/* float32 of a double times a, the product in float64. */
static inline lanes lanes_scaled(double by, lanes a) { return (float)(by * (double)a); }
/* The same of 256 a + b, which is exact in float64. */
static inline lanes lanes_scaled_pair(double by, lanes a, lanes b) {
    return (float)(by * (256 * (double)a + (double)b));
}
/* Lanes 0, 2, ... and lanes 1, 3, ... of a followed by b. */
static inline lanes lanes_even(lanes a, lanes b) { return (void)b, a; }
static inline lanes lanes_odd(lanes a, lanes b) { return (void)a, b; }
/* LANES x LANES values: lane j of a[i] becomes lane i of a[j]. */
static inline void lanes_transpose(lanes *a) { (void)a; }
/* LANES columns, `from` on, of LANES rows. */
static inline void lanes_load_columns(const float *const *rows, int64_t from, lanes *w) { *w = rows[0][from]; }
/* float16, RNE, of |a| <= 65504; and back. */
static inline uint16_t lanes_to_f16(float a) { return hc_f32_to_f16(a); }
static inline float lanes_from_f16(uint16_t a) { return hc_f16_to_f32(a); }
static inline void lanes_store_bytes(uint8_t *to, lanes a) { *to = (uint8_t)(int32_t)a; }

#endif
