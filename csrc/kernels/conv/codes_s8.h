/* Shared by the kernels of codes: the definition of one code, and the forms in which codes are written. */
#ifndef HC_CODES_S8_H
#define HC_CODES_S8_H

#include "kernels/kernel.h"

#include <float.h>

enum { LARGEST = 127, ZERO = 128 };

/* Whether 1 / scale is a normal number, so that x * (1 / scale) is within 2^-17 of a quotient of at most 128. */
static inline bool inverts(float scale) { return scale >= FLT_MIN && scale <= 0x1p126f; }

/* A product with the reciprocal that is at most this far from an integer rounds like the quotient. */
static const float SURE = 0.5f - 0x1p-16f;

static inline void divided_codes(const float *x, int64_t n, float scale, int form, int64_t at, void *to) {
    for (int64_t i = 0; i < n; i++) {
        double quotient = scale > 0 ? (double)x[i] / (double)scale : 0;
        quotient = quotient < LARGEST ? quotient : LARGEST;
        quotient = quotient > -LARGEST ? quotient : -LARGEST;
        const int32_t code = (int32_t)((quotient + 0x1.8p52) - 0x1.8p52); /* to nearest, ties to even */
        if (form == HC_PANEL_S16)
            ((int16_t *)to)[at + i] = (int16_t)code;
        else if (form == HC_PANEL_F32)
            ((float *)to)[at + i] = (float)code;
        else if (form == HC_CODES_ROUNDED)
            ((float *)to)[at + i] = (float)code * scale;
        else
            ((uint8_t *)to)[at + i] = (uint8_t)(code + ZERO);
    }
}

/* The same for values i < n of code_pairs_s8. */
static inline void divided_pairs(const float *a, const float *b, int64_t n, float scale, int32_t *to) {
    for (int64_t i = 0; i < n; i++) {
        int16_t low = 0, high = 0;
        divided_codes(a + i, 1, scale, HC_PANEL_S16, 0, &low);
        if (b)
            divided_codes(b + i, 1, scale, HC_PANEL_S16, 0, &high);
        to[i] = (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
    }
}

#endif
