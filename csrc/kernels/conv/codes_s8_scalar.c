/* Definition of 8-bit codes and largest magnitudes; kernels/conv/conv.h. */
#include "kernels/conv/codes_s8.h"

#include "base/convert.h"

uint32_t hc_largest_f32_scalar(const float *x, int64_t n, uint32_t so_far) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = hc_f32_bits(x[i]) & 0x7fffffff;
        so_far = bits > so_far ? bits : so_far;
    }
    return so_far;
}

void hc_codes_s8_scalar(const float *x, int64_t n, float scale, int form, void *to) {
    divided_codes(x, n, scale, form, 0, to);
}

void hc_code_pairs_s8_scalar(const float *a, const float *b, int64_t n, float scale, int32_t *to) {
    divided_pairs(a, b, n, scale, to);
}
