/* Lanes of float32 in NEON, for headers with kernels that differ only in their registers. Included once per file. */
#include <arm_neon.h>

enum { LANES = 4 };

#define HC_V float32x4_t
#define HC_ZERO() vdupq_n_f32(0)
#define HC_LOAD(at) vld1q_f32(at)
#define HC_STORE(at, value) vst1q_f32(at, value)
#define HC_SET(value) vdupq_n_f32(value)
#define HC_ADD(a, b) vaddq_f32(a, b)
#define HC_SUB(a, b) vsubq_f32(a, b)
#define HC_MUL(a, b) vmulq_f32(a, b)
#define HC_FMA(a, b, c) vfmaq_f32(c, a, b)
#define HC_RELU(a) vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vclezq_f32(a)))
