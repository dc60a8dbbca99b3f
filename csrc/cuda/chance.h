/* Stochastic rounding on the device: the steps of the CPU's kernels, a value at a time, by the same chances.
 *
 * A thread finds the scales of its chunk's groups; then neighbouring threads round neighbouring values.
 */
#ifndef HC_CUDA_CHANCE_H
#define HC_CUDA_CHANCE_H

#include "cuda/training/values.h"

/* A double, and the words of its bits, where the CPU has vectors of them. */
struct hc_words;
struct hc_doubles {
    double value;
    HC_DEVICE hc_doubles(double given) : value(given) {}
    HC_DEVICE explicit hc_doubles(hc_words given);
};
struct hc_words {
    int64_t bits;
    HC_DEVICE hc_words(int64_t given) : bits(given) {}
    HC_DEVICE explicit hc_words(hc_doubles given) : bits((int64_t)hc_f64_bits(given.value)) {}
};
HC_DEVICE inline hc_doubles::hc_doubles(hc_words given) { memcpy(&value, &given.bits, sizeof value); }
typedef float hc_singles;

#define HC_OPERATOR(result, type, field, sign, expression)                                                             \
    static inline HC_DEVICE result operator sign(type a, type b) { return result(expression); }
HC_OPERATOR(hc_doubles, hc_doubles, value, +, a.value + b.value)
HC_OPERATOR(hc_doubles, hc_doubles, value, -, a.value - b.value)
HC_OPERATOR(hc_doubles, hc_doubles, value, *, a.value *b.value)
HC_OPERATOR(hc_doubles, hc_doubles, value, /, a.value / b.value)
HC_OPERATOR(hc_words, hc_doubles, value, <, -(int64_t)(a.value < b.value))
HC_OPERATOR(hc_words, hc_doubles, value, >, -(int64_t)(a.value > b.value))
HC_OPERATOR(hc_words, hc_doubles, value, ==, -(int64_t)(a.value == b.value))
HC_OPERATOR(hc_words, hc_words, bits, &, a.bits & b.bits)
HC_OPERATOR(hc_words, hc_words, bits, |, a.bits | b.bits)
HC_OPERATOR(hc_words, hc_words, bits, -, a.bits - b.bits)
#undef HC_OPERATOR
static inline HC_DEVICE hc_words operator~(hc_words a) { return hc_words(~a.bits); }
static inline HC_DEVICE hc_doubles operator-(hc_doubles a) { return hc_doubles(-a.value); }
static inline HC_DEVICE hc_doubles &operator+=(hc_doubles &a, hc_doubles b) { return a = a + b; }
static inline HC_DEVICE hc_doubles &operator-=(hc_doubles &a, hc_doubles b) { return a = a - b; }
static inline HC_DEVICE hc_doubles hc_either(hc_words taken, hc_doubles yes, hc_doubles no) {
    return taken.bits ? yes : no;
}
static inline HC_DEVICE float hc_to_singles(hc_doubles a) { return (float)a.value; }

#define static HC_STATIC
#define restrict __restrict__
#include "kernels/training/chance.h"
#undef restrict
#undef static

/* A group's scale, and its outermost levels. */
struct hc_chance_group {
    double scale, low, high;
};

template <typename format> static inline HC_DEVICE void hc_chance_block(const hc_cuda_chance &p) {
    const hc_cuda_chunks &chunks = p.chunks;
    const int groups_ld = chunks.groups ? chunks.groups : 1;
    hc_chance_group *groups = (hc_chance_group *)hc_shared();
    const hc_chunk chunk = hc_chunk_of(chunks, p.geometry, (int)threadIdx.x);
    for (int i = 0; i < chunk.groups && chunk.columns > 0; i++) {
        const int64_t first = chunk.first + (chunks.groups ? i * p.geometry.group : 0);
        float code, scale = 1, row_scale = 1;
        const hc_tile tile = {chunk.row, 1, first, 1};
        const hc_code_tile out = {&code, 1, &scale, 1, &row_scale};
        format::decode_codes(&p.format, &p.geometry, &p.parts, &tile, &out);
        const hc_component &zeros = p.parts.part[HC_ZERO_POINTS];
        const double zero = zeros.data ? (double)hc_read_bits(zeros.data + chunk.row * zeros.row_stride,
                                                              first / p.geometry.group, p.format.bits)
                                       : 0;
        groups[(int)threadIdx.x * groups_ld + i] = {(double)row_scale * (double)scale, p.low - zero, p.high - zero};
    }
    hc_barrier();
    const hc_chance_levels levels = {p.n, p.table, p.fraction, p.least};
    hc_for_each_value(
        chunks, p.geometry, p.x, p.order, [&](const hc_chunk &at, int slot, int c, const char *from, int64_t index) {
            const double x = hc_load_double(from, p.x.dtype);
            const hc_chance_group group = groups[slot * groups_ld + (chunks.groups ? c / (int)p.geometry.group : 0)];
            double chance;
            hc_chances(1, p.seed, (uint64_t)index, 0, &chance);
            float y;
            if (p.infinity != 0 && fabs(x) == (double)INFINITY) /* NaN too */
                y = x < 0 ? -p.infinity : p.infinity;
            else if (p.n > 0)
                hc_chance_table(1, &x, &chance, group.scale, &levels, &y);
            else
                y = hc_chance_step(x, chance, group.scale, group.low, group.high, p.fraction, 1 / p.fraction, p.least);
            *(float *)(p.y.data + hc_value_offset(p.y, at.row, at.first + c)) = y;
        });
}

#define HC_CHANCE(family, format)                                                                                      \
    HC_KERNEL(hc_chance_##family, hc_cuda_chance, 128) { hc_chance_block<format>(p); }

#endif
