/* Thresholds of groups, by the definitions of ops/codec/clip.c: a team of 8 threads takes a group, thread j its values j, j + 8, ...
 *
 * A step passes over the magnitudes and finds the sum, the number and the least of those above a bound. Magnitudes are compared
 * as the bits of float64, whose order is theirs.
 *
 *   fraction     one step, for the largest magnitude
 *   percentile   a step for each bit of the magnitude with a rank, which counts those above; one for the next magnitude
 *   octav        a step for each of the iteration; the sums are those of 8 lanes, folded as kernels/clip/clip.h says
 *
 * All teams of a warp take the same steps, since all lanes of a warp shuffle.
 */
#include "cuda/codec.h"
#include "hc.h"

#define static HC_STATIC
#include "kernels/clip/clip.h"
#include "kernels/clip/percentile.h"
#undef static

namespace {
/* Bits of a magnitude without its sign; of what float32 holds, the last 29 are zeros. */
enum { TEAM = HC_CUDA_CLIP_TEAM, BITS = 63, BITS_OF_F32 = 34 };

HC_DEVICE double from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
HC_DEVICE uint64_t shuffle(uint64_t value, int mask) {
    return (uint64_t)hc_shuffle_xor((uint32_t)(value >> 32), mask) << 32 | hc_shuffle_xor((uint32_t)value, mask);
}
HC_DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What a step finds. `largest` is of all values, whatever their sign: above infinity if one is NaN. */
struct found_values {
    double sum = 0;
    uint64_t count = 0, least = ~(uint64_t)0, largest = 0, largest_magnitude = 0;
};
} // namespace

HC_KERNEL(hc_thresholds, hc_cuda_thresholds, 128) {
    const hc_geometry &g = p.geometry;
    const int64_t number = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / TEAM;
    const int64_t team = hc_min(number, g.rows * g.groups - 1); /* the last one's work may be done several times */
    const int64_t row = team / g.groups, group = team - row * g.groups, first = group * g.group;
    const int lane = (int)threadIdx.x % TEAM;
    /* without what pads its run */
    const int64_t n =
        g.padded == g.columns ? g.group : hc_min(g.group, g.run_length - group % g.groups_per_run * g.group);
    const bool in_one_run = first % p.x.padded_run + n <= p.x.padded_run;
    const char *begin = p.x.data + hc_rows_offset(&p.x, row, first);
    const int n_bits = p.x.dtype == HC_F64 ? BITS : BITS_OF_F32;
    const int steps = p.kind == HC_CLIP_FRACTION ? 0 : p.kind == HC_CLIP_OCTAV ? HC_OCTAV_STEPS : n_bits + 1;
    double s = 0, t = 0; /* of octav, of the percentile */
    const int64_t rank = p.kind == HC_CLIP_PERCENTILE ? hc_percentile_place(n, p.value, &t) : 0;
    int64_t nonzero = 0, up_to_ranked = 0;
    uint64_t ranked = 0, next = 0;
    float absmax = 0;
    bool is_legal = true, is_done = false, is_absmax = false;
    HC_SHORT_LOOP
    for (int step = 0; step <= steps; step++) {
        const uint64_t bit = step > 0 && step <= n_bits ? (uint64_t)1 << (BITS - step) : 0;
        const uint64_t bound = p.kind == HC_CLIP_OCTAV ? hc_f64_bits(s) : bit ? (ranked | bit) - 1 : ranked;
        found_values found;
        HC_SHORT_LOOP
        for (int64_t i = lane; i < n; i += TEAM) {
            const char *at =
                in_one_run ? begin + i * p.x.column_stride : p.x.data + hc_rows_offset(&p.x, row, first + i);
            const double value = p.x.dtype == HC_F64 ? *(const double *)at : (double)hc_load_value(at, p.x.dtype);
            const double magnitude = p.positive ? (value > 0 ? value : 0) : fabs(value);
            const uint64_t bits = hc_f64_bits(magnitude);
            const bool is_above = bits > bound;
            found.sum += is_above ? magnitude : 0;
            found.count += is_above;
            found.least = is_above && bits < found.least ? bits : found.least;
            found.largest_magnitude = larger(bits, found.largest_magnitude);
            found.largest = larger(hc_f64_bits(fabs(value)), found.largest);
        }
        HC_SHORT_LOOP
        for (int mask = 1; mask < TEAM; mask *= 2) {
            found.count += shuffle(found.count, mask);
            if (p.kind == HC_CLIP_OCTAV)
                found.sum += from_bits(shuffle(hc_f64_bits(found.sum), mask));
            if (step > n_bits) {
                const uint64_t other = shuffle(found.least, mask);
                found.least = other < found.least ? other : found.least;
            }
            if (step > 0)
                continue;
            found.largest_magnitude = larger(found.largest_magnitude, shuffle(found.largest_magnitude, mask));
            found.largest = larger(found.largest, shuffle(found.largest, mask));
        }
        const int64_t count = (int64_t)found.count;
        if (step == 0) {
            absmax = (float)from_bits(found.largest_magnitude);
            is_legal = (float)from_bits(found.largest) <= FLT_MAX;
            nonzero = count;
            is_done = count == 0;
            s = is_done ? 0 : found.sum / (double)count;
        } else if (p.kind == HC_CLIP_OCTAV) {
            const double then = found.sum / (p.inside * (double)(nonzero - count) + (double)count);
            is_absmax = is_absmax || (!is_done && count == 0);
            is_done = is_done || count == 0 || then == s;
            s = is_done ? s : then;
            uint32_t all = is_done;
            all &= hc_shuffle_xor(all, TEAM);
            all &= hc_shuffle_xor(all, 2 * TEAM);
            if (all)
                break;
        } else if (bit) {
            if (n - count <= rank)
                ranked |= bit;
        } else {
            up_to_ranked = n - count;
            next = found.least;
        }
    }
    if (number != team || lane > 0)
        return;
    if (!is_legal)
        hc_refuse_row(p.illegal, row);
    float threshold = is_absmax ? absmax : (float)s;
    if (p.kind == HC_CLIP_FRACTION)
        threshold = (float)(p.value * (double)absmax);
    if (p.kind == HC_CLIP_PERCENTILE)
        threshold = hc_percentile_between(from_bits(ranked),
                                          from_bits(rank + 1 < up_to_ranked || rank + 1 >= n ? ranked : next), t);
    p.thresholds[number] = is_legal ? threshold : NAN;
}
