/* Nonzero codes times few vectors, 4 columns at a time: a lookup moves the next codes to their columns, and the sums of
 * the other columns are not changed. */
#include "kernels/sparse/arm/kept_arm.h"

#include <math.h>

typedef struct {
    float32x4_t codes[16];
    uint32x4_t columns[16];
} hc_placed;

/* 64 columns. */
static inline const float *place_word(uint64_t mask, const float *codes, const float *end, hc_placed *out) {
    for (int i = 0; i < 16; i++) {
        const unsigned bits = (unsigned)(mask >> 4 * i & 15);
        out->codes[i] = vreinterpretq_f32_u8(placed(next_units(codes, end - codes), bits));
        out->columns[i] = columns_of(bits);
        codes += 0x4332322132212110u >> 4 * bits & 15; /* the number of bits; cnt would wait for a vector register */
    }
    return codes;
}

static inline __attribute__((always_inline)) void add_word(const hc_placed *of, const float *x, float *sums) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const float32x4_t sum = vld1q_f32(sums + 4 * i), more = vfmaq_f32(sum, vld1q_f32(x + 4 * i), of->codes[i]);
        vst1q_f32(sums + 4 * i, vbslq_f32(of->columns[i], more, sum));
    }
}

const float *hc_gemv_nm_neon(int64_t words, const uint64_t *masks, const float *codes, const float *end, const float *x,
                             int64_t ldx, int n_vectors, float *sums) {
    const int64_t whole = n_vectors == 1 ? hc_max(words - 1, 0) : words; /* otherwise x is read only at the nonzeros */
    for (int64_t word = 0; word < whole; word++) {
        hc_placed of;
        codes = place_word(masks[word], codes, end, &of);
        for (int v = 0; v < n_vectors; v++)
            add_word(&of, x + v * ldx + word * 64, sums + v * 64);
    }
    if (whole < words)
        for (uint64_t left = masks[whole]; left; left &= left - 1) {
            const int k = __builtin_ctzll(left);
            sums[k] = fmaf(x[whole * 64 + k], *codes++, sums[k]);
        }
    return codes;
}
