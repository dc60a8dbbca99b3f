/* Limits of the machine: kernels/peak/peak.h. */
#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

/* peak_fma in plain C. */
int64_t hc_peak_fma_scalar(int64_t steps, void *state) {
    float *const chain = state;
    float x[HC_PEAK_CHAINS * 4];
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        x[i] = chain[i];
    for (int64_t step = 0; step < steps; step++)
        for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
            x[i] = fmaf(x[i], -0.5f, 1.0f);
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        chain[i] = x[i];
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 2 : 0;
}

/* peak_dot in plain C. */
int64_t hc_peak_dot_scalar(int64_t steps, void *state) {
    uint32_t *const chain = state;
    volatile uint8_t a[4] = {1, 2, 1, 2}; /* volatile: otherwise the loop becomes one multiplication */
    const int32_t b[4] = {5, -6, 5, -6};
    uint32_t x[HC_PEAK_CHAINS * 4];
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        x[i] = chain[i];
    for (int64_t step = 0; step < steps; step++) {
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
                x[i] += (uint32_t)(a[k] * b[k]);
    }
    for (int i = 0; i < HC_PEAK_CHAINS * 4; i++)
        chain[i] = x[i];
    return steps > 0 ? HC_PEAK_CHAINS * 4 * 8 : 0;
}

/* peak_shuffle in plain C, one byte per instruction. */
int64_t hc_peak_shuffle_scalar(int64_t steps, void *state) {
    uint8_t *const chain = state;
    for (int64_t step = 0; step < steps; step++)
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            uint8_t x[16];
            memcpy(x, chain + 16 * i, sizeof x);
            for (int place = 0; place < 16; place++)
                chain[16 * i + place] = x[(7 * place + 3) % 16];
        }
    return steps > 0 ? HC_PEAK_CHAINS * 16 : 0;
}

/* peak_read in plain C. */
uint64_t hc_peak_read_scalar(const void *bytes, int64_t size, int64_t ahead) {
    const uint64_t *word = bytes, *const end = word + size / 8;
    uint64_t sum = 0;
    for (; word < end; word += 8) {
        if (ahead)
            __builtin_prefetch((const char *)word + ahead);
        sum += (word[0] + word[1]) + (word[2] + word[3]) + ((word[4] + word[5]) + (word[6] + word[7]));
    }
    return sum;
}
