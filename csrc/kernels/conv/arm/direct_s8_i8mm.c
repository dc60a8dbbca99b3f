/* A tile of an integer convolution by usdot: 12 windows of uint8 by 2 registers of filters: hc_direct_s8_i8mm. */
#include "kernels/kernel.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { MR = 12, NR = 8 };
typedef uint8_t VALUE;
typedef int32x4_t vector;

INLINE vector dot(vector sum, vector x_u8, vector b_s8) {
    return vusdotq_s32(sum, vreinterpretq_u8_s32(x_u8), vreinterpretq_s8_s32(b_s8));
}
INLINE vector start(const int32_t *init, int half) { return vld1q_s32(init + 4 * half); }
INLINE vector load_b(const int8_t *panel, int half) { return vreinterpretq_s32_s8(vld1q_s8(panel + 16 * half)); }
INLINE vector broadcast(const VALUE *x) {
    int32_t values;
    __builtin_memcpy(&values, x, sizeof values);
    return vdupq_n_s32(values);
}
INLINE void put(int32_t *c, const int32_t *init, vector low, vector high) {
    (void)init;
    vst1q_s32(c, low);
    vst1q_s32(c + 4, high);
}
INLINE void put_half(int32_t *c, const int32_t *init, vector sum) {
    (void)init;
    vst1q_s32(c, sum);
}

#include "kernels/conv/direct_s8.h"

HC_DIRECT_S8_HALVES(i8mm, HC_CASES_12)
