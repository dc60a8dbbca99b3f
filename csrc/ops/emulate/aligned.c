/* One step: every term is cut to the grid of the largest exponent, and the sum of the terms, an integer multiple of that
 * grid, is rounded once. All of it is exact in float64:
 *
 *   power of a product   power(a) * power(b), which is 2^(exponent of a + exponent of b)
 *   a term in units      a * b * 2^-unit, at most 48 bits and below 2^(aligned_bits + 1)
 *   sum of the terms     an integer below 2^53
 *
 * The columns of a block are the lanes of vectors, so that their order has no effect.
 */
#include "ops/emulate/aligned.h"

#include <math.h>
#include <string.h>

/* LOWEST is below the exponent of every product, so that no scale overflows if all terms are 0. */
enum { COLUMNS = HC_ALIGNED_COLUMNS, LOWEST = -300 };
#define INTEGER 0x1.8p52 /* added and subtracted: the nearest integer, ties to even, up to 2^51 */
#define HIGHEST 0x1p600  /* the power of an infinity here, above that of every product */

static inline double from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double larger(double x, double y) { return x > y ? x : y; }

static inline double power_of_two(int exponent) { return from_bits((uint64_t)(1023 + exponent) << 52); }

/* 1 / power, for powers of two up to 2^1000. */
static inline double inverse(double power) { return from_bits(((uint64_t)2046 << 52) - bits_of(power)); }

/* 2^exponent of a normal float64, 0 for smaller ones. */
static inline double leading(double value) { return from_bits(bits_of(value) & (uint64_t)0x7ff << 52); }

float hc_aligned_power(float value, int smallest) {
    return value == 0 ? 0 : (float)larger(leading((double)value), power_of_two(smallest));
}

/* x to an integer: nearest with ties to even, or toward zero. |x| <= 2^51. */
static inline double integer(double x, bool truncates) {
    double found = (x + INTEGER) - INTEGER;
    if (truncates)
        found -= fabs(found) > fabs(x) ? copysign(1.0, x) : 0.0;
    return found;
}

/* The same for |x| < 2^31. */
static inline double small_integer(double x) { return (double)(int32_t)x; }

static inline __attribute__((always_inline)) void row(const hc_float_sum *sum, int64_t k, const float *a,
                                                      const float *a_power, const float *b, const float *b_power,
                                                      double *total, bool cuts, bool is_small) {
    const double smallest = power_of_two(sum->smallest), lowest = power_of_two((int)hc_max(sum->lowest, LOWEST));
    const double top = power_of_two(sum->aligned_bits - 1), bottom = inverse(top);
    const double precision = power_of_two(1 - sum->precision), limit = power_of_two(2 - sum->smallest);
    const bool truncates = sum->truncates;
    for (int64_t first = 0; first < k; first += sum->chunk) {
        const int64_t end = hc_min(first + sum->chunk, k);
        double largest[COLUMNS], scale[COLUMNS], units[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) {
            const double power = larger(leading(total[j]), smallest), kept = fabs(total[j]) > 0 ? power : 0;
            largest[j] = larger(kept < HIGHEST ? kept : HIGHEST, lowest);
        }
        for (int64_t i = first; i < end; i++)
            for (int j = 0; j < COLUMNS; j++)
                largest[j] = larger((double)a_power[i] * (double)b_power[i * COLUMNS + j], largest[j]);
        for (int j = 0; j < COLUMNS; j++) {
            scale[j] = top * inverse(largest[j]);
            units[j] = integer(total[j] * scale[j], cuts);
        }
        for (int64_t i = first; i < end; i++)
            for (int j = 0; j < COLUMNS; j++) {
                const double term = (double)a[i] * (double)b[i * COLUMNS + j] * scale[j];
                units[j] += is_small ? small_integer(term) : integer(term, cuts);
            }
        for (int j = 0; j < COLUMNS; j++) {
            const double value = units[j] * (largest[j] * bottom), power = larger(leading(value), smallest);
            const double unit = (power < HIGHEST ? power : HIGHEST) * precision, magic = INTEGER * unit;
            double rounded = (value + magic) - magic;
            rounded -= truncates && fabs(rounded) > fabs(value) ? copysign(unit, value) : 0.0;
            rounded = fabs(rounded) >= limit ? copysign((double)INFINITY, value) : rounded;
            total[j] = rounded + 0.0; /* no minus zero */
        }
    }
}

void hc_aligned_row(const hc_float_sum *sum, int64_t k, const float *a, const float *a_power, const float *b,
                    const float *b_power, double total[COLUMNS]) {
    if (sum->cuts && sum->aligned_bits < 30)
        row(sum, k, a, a_power, b, b_power, total, true, true);
    else
        row(sum, k, a, a_power, b, b_power, total, sum->cuts, false);
}
