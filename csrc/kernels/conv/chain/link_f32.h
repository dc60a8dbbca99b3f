/* The last steps of results of a convolution in a chain, LANES at a time; kernels/conv/conv.h. Included after a header of
 * base/lanes. */
#include "kernels/kernel.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    lanes most, apart; /* magnitudes; 0, or NaN if a value was not finite */
} seen;

INLINE lanes finished(lanes y, const hc_link_steps *steps, lanes low, lanes high, seen *all) {
    if (steps->clamps) { /* NaN stays */
        y = lanes_select(lanes_above(y, high), high, y);
        y = lanes_select(lanes_above(low, y), low, y);
    }
    all->most = lanes_max(lanes_abs(y), all->most);
    all->apart = lanes_fma(y, lanes_of(0), all->apart);
    return y;
}

INLINE uint32_t link(int64_t rows, int64_t columns, float *y, int64_t ld, const hc_link_steps *steps, const float *bias,
                     const float *plus, int64_t ldp, uint32_t largest) {
    const lanes low = lanes_of(steps->low), high = lanes_of(steps->high);
    seen all = {lanes_of(0), lanes_of(0)};
    for (int64_t i = 0; i < rows; i++, y += ld) {
        int64_t j = 0;
        for (; j + LANES <= columns; j += LANES) {
            lanes value = lanes_load(y + j);
            if (bias)
                value = lanes_add(value, lanes_load(bias + j));
            if (plus)
                value = lanes_add(value, lanes_load(plus + i * ldp + j));
            lanes_store(y + j, finished(value, steps, low, high, &all));
        }
        const int64_t n = columns - j;
        if (n == 0)
            continue;
        lanes value = lanes_load_some(y + j, n);
        if (bias)
            value = lanes_add(value, lanes_load_some(bias + j, n));
        if (plus)
            value = lanes_add(value, lanes_load_some(plus + i * ldp + j, n));
        seen last = {lanes_of(0), lanes_of(0)};
        lanes_store_some(y + j, finished(value, steps, low, high, &last), n);
        float some[LANES] = {0};
        memcpy(some, y + j, (size_t)n * sizeof *some);
        value = lanes_load(some); /* the other lanes may be clamped zeros */
        all.most = lanes_max(lanes_abs(value), all.most);
        all.apart = lanes_fma(value, lanes_of(0), all.apart);
    }
    float most[LANES], apart[LANES];
    lanes_store(most, all.most);
    lanes_store(apart, all.apart);
    for (int i = 0; i < LANES; i++) {
        uint32_t bits;
        memcpy(&bits, most + i, sizeof bits);
        largest = bits > largest ? bits : largest;
        largest = apart[i] == 0 ? largest : HC_LINK_NOT_FINITE;
    }
    return largest;
}

#define HC_LINK_F32(isa)                                                                                               \
    uint32_t hc_link_f32_##isa(int64_t rows, int64_t columns, float *y, int64_t ld, const hc_link_steps *steps,        \
                               const float *bias, const float *plus, int64_t ldp, uint32_t largest) {                  \
        if (bias)                                                                                                      \
            return plus ? link(rows, columns, y, ld, steps, bias, plus, ldp, largest)                                  \
                        : link(rows, columns, y, ld, steps, bias, NULL, 0, largest);                                   \
        return plus ? link(rows, columns, y, ld, steps, NULL, plus, ldp, largest)                                      \
                    : link(rows, columns, y, ld, steps, NULL, NULL, 0, largest);                                       \
    }
