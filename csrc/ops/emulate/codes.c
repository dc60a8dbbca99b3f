/* Matmuls of integers and of log numbers as hardware accumulates them (reference/emulation.py is the definition):
 *
 *   S = fit(S + p * sum of a_q b_q over a step)      p: the rounded product of the integer scales of both groups
 *   logs: sign * power[e_a + e_b] in place of a_q b_q
 *
 * A row is cut into segments at every group boundary of either side, and a segment into steps of `chunk` values. With
 * float32 scales S is reset to 0 after each segment: y = fmaf(s_a * s_b, (float)(S * unit), y). Threads share the
 * results.
 */
#include "base/threads.h"
#include "hc_emulate.h"
#include "ops/check.h"
#include "ops/codec/decode.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = 64, LOG_SIGN = 1 << 10 };

hc_status hc_terms(const hc_run *run, const hc_packed *packed, float *codes, float *scales, float *row_scale,
                   hc_terms_kind *kind, hc_error *error) {
    hc_geometry geometry;
    const hc_status status = hc_check_packed("emulate: an operand", packed, &geometry, error);
    if (status != HC_OK)
        return status;
    const hc_int_form folded = hc_integers_of(&packed->format, HC_INT_FOLDED);
    const hc_int_form grouped = hc_integers_of(&packed->format, HC_INT_GROUPED);
    kind->integers = folded.available || (grouped.available && !grouped.has_minima && !grouped.fraction_bits);
    kind->groups = hc_has_groups(&packed->format);
    kind->integer_scales = kind->groups && folded.available;
    const hc_tile tile = {0, geometry.rows, 0, geometry.columns};
    const hc_code_tile out = {codes, geometry.columns, scales, geometry.groups, row_scale};
    if (geometry.rows > 0 && geometry.columns > 0)
        hc_decode_codes_tile(run, &packed->format, &geometry, &packed->components, &tile, &out);
    return HC_OK;
}

typedef struct {
    const hc_code_rows *a, *b;
    const hc_code_sum *sum;
    int64_t power[HC_LOG_SUMS];
    bool joined; /* float32 scales */
    int64_t blocks, low, high;
    void *out;
} hc_codes_job;

static int64_t fit(const hc_codes_job *job, int64_t value) {
    if (job->sum->saturates)
        return value < job->low ? job->low : value > job->high ? job->high : value;
    const int spare = 64 - job->sum->bits;
    return (int64_t)((uint64_t)value << spare) >> spare;
}

static int64_t dot_exact(const int32_t *a, const int32_t *b, int64_t n) {
    int64_t dot = 0;
    for (int64_t k = 0; k < n; k++)
        dot += (int64_t)a[k] * b[k];
    return dot;
}

/* Mitchell 1962: adds logarithms that are linear between powers of two, and converts back; all in integers. */
static int64_t mitchell(int32_t x, int32_t y) {
    if (x == 0 || y == 0)
        return 0;
    const uint64_t u = (uint64_t)llabs((long long)x), v = (uint64_t)llabs((long long)y);
    const int i = 63 - __builtin_clzll(u), j = 63 - __builtin_clzll(v);
    const uint64_t one = 1ull << (i + j), fractions = ((u - (1ull << i)) << j) + ((v - (1ull << j)) << i);
    const int64_t magnitude = (int64_t)(fractions < one ? one + fractions : 2 * fractions);
    return (x < 0) == (y < 0) ? magnitude : -magnitude;
}

static int64_t dot_mitchell(const int32_t *a, const int32_t *b, int64_t n) {
    int64_t dot = 0;
    for (int64_t k = 0; k < n; k++)
        dot += mitchell(a[k], b[k]);
    return dot;
}

static int64_t dot_logs(const hc_codes_job *job, const int32_t *a, const int32_t *b, int64_t n) {
    int64_t dot = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t term = job->power[(a[k] & (LOG_SIGN - 1)) + (b[k] & (LOG_SIGN - 1))];
        dot += (a[k] ^ b[k]) & LOG_SIGN ? -term : term;
    }
    return dot;
}

static double sum_logs(const double *power, const int32_t *a, const int32_t *b, int64_t n) {
    double dot = 0;
    for (int64_t k = 0; k < n; k++) {
        const double term = power[(a[k] & (LOG_SIGN - 1)) + (b[k] & (LOG_SIGN - 1))];
        dot += (a[k] ^ b[k]) & LOG_SIGN ? -term : term;
    }
    return dot;
}

static int64_t dot_codes(const hc_codes_job *job, const int32_t *a, const int32_t *b, int64_t n) {
    if (job->sum->powers)
        return dot_logs(job, a, b, n);
    return job->sum->mitchell ? dot_mitchell(a, b, n) : dot_exact(a, b, n);
}

/* RNE(product / 2^shift), at most limit. */
static int64_t scale_factor(const hc_code_sum *sum, int64_t product) {
    if (sum->scale_limit == 0)
        return product;
    const int64_t one = (int64_t)1 << sum->scale_shift, rest = product & (one - 1);
    int64_t factor = product >> sum->scale_shift;
    factor += 2 * rest > one || (2 * rest == one && (factor & 1));
    return hc_min(factor, sum->scale_limit);
}

/* Row i of a times row j of b. */
static void multiply(const hc_codes_job *job, int64_t i, int64_t j) {
    const hc_code_rows *a = job->a, *b = job->b;
    const int32_t *x = a->codes + i * a->columns, *w = b->codes + j * b->columns;
    const bool real = job->sum->powers && job->sum->bits == 0;
    double real_total = 0;
    int64_t total = 0;
    float y = 0;
    for (int64_t start = 0, stop = 0; start < a->columns; start = stop) {
        const int64_t a_group = start / a->group, b_group = start / b->group;
        stop = hc_min(a->columns, hc_min((a_group + 1) * a->group, (b_group + 1) * b->group));
        if (real) {
            real_total += sum_logs(job->sum->powers, x + start, w + start, stop - start);
        } else {
            int64_t factor = 1;
            if (!job->joined && (a->integer_scales || b->integer_scales))
                factor = scale_factor(job->sum,
                                      (int64_t)(a->integer_scales ? a->integer_scales[i * a->groups + a_group] : 1) *
                                          (b->integer_scales ? b->integer_scales[j * b->groups + b_group] : 1));
            const int64_t chunk = job->sum->chunk ? job->sum->chunk : stop - start;
            for (int64_t k = start; k < stop; k += chunk)
                total = fit(job, total + factor * dot_codes(job, x + k, w + k, hc_min(chunk, stop - k)));
        }
        if (job->joined) {
            const float scale = a->float_scales[i * a->groups + a_group] * b->float_scales[j * b->groups + b_group];
            y = fmaf(scale, (float)((real ? real_total : (double)total) * job->sum->unit), y);
            total = 0;
            real_total = 0;
        }
    }
    const int64_t place = i * b->rows + j;
    if (job->joined)
        ((float *)job->out)[place] = y;
    else if (real)
        ((double *)job->out)[place] = real_total;
    else
        ((int64_t *)job->out)[place] = total;
}

static void multiply_block(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_codes_job *job = context;
    const int64_t i = task / job->blocks, first = task % job->blocks * COLUMNS;
    for (int64_t j = first; j < hc_min(first + COLUMNS, job->b->rows); j++)
        multiply(job, i, j);
}

static double largest(const int32_t *values, int64_t count) {
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++)
        most = hc_max(most, llabs((long long)values[i]));
    return (double)most;
}

/* Upper bound of the magnitude that one step can add; it need not be tight. */
static double step_bound(const hc_codes_job *job) {
    const hc_code_rows *a = job->a, *b = job->b;
    double bound = (double)(job->sum->chunk ? job->sum->chunk : hc_min(a->group, b->group));
    if (job->sum->powers)
        return bound * job->sum->powers[0];
    bound *= largest(a->codes, a->rows * a->columns) * largest(b->codes, b->rows * b->columns);
    if (a->integer_scales)
        bound *= largest(a->integer_scales, a->rows * a->groups);
    if (b->integer_scales)
        bound *= largest(b->integer_scales, b->rows * b->groups);
    return bound;
}

hc_status hc_emulate_codes(const hc_run *run, const hc_code_rows *a, const hc_code_rows *b, const hc_code_sum *sum,
                           void *out, hc_error *error) {
    hc_codes_job job = {.a = a, .b = b, .sum = sum, .out = out};
    job.joined = a->float_scales != NULL;
    job.blocks = hc_ceil_div(b->rows, COLUMNS);
    if (a->columns != b->columns)
        return hc_fail(error, HC_VALUE, "emulate: a has rows of %lld values and b of %lld", (long long)a->columns,
                       (long long)b->columns);
    if (a->group < 1 || b->group < 1 || sum->chunk < 0 || (a->float_scales == NULL) != (b->float_scales == NULL))
        return hc_fail(error, HC_VALUE,
                       "emulate: expected groups of 1 or more, steps, and float32 "
                       "scales on both sides");
    if (sum->bits < 0 || sum->bits == 1 || sum->bits > 63 || (sum->bits == 0 && !sum->powers))
        return hc_fail(error, HC_VALUE, "emulate: an accumulator has %d bits, expected 2 to 63", sum->bits);
    if (sum->scale_shift < 0 || sum->scale_shift > 32)
        return hc_fail(error, HC_VALUE, "emulate: a shift of %d bits, expected 0 to 32", sum->scale_shift);
    if (sum->bits > 0) {
        job.low = -((int64_t)1 << (sum->bits - 1));
        job.high = -(job.low + 1);
        if (!(step_bound(&job) < 0x1p62))
            return hc_fail(error, HC_VALUE,
                           "emulate: one step of these codes can pass 2^62; take a "
                           "smaller chunk");
        for (int i = 0; sum->powers && i < HC_LOG_SUMS; i++)
            job.power[i] = (int64_t)sum->powers[i];
    }
    hc_parallel(run->n_threads, a->rows * job.blocks, multiply_block, &job);
    return HC_OK;
}
