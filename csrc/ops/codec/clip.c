/* Clipping: fraction, T = float32(c * absmax); percentile of |x|, linear between neighbours; OCTAV (Sakr et al.,
 * ICML 2022, arXiv 2206.06501), Newton's iteration to the clip of least mean squared error: kernels/clip/clip.h, with
 * 4^-B / 3 as `inside`.
 */
#include "ops/codec/clip.h"

#include "base/float_env.h"
#include "base/watch.h"
#include "formats/levels.h"
#include "kernels/clip/percentile.h"
#include "kernels/kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

hc_status hc_clip_check(const hc_clip *clip, const hc_format *format, const char *name, hc_error *error) {
    if (clip->kind == HC_CLIP_ABSMAX)
        return HC_OK;
    if (hc_clip_domain_of(format) == HC_CLIP_NONE)
        return hc_refuse(error, "format", "has no scale that clip= could change");
    if (clip->kind == HC_CLIP_FRACTION && !(clip->value > 0 && clip->value <= 1))
        return hc_fail(error, HC_VALUE, "%s: clip is %g, expected a fraction in (0, 1]", name, clip->value);
    if (clip->kind == HC_CLIP_PERCENTILE && !(clip->value >= 0 && clip->value <= 100))
        return hc_fail(error, HC_VALUE, "%s: clip is percentile:%g, expected a number from 0 to 100", name,
                       clip->value);
    if (clip->kind != HC_CLIP_FRACTION && clip->kind != HC_CLIP_PERCENTILE && clip->kind != HC_CLIP_OCTAV)
        return hc_fail(error, HC_VALUE, "%s: clip is of no known kind", name);
    return HC_OK;
}

/* Partial sort: the element of rank k is at index k, nothing larger before it, nothing smaller after it. */
static void select_rank(double *values, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high && !hc_stopping()) {
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
    double t;
    const int64_t i = hc_percentile_place(n, p, &t);
    select_rank(values, n, i);
    const double a = values[i];
    double b = i + 1 < n ? values[i + 1] : a;
    for (int64_t j = i + 2; j < n; j++)
        b = values[j] < b ? values[j] : b;
    return hc_percentile_between(a, b, t);
}

/* Number of values of a group without its padding. */
static int64_t real_values(const hc_geometry *geometry, int64_t group) {
    if (geometry->padded == geometry->columns)
        return geometry->group;
    return hc_min(geometry->group, geometry->run_length - group % geometry->groups_per_run * geometry->group);
}

double hc_clip_inside(const hc_format *format) { return ldexp(1, -2 * format->bits) / 3; }

/* The place-th largest magnitude of each float64 group, and the next larger one, as hc_top_pair_fn of float32. */
static void top_pair_f64(int64_t groups, int64_t n, int64_t place, const double *x, double *lower, double *upper) {
    enum { AT_ONCE = 8 };
    int64_t g = 0;
    for (; g + AT_ONCE <= groups && place <= 2; g += AT_ONCE) { /* the usual places, without branches */
        double first[AT_ONCE] = {0}, second[AT_ONCE] = {0};
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < AT_ONCE; k++) {
                const double value = fabs(x[(g + k) * n + i]), less = first[k] < value ? first[k] : value;
                first[k] = first[k] > value ? first[k] : value;
                second[k] = second[k] > less ? second[k] : less;
            }
        memcpy(lower + g, place == 1 ? first : second, sizeof first);
        memcpy(upper + g, first, sizeof first);
    }
    for (; g < groups; g++) {
        double top[HC_TOP] = {0};
        for (int64_t i = 0; i < n; i++) {
            double value = fabs(x[g * n + i]);
            for (int64_t j = 0; j < place && value > top[place - 1]; j++) {
                const double above = top[j] > value ? top[j] : value;
                value = top[j] > value ? value : top[j];
                top[j] = above;
            }
        }
        lower[g] = top[place - 1];
        upper[g] = top[place > 1 ? place - 2 : 0];
    }
}

enum { GROUPS = 64 };

/* Adjacent groups of a row. */
typedef struct {
    const hc_float_rows *x;
    int64_t row, first_group, groups, n;
} hc_group_run;

static const void *run_values(const hc_group_run *at) {
    const int64_t first = at->row * at->x->row_stride + at->first_group * at->n;
    return at->x->dtype == HC_F64 ? (const void *)((const double *)at->x->data + first)
                                  : (const void *)((const float *)at->x->data + first);
}

/* Largest magnitudes as float32; that of a group with an invalid value is not finite. */
static void run_maxima(const hc_group_run *at, const hc_run *run, float *maxima) {
    if (at->x->dtype == HC_F32) {
        HC_PICK(maxima, run)(at->groups, at->n, run_values(at), maxima);
        return;
    }
    enum { PIECE = 1024 };
    const double *x = run_values(at);
    const int64_t together = hc_max(PIECE / at->n, 1), piece = hc_min(PIECE, together * at->n);
    for (int64_t g = 0, groups; g < at->groups; g += groups) {
        groups = hc_min(together, at->groups - g);
        maxima[g] = 0;
        for (int64_t first = 0, n; first < groups * at->n; first += n) { /* rounding is monotonic */
            float rounded[PIECE], found[GROUPS];
            n = hc_min(piece, groups * at->n - first);
            for (int64_t i = 0; i < n; i++)
                rounded[i] = (float)x[g * at->n + first + i];
            HC_PICK(maxima, run)(groups, n / groups, rounded, found);
            if (groups == 1) /* compared as bits: a NaN is above infinity */
                maxima[g] = hc_f32_bits(found[0]) > hc_f32_bits(maxima[g]) ? found[0] : maxima[g];
            else
                memcpy(maxima + g, found, (size_t)groups * sizeof *found);
        }
    }
}

/* Percentiles from the ranks of float32 or float64. */
static void run_percentiles(const hc_group_run *at, const hc_run *run, int64_t place, double t, float *thresholds) {
    double lower[GROUPS], upper[GROUPS];
    if (at->x->dtype == HC_F64) {
        top_pair_f64(at->groups, at->n, place, run_values(at), lower, upper);
    } else {
        float lower_f32[GROUPS], upper_f32[GROUPS];
        HC_PICK(top_pair, run)(at->groups, at->n, place, run_values(at), lower_f32, upper_f32);
        for (int64_t g = 0; g < at->groups; g++) {
            lower[g] = (double)lower_f32[g];
            upper[g] = (double)upper_f32[g];
        }
    }
    for (int64_t g = 0; g < at->groups; g++)
        thresholds[g] = hc_percentile_between(lower[g], upper[g], t);
}

/* Thresholds of rows by kernels. Returns false, before anything is written, if a percentile has too high a rank for
 * them. */
static bool fast_thresholds(const hc_clip *clip, const hc_format *format, const hc_geometry *geometry, uint32_t isa,
                            const hc_float_rows *x, double *scratch, float *thresholds, int64_t *illegal) {
    const int64_t n = geometry->group;
    double t = 0;
    const int64_t place = clip->kind == HC_CLIP_PERCENTILE ? n - hc_percentile_place(n, clip->value, &t) : 1;
    if (place > HC_TOP || (clip->kind == HC_CLIP_PERCENTILE && geometry->padded != geometry->columns))
        return false;
    const hc_run run = {.isa = isa};
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t first = 0, groups; first < geometry->groups; first += groups) {
            groups = hc_min(GROUPS, geometry->groups - first);
            const hc_group_run at = {x, row, first, groups, n};
            float *to = thresholds + row * geometry->groups + first;
            bool legal[GROUPS];
            run_maxima(&at, &run, to);
            for (int64_t g = 0; g < groups; g++) {
                legal[g] = to[g] <= FLT_MAX;
                if (!legal[g] && *illegal == HC_DONE)
                    *illegal = x->first_row + row;
            }
            if (clip->kind == HC_CLIP_OCTAV) {
                hc_octav_fn *octav = HC_PICK(octav, &run);
                octav(groups, n, run_values(&at), x->dtype == HC_F64, false, hc_clip_inside(format), scratch, to);
            }
            if (clip->kind == HC_CLIP_PERCENTILE)
                run_percentiles(&at, &run, place, t, to);
            for (int64_t g = 0; g < groups; g++) {
                to[g] = clip->kind == HC_CLIP_FRACTION ? (float)(clip->value * (double)to[g]) : to[g];
                to[g] = legal[g] ? to[g] : 0;
            }
        }
    return true;
}

int64_t hc_clip_thresholds(const hc_clip *clip, const hc_format *format, const hc_geometry *geometry, uint32_t isa,
                           const hc_float_rows *x, double *scratch, float *thresholds) {
    const bool positive = hc_clip_domain_of(format) == HC_CLIP_POSITIVE;
    int64_t illegal = HC_DONE;
    if (!positive && geometry->group > 0 &&
        fast_thresholds(clip, format, geometry, isa, x, scratch, thresholds, &illegal))
        return illegal;
    const hc_run run = {.isa = isa};
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t group = 0; group < geometry->groups; group++) {
            const int64_t n = real_values(geometry, group), first = row * x->row_stride + group * geometry->group;
            const bool is_fraction = clip->kind == HC_CLIP_FRACTION && !positive; /* needs no loop over the values */
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
                HC_PICK(octav, &run)(1, n, scratch, true, false, hc_clip_inside(format), scratch, &threshold);
            thresholds[row * geometry->groups + group] = threshold;
        }
    return illegal;
}

/* All values in the order of the rows; false if one is NaN and the format has a pattern. */
static bool gather_whole(const hc_encoder *encoder, uint32_t isa, char *values, char *scratch) {
    const hc_geometry *g = &encoder->geometry;
    const hc_pruner *pruner = &encoder->pruner;
    if (encoder->format.m == 0) {
        hc_row_view view;
        hc_rows_init(&view, encoder->x, g, encoder->n_axes, encoder->axes);
        hc_rows_gather(&view, isa, 0, g->rows, 0, g->padded, values, g->padded);
        return true;
    }
    const hc_kept_rows kept = {.dtype = hc_rows_dtype(&pruner->x),
                               .values = values,
                               .ld = g->padded,
                               /* memory of one row, reused for each */
                               .metadata = (uint8_t *)scratch + pruner->scratch_bytes};
    return hc_prune_rows(pruner, g->rows, scratch, &kept);
}

bool hc_clip_is_whole(const hc_format *format) {
    const hc_stored_form form = hc_form_of(format);
    const bool is_one = form.scale == HC_SCALE_NONE && form.second != HC_SECOND_NONE && form.is_shared;
    const hc_clip_domain domain = hc_clip_domain_of(format);
    return domain == HC_CLIP_WHOLE || (domain == HC_CLIP_POSITIVE && is_one);
}

hc_status hc_clip_whole(hc_encoder *encoder, uint32_t isa, hc_error *error) {
    if (encoder->clip.kind == HC_CLIP_ABSMAX || !hc_clip_is_whole(&encoder->format))
        return HC_OK;
    const hc_geometry *g = &encoder->geometry;
    const hc_dtype dtype = encoder->x->dtype == HC_F64 ? HC_F64 : HC_F32;
    const int64_t n = g->rows * g->padded;
    void *values = hc_alloc_aligned(n * hc_dtype_size(dtype));
    const int64_t pruning = encoder->pruner.scratch_bytes + encoder->pruner.row_bytes;
    double *scratch = hc_alloc_aligned(hc_max(hc_max(n, HC_OCTAV_SCRATCH) * (int64_t)sizeof *scratch, pruning));
    hc_status status = HC_OK;
    if (values && scratch && n > 0 && gather_whole(encoder, isa, values, (char *)scratch)) {
        const hc_float_rows x = {values, dtype, n, 0, 1};
        const hc_geometry row = {1, 1, n, n, 1, 1, n, n, n, n};
        const hc_float_env saved = hc_float_env_enter();
        hc_clip_thresholds(&encoder->clip, &encoder->format, &row, isa, &x, scratch, &encoder->threshold);
        hc_float_env_leave(saved);
    } else if (!values || !scratch) {
        status = hc_fail(error, HC_MEMORY, "%s: not enough memory for the threshold of %lld values", encoder->name,
                         (long long)n);
    }
    hc_free_aligned(scratch);
    hc_free_aligned(values);
    return status;
}
