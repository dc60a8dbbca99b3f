/* hc_maxima_scalar, hc_top_pair_scalar and hc_octav_scalar: kernels/clip/clip.h. */
#include "kernels/clip/octav.h"

#include <string.h>

void hc_maxima_scalar(int64_t groups, int64_t n, const float *x, float *maxima) {
    for (int64_t g = 0; g < groups; g++) {
        uint32_t largest = 0;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, x + g * n + i, sizeof bits);
            bits &= INT32_MAX;
            largest = bits > largest ? bits : largest;
        }
        memcpy(maxima + g, &largest, sizeof largest);
    }
}

void hc_top_pair_scalar(int64_t groups, int64_t n, int64_t place, const float *x, float *lower, float *upper) {
    for (int64_t g = 0; g < groups; g++) {
        float top[HC_TOP] = {0};
        for (int64_t i = 0; i < n; i++) {
            float value = fabsf(x[g * n + i]);
            for (int64_t j = 0; j < place && value > top[place - 1]; j++) {
                const float above = top[j] > value ? top[j] : value;
                value = top[j] > value ? value : top[j];
                top[j] = above;
            }
        }
        lower[g] = top[place - 1];
        upper[g] = top[place > 1 ? place - 2 : 0];
    }
}

void hc_octav_scalar(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                     double *scratch, float *thresholds) {
    (void)scratch;
    hc_octav_each(groups, n, x, is_double, positive, inside, thresholds);
}
