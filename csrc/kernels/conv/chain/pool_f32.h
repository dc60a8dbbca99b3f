/* The largest values of a window, 4 registers of channels at a time; kernels/conv/conv.h. Included after a header of
 * base/lanes. */
#include "kernels/kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum { REGISTERS = 4 };

INLINE lanes larger(lanes most, lanes value) { return lanes_select(lanes_above(value, most), value, most); }

#define HC_POOL_F32(isa)                                                                                               \
    void hc_pool_f32_##isa(int64_t rows, int64_t columns, const float *x, int64_t row_step, int64_t depth,             \
                           float *to) {                                                                                \
        int64_t c = 0;                                                                                                 \
        for (; c + REGISTERS * LANES <= depth; c += REGISTERS * LANES) {                                               \
            lanes most[REGISTERS];                                                                                     \
            for (int i = 0; i < REGISTERS; i++)                                                                        \
                most[i] = lanes_load(x + c + i * LANES);                                                               \
            for (int64_t h = 0; h < rows; h++)                                                                         \
                for (int64_t w = 0; w < columns; w++)                                                                  \
                    for (int i = 0; i < REGISTERS; i++)                                                                \
                        most[i] = larger(most[i], lanes_load(x + h * row_step + w * depth + c + i * LANES));           \
            for (int i = 0; i < REGISTERS; i++)                                                                        \
                lanes_store(to + c + i * LANES, most[i]);                                                              \
        }                                                                                                              \
        for (int64_t n; c < depth; c += n) {                                                                           \
            n = depth - c < LANES ? depth - c : LANES;                                                                 \
            lanes most = lanes_load_some(x + c, n);                                                                    \
            for (int64_t h = 0; h < rows; h++)                                                                         \
                for (int64_t w = 0; w < columns; w++)                                                                  \
                    most = larger(most, lanes_load_some(x + h * row_step + w * depth + c, n));                         \
            lanes_store_some(to + c, most, n);                                                                         \
        }                                                                                                              \
    }
