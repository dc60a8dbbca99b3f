/* Limits of the machine, for any registers of x86. Included after a header of base/lanes/ and the definitions of
 *
 *   vector                                  a register of integers
 *   spread, quarter                         128 bits in all quarters of a register; its first 128 bits
 *   every                                   an int32 in all lanes
 *   add_words, multiply_add, shuffle        on int32; pairs of products of int16; bytes within each 128 bits
 *   add_doubles, line, sum_of               on int64; the sum of 64 bytes of memory; the sum of a register
 */
#include "kernels/kernel.h"

/* peak_fma on LANES lanes. */
static inline int64_t fma_chains(int64_t steps, float *chain) {
    const lanes half = lanes_of(-0.5f), one = lanes_of(1.0f);
    lanes x[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x[i] = (lanes)spread(chain + 4 * i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++)
            x[i] = lanes_fma(x[i], half, one);
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128((__m128i *)(void *)(chain + 4 * i), quarter((vector)x[i]));
    return steps > 0 ? HC_PEAK_CHAINS * LANES * 2 : 0;
}

/* peak_dot on LANES lanes without VNNI. Exact for all bytes, so with 16-bit operands: vpmaddubsw would saturate. */
static inline int64_t dot_chains(int64_t steps, __m128i *chain) {
    vector a_i16 = every(2 << 16 | 1), x_i32[HC_PEAK_CHAINS];
    const vector b_i16 = every(-6 * 65536 + 5);
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_i32[i] = spread(chain + i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 2
        for (int twice = 0; twice < 2; twice++) {
#pragma GCC unroll 12
            for (int i = 0; i < HC_PEAK_CHAINS; i++) {
                HC_PEAK_OPAQUE(a_i16);
                x_i32[i] = add_words(x_i32[i], multiply_add(a_i16, b_i16));
                HC_PEAK_OPAQUE(x_i32[i]);
            }
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, quarter(x_i32[i]));
    return steps > 0 ? HC_PEAK_CHAINS * LANES * 8 : 0;
}

/* peak_shuffle, a register per instruction. */
static inline int64_t shuffle_chains(int64_t steps, __m128i *chain) {
    const __m128i one = _mm_setr_epi8(3, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12);
    const vector index_u8 = spread(&one);
    vector x_u8[HC_PEAK_CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        x_u8[i] = spread(chain + i);
    for (int64_t step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < HC_PEAK_CHAINS; i++) {
            x_u8[i] = shuffle(x_u8[i], index_u8);
            HC_PEAK_OPAQUE(x_u8[i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < HC_PEAK_CHAINS; i++)
        _mm_storeu_si128(chain + i, quarter(x_u8[i]));
    return steps > 0 ? HC_PEAK_CHAINS : 0;
}

/* peak_read, 256 bytes per iteration. */
static inline vector ahead_line(const char *from, int64_t ahead) {
    if (ahead)
        _mm_prefetch(from + ahead, _MM_HINT_T0);
    return line(from);
}

static inline uint64_t sum_lines(const char *from, int64_t size, int64_t ahead) {
    vector sum_u64[4] = {{0}};
    int64_t at = 0;
    for (; at + 256 <= size; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum_u64[i] = add_doubles(sum_u64[i], ahead_line(from + at + 64 * i, ahead));
    }
    for (; at < size; at += 64)
        sum_u64[0] = add_doubles(sum_u64[0], ahead_line(from + at, ahead));
    return sum_of(add_doubles(add_doubles(sum_u64[0], sum_u64[1]), add_doubles(sum_u64[2], sum_u64[3])));
}

#define HC_PEAK_X86(isa)                                                                                               \
    int64_t hc_peak_fma_##isa(int64_t steps, void *state) { return fma_chains(steps, state); }                         \
    int64_t hc_peak_dot_##isa(int64_t steps, void *state) { return dot_chains(steps, state); }                         \
    int64_t hc_peak_shuffle_##isa(int64_t steps, void *state) { return shuffle_chains(steps, state); }                 \
    uint64_t hc_peak_read_##isa(const void *bytes, int64_t size, int64_t ahead) {                                      \
        return ahead ? sum_lines(bytes, size, ahead) : sum_lines(bytes, size, 0);                                      \
    }
