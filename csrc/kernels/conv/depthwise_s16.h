/* Shared by the kernels of one filter per channel, of integers. AT_ONCE outputs share the loads of filters. Included after
 * AT_ONCE, LANES and `answers`. */
#define HC_DEPTHWISE_S16(isa)                                                                                          \
    void hc_depthwise_s16_##isa(int64_t pairs, const int64_t *tap, int64_t step, const int16_t *x,                     \
                                const int16_t *panel, int64_t ld, int64_t n, int64_t count, int32_t *c, int64_t ldc) { \
        int64_t j = 0;                                                                                                 \
        for (int64_t next = 0; count >= LANES && next < count; next += LANES) {                                        \
            j = hc_min(next, count - LANES); /* the last ones may repeat some */                                       \
            int64_t i = 0;                                                                                             \
            for (; i + AT_ONCE <= n; i += AT_ONCE)                                                                     \
                answers(AT_ONCE, pairs, tap, step, x + i * step + j, panel + 2 * j, ld, c + i * ldc + j, ldc);         \
            for (; i < n; i++)                                                                                         \
                answers(1, pairs, tap, step, x + i * step + j, panel + 2 * j, ld, c + i * ldc + j, ldc);               \
        }                                                                                                              \
        for (; count < LANES && j < count; j++)                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                uint32_t sum = 0;                                                                                      \
                for (int64_t t = 0; t < 2 * pairs; t++)                                                                \
                    sum += (uint32_t)(x[i * step + tap[t] + j] * panel[(t / 2 * ld + j) * 2 + t % 2]);                 \
                c[i * ldc + j] = (int32_t)sum;                                                                         \
            }                                                                                                          \
    }
