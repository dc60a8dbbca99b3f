/* gemm_flat: neighbouring outputs in lanes, nothing packed. STEPS rows of w by two registers stay in registers while all
 * rows of x pass; sums wait in `out`, in whole registers, since a masked store cannot be read back at once. Included
 * after a header of base/lanes/ and STEPS. */
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats of a line; rows of w to the prefetched ones; values of w from which one row of x prefetches. */
enum { LINE = 16, AHEAD = 2 * STEPS, FAR = 1 << 20 };

/* One row of x: its values stay in registers. */
INLINE void one_row(int steps, int64_t n, const float *w, int64_t ldw, const float *x, float *out, bool accumulate,
                    bool prefetch) {
    lanes values[STEPS];
#pragma GCC unroll 8
    for (int s = 0; s < steps; s++)
        values[s] = lanes_of(x[s]);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        for (int s = 0; prefetch && j % LINE == 0 && s < STEPS; s++)
            __builtin_prefetch(w + (AHEAD + s) * ldw + j, 0, 2);
        lanes sum = accumulate ? lanes_load(out + j) : lanes_of(0);
#pragma GCC unroll 8
        for (int s = 0; s < steps; s++)
            sum = lanes_fma(values[s], lanes_load(w + s * ldw + j), sum);
        lanes_store(out + j, sum);
    }
    if (j < n) {
        lanes sum = accumulate ? lanes_load(out + j) : lanes_of(0);
#pragma GCC unroll 8
        for (int s = 0; s < steps; s++)
            sum = lanes_fma(values[s], lanes_load_some(w + s * ldw + j, n - j), sum);
        lanes_store(out + j, sum);
    }
}

/* Registers of columns, of which the last has `last` columns. */
INLINE void block(int steps, int registers, int64_t last, const float *w, int64_t ldw, int64_t m, const float *x,
                  int64_t ldx, float *out, int64_t ldo, bool accumulate, bool prefetch) {
    lanes of_w[STEPS][2];
    for (int s = 0; prefetch && s < STEPS; s++)
#pragma GCC unroll 4
        for (int c = 0; c < LANES * registers; c += LINE)
            __builtin_prefetch(w + (AHEAD + s) * ldw + c, 0, 2);
#pragma GCC unroll 8
    for (int s = 0; s < steps; s++)
#pragma GCC unroll 2
        for (int r = 0; r < registers; r++)
            of_w[s][r] = last == LANES || r < registers - 1 ? lanes_load(w + s * ldw + LANES * r)
                                                            : lanes_load_some(w + s * ldw + LANES * r, last);
    for (int64_t i = 0; i < m; i++, x += ldx, out += ldo) {
        lanes sum[2];
#pragma GCC unroll 2
        for (int r = 0; r < registers; r++)
            sum[r] = accumulate ? lanes_load(out + LANES * r) : lanes_of(0);
#pragma GCC unroll 8
        for (int s = 0; s < steps; s++) {
            const lanes value = lanes_of(x[s]);
#pragma GCC unroll 2
            for (int r = 0; r < registers; r++)
                sum[r] = lanes_fma(value, of_w[s][r], sum[r]);
        }
#pragma GCC unroll 2
        for (int r = 0; r < registers; r++)
            lanes_store(out + LANES * r, sum[r]);
    }
}

INLINE void pass(int steps, int64_t n, const float *w, int64_t ldw, int64_t m, const float *x, int64_t ldx, float *out,
                 int64_t ldo, bool accumulate, bool prefetch) {
    if (m == 1) {
        one_row(steps, n, w, ldw, x, out, accumulate, prefetch);
        return;
    }
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES)
        block(steps, 2, LANES, w + j, ldw, m, x, ldx, out + j, ldo, accumulate, prefetch);
    if (n - j > LANES)
        block(steps, 2, n - j - LANES, w + j, ldw, m, x, ldx, out + j, ldo, accumulate, prefetch);
    else if (n - j > 0)
        block(steps, 1, n - j, w + j, ldw, m, x, ldx, out + j, ldo, accumulate, prefetch);
}

/* Fewer rows of w than STEPS. */
INLINE void some(int steps, int64_t n, const float *w, int64_t ldw, int64_t m, const float *x, int64_t ldx, float *out,
                 int64_t ldo, bool accumulate) {
    if (steps == 4)
        pass(4, n, w, ldw, m, x, ldx, out, ldo, accumulate, false);
    else if (steps == 2)
        pass(2, n, w, ldw, m, x, ldx, out, ldo, accumulate, false);
    else
        pass(1, n, w, ldw, m, x, ldx, out, ldo, accumulate, false);
}

#define HC_GEMM_FLAT(isa)                                                                                              \
    void hc_gemm_flat_##isa(int64_t k, int64_t n, const float *w, int64_t ldw, int64_t m, const float *x, int64_t ldx, \
                            float *out, int64_t ldo, bool accumulate) {                                                \
        const bool far = k * n >= FAR;                                                                                 \
        for (; k >= STEPS; k -= STEPS, w += STEPS * ldw, x += STEPS, accumulate = true)                                \
            pass(STEPS, n, w, ldw, m, x, ldx, out, ldo, accumulate, k >= AHEAD + STEPS && (m > 1 || far));             \
        for (int steps = STEPS / 2; steps > 0; steps /= 2)                                                             \
            for (; k >= steps; k -= steps, w += steps * ldw, x += steps, accumulate = true)                            \
                some(steps, n, w, ldw, m, x, ldx, out, ldo, accumulate);                                               \
    }
