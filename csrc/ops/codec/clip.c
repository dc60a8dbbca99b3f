/* Clipping: fraction, T = float32(c * absmax); percentile of |x|, linear between neighbours; OCTAV (Sakr et al.,
 * ICML 2022, arXiv 2206.06501), Newton's iteration to the clip of least mean squared error:
 *
 *   s_0 = sum |x| / #{|x| > 0}
 *   s_t = sum |x| 1{|x| > s} / ((4^-B / 3) #{0 < |x| <= s} + #{|x| > s}),  s = s_(t-1),  t = 1 .. 20
 *
 * Sums in 8 lanes (lane = index mod 8), each ascending, folded ((0+1)+(2+3))+((4+5)+(6+7)).
 */
#include "ops/codec/clip.h"

#include "base/float_env.h"
#include "formats/levels.h"

#include <float.h>
#include <math.h>

hc_status hc_clip_check(const hc_clip *clip, const hc_format *format, const char *name, hc_error *error) {
    if (clip->kind == HC_CLIP_ABSMAX)
        return HC_OK;
    const hc_format_ops *ops = hc_format_find(format->family);
    if (ops->clip_domain(format) == HC_CLIP_NONE)
        return hc_refuse(error, "format", "has no scale that clip= could change");
    if (clip->kind == HC_CLIP_FRACTION && !(clip->value > 0 && clip->value <= 1))
        return hc_fail(error, HC_VALUE, "%s: clip is %g, wanted a fraction in (0, 1]", name, clip->value);
    if (clip->kind == HC_CLIP_PERCENTILE && !(clip->value >= 0 && clip->value <= 100))
        return hc_fail(error, HC_VALUE, "%s: clip is percentile:%g, wanted a number from 0 to 100", name, clip->value);
    if (clip->kind != HC_CLIP_FRACTION && clip->kind != HC_CLIP_PERCENTILE && clip->kind != HC_CLIP_OCTAV)
        return hc_fail(error, HC_VALUE, "%s: clip is of no known kind", name);
    return HC_OK;
}

/* Puts the element of rank k at place k, nothing larger before it, nothing smaller after. */
static void select_rank(double *values, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const double a = values[low], b = values[low + (high - low) / 2], c = values[high];
        const double pivot = fmax(fmin(a, b), fmin(fmax(a, b), c));
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                const double swapped = values[i];
                values[i++] = values[j];
                values[j--] = swapped;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

static float percentile(double *values, int64_t n, double p) {
    const double h = (double)(n - 1) * p / 100;
    const int64_t i = hc_min((int64_t)h, n - 1);
    const double t = h - (double)i;
    select_rank(values, n, i);
    const double a = values[i];
    double b = i + 1 < n ? values[i + 1] : a;
    for (int64_t j = i + 2; j < n; j++)
        b = values[j] < b ? values[j] : b;
    return (float)(t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t));
}

/* Sum and number of the values beyond s. */
static double sum_beyond(const double *values, int64_t n, double s, int64_t *count) {
    double lane[8] = {0};
    int64_t beyond[8] = {0};
    for (int64_t i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) {
            lane[j] += values[i + j] > s ? values[i + j] : 0;
            beyond[j] += values[i + j] > s;
        }
    for (int64_t i = n & ~(int64_t)7; i < n; i++) {
        lane[i & 7] += values[i] > s ? values[i] : 0;
        beyond[i & 7] += values[i] > s;
    }
    *count = 0;
    for (int j = 0; j < 8; j++)
        *count += beyond[j];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static float octav(const double *values, int64_t n, float absmax, int bits) {
    int64_t nonzero, outside;
    double s = sum_beyond(values, n, 0, &nonzero);
    if (nonzero == 0)
        return 0;
    s /= (double)nonzero;
    const double inside_weight = ldexp(1, -2 * bits) / 3;
    for (int t = 1; t <= 20; t++) {
        const double sum = sum_beyond(values, n, s, &outside);
        if (outside == 0) /* a group of equal magnitudes would never come to rest */
            return absmax;
        const double next = sum / (inside_weight * (double)(nonzero - outside) + (double)outside);
        if (next == s)
            break;
        s = next;
    }
    return (float)s;
}

/* Values of a group without its padding. */
static int64_t real_values(const hc_geometry *geometry, int64_t group) {
    if (geometry->padded == geometry->columns)
        return geometry->group;
    return hc_min(geometry->group, geometry->run_length - group % geometry->groups_per_run * geometry->group);
}

int64_t hc_clip_thresholds(const hc_clip *clip, const hc_format *format, const hc_geometry *geometry,
                           const hc_float_rows *x, double *scratch, float *thresholds) {
    const bool positive = hc_format_find(format->family)->clip_domain(format) == HC_CLIP_POSITIVE;
    int64_t illegal = HC_DONE;
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t n = real_values(geometry, group), first = row * x->row_stride + group * geometry->group;
            const bool is_fraction = clip->kind == HC_CLIP_FRACTION && !positive; /* without a look at each value */
            bool legal = true;
            double absmax = is_fraction ? (double)hc_group_absmax(x, row, group * geometry->group, n, &legal) : 0;
            for (int64_t i = 0; i < n && !is_fraction; i++) {
                const double value = x->dtype == HC_F64 ? ((const double *)x->data)[first + i]
                                                        : (double)((const float *)x->data)[first + i];
                legal = legal && fabs((double)(float)value) <= (double)FLT_MAX;
                scratch[i] = positive ? (value > 0 ? value : 0) : fabs(value);
                absmax = scratch[i] > absmax ? scratch[i] : absmax;
            }
            if (!legal && illegal == HC_DONE)
                illegal = x->first_row + row;
            float threshold = (float)absmax;
            if (!legal || n == 0)
                threshold = 0;
            else if (clip->kind == HC_CLIP_FRACTION)
                threshold = (float)(clip->value * (double)threshold);
            else if (clip->kind == HC_CLIP_PERCENTILE)
                threshold = percentile(scratch, n, clip->value);
            else if (clip->kind == HC_CLIP_OCTAV)
                threshold = octav(scratch, n, threshold, format->bits);
            thresholds[row * geometry->groups + group] = threshold;
        }
    return illegal;
}

/* All values in the order of the rows; false where one is NaN and a pattern has no place for it. */
static bool gather_whole(const hc_encoder *encoder, char *values, char *scratch) {
    const hc_geometry *g = &encoder->geometry;
    const hc_pruner *pruner = &encoder->pruner;
    if (encoder->format.m == 0) {
        hc_row_view view;
        hc_rows_init(&view, encoder->x, g, encoder->n_axes, encoder->axes);
        hc_rows_gather(&view, 0, g->rows, 0, g->padded, values, g->padded);
        return true;
    }
    const hc_kept_rows kept = {.dtype = hc_rows_dtype(&pruner->x),
                               .values = values,
                               .ld = g->padded,
                               .metadata = (uint8_t *)scratch + pruner->scratch_bytes}; /* of one row after the other */
    return hc_prune_rows(pruner, g->rows, scratch, &kept);
}

hc_status hc_clip_whole(hc_encoder *encoder, hc_error *error) {
    if (encoder->clip.kind == HC_CLIP_ABSMAX || encoder->ops->clip_domain(&encoder->format) != HC_CLIP_WHOLE)
        return HC_OK;
    const hc_geometry *g = &encoder->geometry;
    const hc_dtype dtype = encoder->x->dtype == HC_F64 ? HC_F64 : HC_F32;
    const int64_t n = g->rows * g->padded;
    void *values = hc_alloc_aligned(n * hc_dtype_size(dtype));
    const int64_t pruning = encoder->pruner.scratch_bytes + encoder->pruner.row_bytes;
    double *scratch = hc_alloc_aligned(hc_max(n * (int64_t)sizeof *scratch, pruning));
    hc_status status = HC_OK;
    if (values && scratch && n > 0 && gather_whole(encoder, values, (char *)scratch)) {
        const hc_float_rows x = {values, dtype, n, 0, 1};
        const hc_geometry row = {1, 1, n, n, 1, 1, n, n, n, n};
        const hc_float_env saved = hc_float_env_enter();
        hc_clip_thresholds(&encoder->clip, &encoder->format, &row, &x, scratch, &encoder->threshold);
        hc_float_env_leave(saved);
    } else if (!values || !scratch) {
        status =
            hc_fail(error, HC_MEMORY, "%s: no memory for the threshold of %lld values", encoder->name, (long long)n);
    }
    hc_free_aligned(scratch);
    hc_free_aligned(values);
    return status;
}
