/* Matmuls of floats as hardware accumulates them (reference/emulation.py is the definition): S = round(S + the sum of
 * the products of a step), with one rounding, by one of three methods:
 *
 *   one product      exact in float64, the sum with S rounded to odd there, which leaves enough bits to round once more
 *   exact            fixed point, wide enough for every product and for S: 128 bits, or limbs of 32
 *   aligned          every term cut to the grid that the largest exponent gives (at least `lowest`), then an integer sum: a
 *                    tensor core (aligned.h)
 *
 * A value is significand * 2^(exponent - 23). Subnormal inputs have the smallest exponent of their type.
 */
#include "base/convert.h"
#include "base/threads.h"
#include "ops/emulate/aligned.h"

#include <math.h>

enum { COLUMNS = HC_ALIGNED_COLUMNS, LIMBS = 28 };

typedef struct {
    int32_t significand, exponent;
} hc_part_float;

typedef struct {
    const hc_float_sum *sum;
    int64_t m, n, k, blocks;
    const float *a, *b;
    hc_part_float *a_parts, *b_parts;
    float *b_blocks;            /* (blocks, k, COLUMNS) */
    float *a_powers, *b_powers; /* aligned: hc_aligned_power of a, and of b_blocks */
    int unit, n_limbs;
    bool fits_128; /* exact sums use 128 bits instead of limbs */
    float *out;
} hc_floats_job;

static double double_from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double power_of_two(int exponent) { return double_from_bits((uint64_t)(1023 + exponent) << 52); }

/* One rounding to the accumulator's type; `value` is exact or rounded to odd. Beyond the largest: infinity. */
static inline double round_to(const hc_float_sum *sum, double value) {
    int exponent = (int)(double_bits(value) >> 52 & 0x7ff) - 1023;
    exponent = exponent < sum->smallest ? sum->smallest : exponent > 600 ? 600 : exponent;
    const double unit = power_of_two(exponent - sum->precision + 1), magic = 0x1.8p52 * unit;
    double rounded = (value + magic) - magic;
    if (sum->truncates && fabs(rounded) > fabs(value))
        rounded -= copysign(unit, value);
    rounded = fabs(rounded) >= power_of_two(2 - sum->smallest) ? (double)INFINITY : rounded;
    return copysign(rounded, value);
}

/* x + y rounded to odd: an inexact sum gets an odd last bit. */
static inline double sum_to_odd(double x, double y) {
    const double total = x + y, back = total - x;
    const double error = (x - (total - back)) + (y - back);
    uint64_t bits = double_bits(total);
    if (fabs(error) > 0 && (bits & 1) == 0) /* false for NaN, which infinities give */
        bits += (error > 0) == (total > 0) ? 1 : (uint64_t)-1;
    return double_from_bits(bits);
}

static void one_product(const hc_floats_job *job, int64_t i, int64_t block) {
    double total[COLUMNS] = {0};
    const float *a = job->a + i * job->k, *b = job->b_blocks + block * job->k * COLUMNS;
    for (int64_t k = 0; k < job->k; k++)
        for (int j = 0; j < COLUMNS; j++)
            total[j] = round_to(job->sum, sum_to_odd((double)a[k] * (double)b[k * COLUMNS + j], total[j]));
    for (int64_t j = block * COLUMNS; j < hc_min((block + 1) * COLUMNS, job->n); j++)
        job->out[i * job->n + j] = (float)total[j - block * COLUMNS];
}

static hc_part_float part_of(double value, int smallest) {
    const uint64_t bits = double_bits(value);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    exponent = exponent < smallest ? smallest : exponent;
    return (hc_part_float){(int32_t)(value * power_of_two(23 - exponent)), exponent};
}

/* Adds significand * 2^shift, which is less than 2^48 times 2^shift. */
static void add_limbs(int64_t *limbs, int64_t significand, int shift) {
    const __int128 value = (__int128)significand * ((__int128)1 << (shift & 31));
    int64_t *limb = limbs + (shift >> 5);
    limb[0] += (int64_t)(uint32_t)value;
    limb[1] += (int64_t)(uint32_t)(value >> 32);
    limb[2] += (int64_t)(value >> 64);
}

/* value * 2^unit as a double rounded to odd; `rest`: there are nonzero bits below. */
static double to_odd(unsigned __int128 value, bool rest, bool negative, int unit) {
    const unsigned __int128 upper = value >> 53;
    const uint64_t high = (uint64_t)(upper >> 64), low = (uint64_t)upper;
    const int shift = high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
    rest = rest || (value & (((unsigned __int128)1 << shift) - 1)) != 0;
    const double magnitude = (double)((uint64_t)(value >> shift) | (rest ? 1 : 0)) * power_of_two(unit + shift);
    return negative ? -magnitude : magnitude;
}

/* Limbs as a double rounded to odd, times 2^unit. */
static double from_limbs(int64_t *limbs, int n, int unit) {
    int64_t carry = 0;
    for (int i = 0; i < n; i++) {
        limbs[i] += carry;
        carry = limbs[i] >> 32;
        limbs[i] &= 0xffffffff;
    }
    const bool negative = carry < 0;
    if (negative) {
        carry = 1;
        for (int i = 0; i < n; i++) {
            limbs[i] = (limbs[i] ^ 0xffffffff) + carry;
            carry = limbs[i] >> 32;
            limbs[i] &= 0xffffffff;
        }
    }
    int top = n - 1;
    while (top > 0 && limbs[top] == 0)
        top--;
    const int low = top >= 2 ? top - 2 : 0;
    unsigned __int128 value = 0;
    for (int i = top; i >= low; i--)
        value = value << 32 | (uint64_t)limbs[i];
    bool rest = false;
    for (int i = 0; i < low; i++)
        rest = rest || limbs[i] != 0;
    return to_odd(value, rest, negative, unit + 32 * low);
}

/* The sum if every addend is a zero. By IEEE 754 it is -0 only if all of them are -0. */
static double sum_of_zeros(double total, const float *a, const float *b, int64_t n) {
    bool negative = signbit(total);
    for (int64_t k = 0; k < n; k++)
        negative = negative && !signbit(a[k]) != !signbit(b[k]);
    return negative ? -0.0 : 0.0;
}

/* S as an integer multiple of the products' unit. */
static void total_parts(const hc_floats_job *job, double total, int64_t *significand, int *shift) {
    const hc_part_float part = part_of(total, job->sum->smallest);
    *significand = part.significand;
    *shift = part.exponent - 23 - job->unit;
    if (part.significand == 0)
        *shift = 0;
    if (*shift < 0) {
        *significand /= (int64_t)1 << hc_min(-*shift, 62);
        *shift = 0;
    }
}

static double exact_step(const hc_floats_job *job, double total, int64_t a, int64_t b, int64_t n) {
    int64_t limbs[LIMBS], significand;
    int shift;
    bool any = total != 0;
    __int128 sum = 0;
    if (!job->fits_128)
        memset(limbs, 0, sizeof limbs);
    total_parts(job, total, &significand, &shift);
    if (job->fits_128)
        sum = (__int128)significand * ((__int128)1 << shift);
    else
        add_limbs(limbs, significand, shift);
    for (int64_t k = 0; k < n; k++) {
        const hc_part_float x = job->a_parts[a + k], w = job->b_parts[b + k];
        const int64_t product = (int64_t)x.significand * w.significand;
        if (product == 0)
            continue;
        any = true;
        if (job->fits_128)
            sum += (__int128)product * ((__int128)1 << (x.exponent + w.exponent - 46 - job->unit));
        else
            add_limbs(limbs, product, x.exponent + w.exponent - 46 - job->unit);
    }
    if (!any)
        return sum_of_zeros(total, job->a + a, job->b + b, n);
    const double value =
        job->fits_128 ? to_odd(sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum, false, sum < 0, job->unit)
                      : from_limbs(limbs, job->n_limbs, job->unit);
    return value == 0 ? 0 : round_to(job->sum, value);
}

static void exact(const hc_floats_job *job, int64_t i, int64_t block) {
    for (int64_t j = block * COLUMNS; j < hc_min((block + 1) * COLUMNS, job->n); j++) {
        double total = 0;
        for (int64_t k = 0; k < job->k && isfinite(total); k += job->sum->chunk) {
            const int64_t a = i * job->k + k, b = j * job->k + k, n = hc_min(job->sum->chunk, job->k - k);
            total = exact_step(job, total, a, b, n);
        }
        job->out[i * job->n + j] = (float)total;
    }
}

static void aligned(const hc_floats_job *job, int64_t i, int64_t block) {
    double total[COLUMNS] = {0};
    const int64_t row = i * job->k, column = block * job->k * COLUMNS;
    hc_aligned_row(job->sum, job->k, job->a + row, job->a_powers + row, job->b_blocks + column, job->b_powers + column,
                   total);
    for (int64_t j = block * COLUMNS; j < hc_min((block + 1) * COLUMNS, job->n); j++)
        job->out[i * job->n + j] = (float)total[j - block * COLUMNS];
}

/* Consecutive tasks read the same block. */
static void floats_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_floats_job *job = context;
    const int64_t i = task % job->m, block = task / job->m;
    if (job->a_powers)
        aligned(job, i, block);
    else if (job->b_blocks)
        one_product(job, i, block);
    else
        exact(job, i, block);
}

/* Splits all values into their parts; also the smallest and largest exponent of those that are not zero. */
static void take_apart(const float *values, int64_t count, int smallest, hc_part_float *parts, int *low, int *high) {
    *low = 0, *high = -1;
    for (int64_t i = 0; i < count; i++) {
        parts[i] = part_of((double)values[i], smallest);
        if (parts[i].significand == 0)
            continue;
        const bool first = *low > *high;
        *low = first || parts[i].exponent < *low ? parts[i].exponent : *low;
        *high = first || parts[i].exponent > *high ? parts[i].exponent : *high;
    }
}

hc_status hc_emulate_floats(const hc_run *run, int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                            const hc_float_sum *sum, float *out, hc_error *error) {
    if (sum->chunk < 1 || sum->precision < 2 || sum->precision > 24 || sum->aligned_bits < 0 ||
        sum->aligned_bits > 32 || (sum->aligned_bits > 0 && sum->chunk > 1 << 18))
        return hc_fail(error, HC_VALUE,
                       "emulate: a step has 1 or more values, at most 2^18 that are aligned, to 1 to 32 bits");
    hc_floats_job job = {.sum = sum, .m = m, .n = n, .k = k, .a = a, .b = b, .out = out};
    job.blocks = hc_ceil_div(n, COLUMNS);
    const bool single = sum->chunk == 1 && sum->aligned_bits == 0, is_aligned = sum->aligned_bits > 0;
    const int64_t blocks = hc_max(job.blocks * k, 1) * COLUMNS;
    if (single || is_aligned)
        job.b_blocks = hc_alloc_aligned((is_aligned ? 2 * blocks + m * k : blocks) * (int64_t)sizeof *job.b_blocks);
    else
        job.a_parts = hc_alloc_aligned(hc_max((m + n) * k, 1) * (int64_t)sizeof *job.a_parts);
    if (!job.b_blocks && !job.a_parts)
        return hc_fail(error, HC_MEMORY, "emulate: not enough memory for %lld rows of %lld values", (long long)(m + n),
                       (long long)k);
    if (job.b_blocks) {
        for (int64_t j = 0; j < job.blocks * COLUMNS; j++)
            for (int64_t c = 0; c < k; c++)
                job.b_blocks[(j / COLUMNS * k + c) * COLUMNS + j % COLUMNS] = j < n ? b[j * k + c] : 0;
    }
    if (is_aligned) {
        job.b_powers = job.b_blocks + blocks;
        job.a_powers = job.b_powers + blocks;
        for (int64_t i = 0; i < job.blocks * k * COLUMNS; i++)
            job.b_powers[i] = hc_aligned_power(job.b_blocks[i], sum->smallest_input);
        for (int64_t i = 0; i < m * k; i++)
            job.a_powers[i] = hc_aligned_power(a[i], sum->smallest_input);
    } else if (!single) {
        int low[2], high[2];
        job.b_parts = job.a_parts + m * k;
        take_apart(a, m * k, sum->smallest_input, job.a_parts, &low[0], &high[0]);
        take_apart(b, n * k, sum->smallest_input, job.b_parts, &low[1], &high[1]);
        job.unit = low[0] + low[1] - 46;
        /* The largest product has 48 bits above the unit of its exponents, and a row of products 63 - clz(k) more. S
         * fits, too. */
        const int span = high[0] + high[1] - 46 - job.unit + 48 + (64 - __builtin_clzll((uint64_t)k | 1)) + 1;
        job.n_limbs = span > 0 ? span / 32 + 3 : 3;
        job.fits_128 = span < 126;
    }
    hc_parallel(run->n_threads, m * job.blocks, floats_task, &job);
    hc_free_aligned(job.b_blocks);
    hc_free_aligned(job.a_parts);
    return HC_OK;
}
