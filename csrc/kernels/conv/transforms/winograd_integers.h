/* Definitions for winograd.h with integers, F(m, 3), n 4 or 6: rows of G are FACTOR / 2 or FACTOR / 24 times (1, p,
 * p^2), that of infinity is (0, 0, 1). The factors belong to the sums, and outputs are divided by 2 or 24 per
 * dimension, modulo 2^32: by 3 by its inverse, then by a shift. Included before each inclusion of it, after HC_T, HC_V
 * and HC_SIGNED, whose shift keeps the sign. */
#ifndef HC_WINOGRAD_INTEGERS
#define HC_WINOGRAD_INTEGERS
#include <string.h>
static const int32_t FACTOR[2][6] = {{2, 1, 1, 2}, {6, -4, -4, 1, 1, 24}};
static const uint32_t THIRD = 0xaaaaaaab;
#endif
#define HC_LOAD(at) HC_NAME(load)(at)
#define HC_LOAD_SOME(at, some) HC_LOAD(((void)(some), (at)))
#define HC_STORE(at, value) HC_NAME(store)(at, value)
#define HC_SET(value) ((HC_V){0} + (HC_T)(value))
#define HC_ADD(a, b) ((a) + (b))
#define HC_SUB(a, b) ((a) - (b))
#define HC_MUL(a, b) ((a) * (b))
#define HC_FMA(a, b, c) ((a) * (b) + (c))
#define HC_RELU(a) (a)
#define HC_FIRST(n) 1
#define HC_G(n, pair) POWER[pair]
#define HC_FACTOR(n, i, x) ((x) * HC_SET(FACTOR[(n) / 2 - 2][i]))
#define HC_WHOLE(n, dims, x)                                                                                           \
    (HC_V)((HC_SIGNED)((x) * HC_SET((n) == 4      ? 1                                                                  \
                                    : (dims) == 2 ? THIRD * THIRD                                                      \
                                                  : THIRD)) >>                                                         \
           ((n) == 4 ? (dims) : 3 * (dims)))

__attribute__((always_inline)) static inline HC_V HC_NAME(load)(const HC_T *at) {
    HC_V value;
    memcpy(&value, at, sizeof value);
    return value;
}
__attribute__((always_inline)) static inline void HC_NAME(store)(HC_T *at, HC_V value) {
    memcpy(at, &value, sizeof value);
}
#include "kernels/conv/transforms/winograd.h"
#undef HC_SIGNED
