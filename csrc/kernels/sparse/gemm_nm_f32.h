/* Nonzero weights times a panel of activations. The sums of a row of weights stay in registers. Each nonzero is
 * broadcast and multiplied by the panel row of its position. Rows with few sums are processed together, so that the
 * processor has enough independent sums. Included after a header of base/lanes/ and the definitions of
 *
 *   SUMS             registers of sums
 *   HC_NEAR          locality of the prefetch, the last argument of __builtin_prefetch
 *   HC_OWN_PRODUCTS  if the file has its own function `products`
 */
#include "kernels/kernel.h"

#ifndef HC_OWN_PRODUCTS
/* Adds the products of `together` rows to their sums. */
static inline __attribute__((always_inline)) void products(const int registers, const int together, int64_t count,
                                                           const float *values, const uint16_t *at, const float *panel,
                                                           lanes *sum) {
    for (int64_t t = 0; t < count; t++) {
#pragma GCC unroll 4
        for (int i = 0; i < together; i++) {
            const float *x = panel + (int64_t)at[i * count + t] * registers * LANES;
            const lanes w = lanes_of(values[i * count + t]);
#pragma GCC unroll 16
            for (int r = 0; r < registers; r++)
                sum[i * registers + r] = lanes_fma(w, lanes_load(x + r * LANES), sum[i * registers + r]);
        }
    }
}
#endif

/* Processes `together` rows at a time, `registers` registers of sums each; returns the number of processed rows. */
static inline __attribute__((always_inline)) int64_t walk(const int registers, const int together, int64_t rows,
                                                          int64_t count, const float *values, const uint16_t *at,
                                                          const float *panel, const float *from, int64_t ld_from,
                                                          float *to, int64_t ld_to, const char *next, int64_t share) {
    int64_t row = 0;
    for (; row + together <= rows; row += together, to += together * ld_to, next += together * share) {
        for (int64_t byte = 0; byte < together * share; byte += 64)
            __builtin_prefetch(next + byte, 0, HC_NEAR);
        lanes sum[SUMS];
#pragma GCC unroll 16
        for (int i = 0; i < together * registers; i++)
            sum[i] = from ? lanes_load(from + i / registers * ld_from + i % registers * LANES) : lanes_of(0);
        products(registers, together, count, values, at, panel, sum);
#pragma GCC unroll 16
        for (int i = 0; i < together * registers; i++)
            lanes_store(to + i / registers * ld_to + i % registers * LANES, sum[i]);
        values += together * count;
        at += together * count;
        from = from ? from + together * ld_from : NULL;
    }
    return row;
}

#define HC_WALK(registers, together)                                                                                   \
    walk(registers, together, rows - row, count, values + row * count, at + row * count, panel,                        \
         from ? from + row * ld_from : NULL, ld_from, to + row * ld_to, ld_to, next + row * share, share)
#define HC_CASE(registers, together)                                                                                   \
    case registers:                                                                                                    \
        row += HC_WALK(registers, together);                                                                           \
        if (together > 1)                                                                                              \
            HC_WALK(registers, 1);                                                                                     \
        break;

/* Defines the kernel of an instruction set. `cases`: HC_CASE(registers, together) for each number of registers. */
#define HC_GEMM_NM_F32(isa, cases)                                                                                     \
    void hc_gemm_nm_f32_##isa(int64_t rows, int64_t count, const float *values, const uint16_t *at,                    \
                              const float *panel, int lanes, const float *from, int64_t ld_from, float *to,            \
                              int64_t ld_to, const char *next, int64_t next_bytes) {                                   \
        const int64_t share = (next_bytes + rows - 1) / rows;                                                          \
        int64_t row = 0;                                                                                               \
        switch (lanes / LANES) { cases }                                                                               \
    }
