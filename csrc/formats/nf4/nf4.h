/* Name of the option of NF4, and its levels. */
#ifndef HC_NF4_H
#define HC_NF4_H

#include "formats/format.h"
#include "formats/levels.h"

enum { NF4_LEVELS = 16, NF4_ZERO = 7, NF4_BLOCK = 256 }; /* NF4_BLOCK groups share a second scale */

/* Appendix E, each as float32. */
static const float NF4_LEVEL[NF4_LEVELS] = {-1.0f,
                                            -0.6961928009986877f,
                                            -0.5250730514526367f,
                                            -0.39491748809814453f,
                                            -0.28444138169288635f,
                                            -0.18477343022823334f,
                                            -0.09105003625154495f,
                                            0.0f,
                                            0.07958029955625534f,
                                            0.16093020141124725f,
                                            0.24611230194568634f,
                                            0.33791524171829224f,
                                            0.44070982933044434f,
                                            0.5626170039176941f,
                                            0.7229568362236023f,
                                            1.0f};

static inline bool nf4_is_double(const hc_format *format) { return format->option[0] != 0; }

/* The value of a code. */
static inline float nf4_value(const float *levels, uint32_t code, float scale) {
    return hc_saturated_product(levels[code], scale) + 0.0f;
}

/* max(0, float32(k t + m)): a doubly quantized scale. */
static inline float nf4_double_scale(int8_t code, float t, float mean) {
    const float scale = fmaf((float)code, t, mean);
    return scale > FLT_MAX ? FLT_MAX : scale > 0 ? scale : 0.0f;
}

#endif
