/* Checks of arguments. A message names the argument, its value and the expected value. */
#include "ops/check.h"

#include "base/convert.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static bool is_float(hc_dtype dtype) {
    return dtype == HC_F32 || dtype == HC_F64 || dtype == HC_F16 || dtype == HC_BF16;
}

/* Writes "(2, 3)" into text, cut with "..." if it does not fit. */
static const char *shape_text(int ndim, const int64_t *shape, char text[96]) {
    size_t used = (size_t)snprintf(text, 96, "(");
    for (int i = 0; i < ndim && used < 64; i++)
        used += (size_t)snprintf(text + used, 96 - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(text + used, 96 - used, used < 64 ? (ndim == 1 ? ",)" : ")") : ", ...)");
    return text;
}

hc_status hc_check_host(const char *name, int device, hc_error *error) {
    if (device == HC_HOST)
        return HC_OK;
    return hc_fail(error, HC_UNSUPPORTED, "%s is on device %d, expected the host: copy it there first", name, device);
}

/* Checks a view on any device. */
static hc_status check_view(const char *name, const hc_view *view, hc_error *error) {
    if (!is_float(view->dtype))
        return hc_fail(error, HC_TYPE, "%s: expected float16, bfloat16, float32 or float64", name);
    if (view->ndim < 0 || view->ndim > HC_MAX_DIMS)
        return hc_fail(error, HC_VALUE, "%s has %d dimensions, at most %d are possible", name, view->ndim, HC_MAX_DIMS);
    int64_t values = 8;
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] < 0 || !hc_mul_size(values, hc_max(view->shape[i], 1), &values))
            return hc_fail(error, HC_VALUE, "%s: its sizes overflow", name);
    return HC_OK;
}

hc_status hc_check_view(const char *name, const hc_view *view, hc_error *error) {
    const hc_status status = check_view(name, view, error);
    return status == HC_OK ? hc_check_host(name, view->device, error) : status;
}

hc_status hc_check_importance(const char *name, const hc_view *importance, const hc_view *x, const hc_format *format,
                              hc_error *error) {
    char text[96], wanted[96];
    snprintf(text, sizeof text, "%s: importance", name);
    const hc_status status = hc_check_view(text, importance, error);
    if (status != HC_OK)
        return status;
    const hc_format_ops *ops = hc_format_find(format->family);
    if (!(ops->learns && ops->learns(format) != HC_LEARN_NONE) && !(ops->weighs && ops->weighs(format)))
        return hc_refuse(error, "format", "learns no codebook and searches no scale, which importance is for");
    bool same = importance->ndim == x->ndim;
    int64_t values = 1, index[HC_MAX_DIMS] = {0};
    for (int i = 0; same && i < x->ndim; i++) {
        same = importance->shape[i] == x->shape[i];
        values *= x->shape[i];
    }
    if (!same)
        return hc_fail(error, HC_VALUE, "%s: importance has shape %s, expected %s", name,
                       shape_text(importance->ndim, importance->shape, text), shape_text(x->ndim, x->shape, wanted));
    if (values > UINT32_MAX)
        return hc_fail(error, HC_VALUE, "%s: importance of %lld values, expected at most 2^32 - 1", name,
                       (long long)values);
    const char *data = importance->data;
    bool more = values > 0;
    for (; more; more = hc_view_next(importance, index, &data)) {
        const double value = hc_load_float(data, importance->dtype);
        if (!((float)value >= 0 && (float)value <= FLT_MAX))
            return hc_refuse_value(error, "importance", x->ndim, index, value,
                                   "expected finite numbers from 0 on that float32 holds");
    }
    return HC_OK;
}

hc_status hc_check_encoding(const char *name, const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                            hc_geometry *geometry, hc_error *error) {
    const hc_status status = hc_check_view(name, x, error);
    return status == HC_OK ? hc_format_geometry(format, x->ndim, x->shape, n_axes, axes, geometry, error) : status;
}

static bool is_of(const hc_prepacked_origin *origin, const hc_format *format, const hc_geometry *geometry) {
    return memcmp(&origin->format, format, sizeof *format) == 0 && /* neither has a padding */
           memcmp(&origin->geometry, geometry, sizeof *geometry) == 0;
}

/* Checks a packed array whose components are on any device. */
static hc_status check_packed(const char *name, const hc_packed *packed, hc_geometry *geometry, int *device,
                              hc_error *error) {
    hc_status status =
        hc_format_geometry(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes, geometry, error);
    if (status != HC_OK)
        return status;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_format_layout(&packed->format, geometry, layout);
    int found = -1;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const hc_component *part = &packed->components.part[i];
        if (layout[i].present && !part->data)
            return hc_fail(error, HC_VALUE, "%s lacks a component of its format", name);
        if (layout[i].present && found >= 0 && part->device != found)
            return hc_fail(error, HC_VALUE, "%s has components on the devices %d and %d, expected one device", name,
                           found, part->device);
        found = layout[i].present ? part->device : found;
    }
    *device = found < 0 ? HC_HOST : found;
    if (packed->prepacked && *device == HC_HOST &&
        !is_of((const hc_prepacked_origin *)packed->prepacked, &packed->format, geometry))
        return hc_fail(error, HC_VALUE, "%s: its panels belong to an array of another format or shape", name);
    return HC_OK;
}

hc_status hc_check_packed(const char *name, const hc_packed *packed, hc_geometry *geometry, hc_error *error) {
    int device;
    const hc_status status = check_packed(name, packed, geometry, &device, error);
    return status == HC_OK ? hc_check_host(name, device, error) : status;
}

/* Checks one side of matmul: its shape, and that a packed side is quantized along the reduction axis. */
static hc_status check_side(const char *name, const hc_operand *operand, bool is_b, hc_side *side, hc_error *error) {
    char text[96];
    if (operand->dense) {
        hc_status status = check_view(name, operand->dense, error);
        if (status != HC_OK)
            return status;
        side->ndim = operand->dense->ndim;
        side->device = operand->dense->device;
    } else {
        hc_status status = check_packed(name, operand->packed, &side->geometry, &side->device, error);
        if (status != HC_OK)
            return status;
        side->ndim = operand->packed->ndim;
    }
    const int64_t *shape = operand->dense ? operand->dense->shape : operand->packed->shape;
    for (int i = 0; i < side->ndim; i++)
        side->shape[i] = shape[i];
    if (side->ndim < 2)
        return hc_fail(error, HC_VALUE, "matmul: %s has shape %s, expected at least two dimensions", name,
                       shape_text(side->ndim, side->shape, text));
    const int reduction = side->ndim - (is_b ? 2 : 1);
    if (operand->packed && (operand->packed->n_axes != 1 || operand->packed->axes[0] != reduction)) {
        char axes[96];
        int64_t got[HC_MAX_DIMS];
        for (int i = 0; i < operand->packed->n_axes; i++)
            got[i] = operand->packed->axes[i];
        return hc_fail(error, HC_VALUE, "matmul: %s is quantized along axis %s, its reduction axis is %d", name,
                       shape_text(operand->packed->n_axes, got, axes), reduction);
    }
    return HC_OK;
}

hc_status hc_check_bias(const char *operation, const hc_view *bias, int64_t n, hc_error *error) {
    char text[96];
    if (!bias)
        return HC_OK;
    if (bias->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "%s: bias must be float32", operation);
    if (bias->ndim != 1 || bias->shape[0] != n)
        return hc_fail(error, HC_VALUE, "%s: bias has shape %s, expected (%lld,)", operation,
                       shape_text(bias->ndim, bias->shape, text), (long long)n);
    return HC_OK;
}

hc_status hc_matmul_shape(const char *name, int a_ndim, const int64_t *a, int b_ndim, const int64_t *b, int *ndim,
                          int64_t shape[HC_MAX_DIMS], hc_error *error) {
    char text[96], other[96];
    if (a_ndim < 2 || b_ndim < 2 || a_ndim > HC_MAX_DIMS || b_ndim > HC_MAX_DIMS)
        return hc_fail(error, HC_VALUE, "%s: shapes %s and %s, expected 2 to %d dimensions", name,
                       shape_text(a_ndim, a, text), shape_text(b_ndim, b, other), HC_MAX_DIMS);
    if (b[b_ndim - 2] != a[a_ndim - 1])
        return hc_fail(error, HC_VALUE, "%s: b has %lld rows but a has %lld columns", name, (long long)b[b_ndim - 2],
                       (long long)a[a_ndim - 1]);
    *ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
    int64_t values = sizeof(double);
    bool fits = true;
    for (int i = 0; i < *ndim; i++) {
        const int in_a = i - (*ndim - a_ndim), in_b = i - (*ndim - b_ndim), last = *ndim - i;
        const int64_t of_a = in_a >= 0 ? a[in_a] : 1, of_b = in_b >= 0 ? b[in_b] : 1;
        if (last > 2 && of_a != of_b && of_a != 1 && of_b != 1)
            return hc_fail(error, HC_VALUE, "%s: leading dimensions %s of a and %s of b do not broadcast", name,
                           shape_text(a_ndim - 2, a, text), shape_text(b_ndim - 2, b, other));
        shape[i] = last == 2 || (last > 2 && of_b == 1) ? of_a : of_b;
        fits = fits && hc_mul_size(values, hc_max(shape[i], 1), &values);
    }
    if (!fits)
        return hc_fail(error, HC_VALUE, "%s: a result of shape %s overflows the size of an array", name,
                       shape_text(*ndim, shape, text));
    return HC_OK;
}

hc_status hc_check_matmul(const hc_operand *a, const hc_operand *b, const hc_format *activations, const hc_view *bias,
                          const hc_view *out, hc_side sides[2], hc_error *error) {
    hc_status status = check_side("a", a, false, &sides[0], error);
    if (status == HC_OK)
        status = check_side("b", b, true, &sides[1], error);
    if (status != HC_OK)
        return status;
    if (activations && !(a->dense || b->dense))
        return hc_fail(error, HC_VALUE, "matmul: activations= applies to a dense operand, but both are quantized");
    if (activations && a->dense && b->dense)
        return hc_fail(error, HC_VALUE, "matmul: activations= needs a quantized operand, both are dense");
    if (activations) {
        const int dense = a->dense ? 0 : 1, axis = sides[dense].ndim - 1 - dense;
        const hc_view *x = a->dense ? a->dense : b->dense;
        status = hc_format_geometry(activations, x->ndim, x->shape, 1, &axis, &sides[dense].geometry, error);
        if (status != HC_OK)
            return status;
    }
    int64_t want[HC_MAX_DIMS];
    int ndim;
    char text[96], wanted[96];
    status =
        hc_matmul_shape("matmul", sides[0].ndim, sides[0].shape, sides[1].ndim, sides[1].shape, &ndim, want, error);
    if (status != HC_OK)
        return status;
    if (out->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "matmul: out must be float32");
    if (out->ndim != ndim || memcmp(out->shape, want, (size_t)ndim * sizeof *want) != 0)
        return hc_fail(error, HC_VALUE, "matmul: out has shape %s, expected %s",
                       shape_text(out->ndim, out->shape, text), shape_text(ndim, want, wanted));
    status = check_view("out", out, error);
    return status == HC_OK ? hc_check_bias("linear", bias, want[ndim - 1], error) : status;
}

hc_status hc_check_conv2d(const hc_view *x, const hc_operand *w, const hc_view *bias, const hc_window *window,
                          const hc_format *activations, const hc_view *out, hc_conv_shape *c, hc_error *error) {
    char text[96], wanted[96];
    hc_status status = hc_check_view("x", x, error);
    if (status == HC_OK)
        status = w->dense ? hc_check_view("w", w->dense, error) : hc_check_packed("w", w->packed, &c->geometry, error);
    if (status == HC_OK && activations)
        status = hc_format_check(activations, error);
    if (status != HC_OK)
        return status;
    const int w_ndim = w->dense ? w->dense->ndim : w->packed->ndim;
    const int64_t *w_shape = w->dense ? w->dense->shape : w->packed->shape;
    if (x->ndim != 4)
        return hc_fail(error, HC_VALUE, "conv2d: x has shape %s, expected four dimensions",
                       shape_text(x->ndim, x->shape, text));
    if (w_ndim != 4)
        return hc_fail(error, HC_VALUE, "conv2d: w has shape %s, expected (filters, channels / groups, r, s)",
                       shape_text(w_ndim, w_shape, text));
    if (w->packed &&
        (w->packed->n_axes != 3 || w->packed->axes[0] != 2 || w->packed->axes[1] != 3 || w->packed->axes[2] != 1)) {
        int64_t got[HC_MAX_DIMS];
        for (int i = 0; i < w->packed->n_axes; i++)
            got[i] = w->packed->axes[i];
        return hc_fail(error, HC_VALUE,
                       "conv2d: w is quantized along axis %s, expected (2, 3, 1): name axis=(2, 3, 1) where it is made",
                       shape_text(w->packed->n_axes, got, text));
    }
    c->n = x->shape[0], c->channels = x->shape[1], c->height = x->shape[2], c->width = x->shape[3];
    c->filters = w_shape[0], c->group_channels = w_shape[1], c->r = w_shape[2], c->s = w_shape[3];
    const int64_t filter_values = c->group_channels * c->r * c->s;
    if (filter_values > INT32_MAX) /* panels count their steps in int32; this also keeps their bytes within int64 */
        return hc_fail(error, HC_VALUE, "conv2d: w has filters of %lld values, expected at most 2^31 - 1",
                       (long long)filter_values);
    const int64_t groups = window->groups;
    if (groups < 1)
        return hc_fail(error, HC_VALUE, "conv2d: groups is %lld, expected at least 1", (long long)groups);
    if (c->filters % groups != 0)
        return hc_fail(error, HC_VALUE, "conv2d: w has %lld filters, not a multiple of groups %lld",
                       (long long)c->filters, (long long)groups);
    if (c->channels % groups != 0 || c->channels / groups != c->group_channels)
        return hc_fail(error, HC_VALUE, "conv2d: x has %lld channels, w with groups %lld needs %lld",
                       (long long)c->channels, (long long)groups, (long long)(c->group_channels * groups));
    for (int i = 0; i < 2; i++) {
        const int64_t limit = 1 << 30; /* keeps every index of a window within int64 */
        if (window->stride[i] < 1 || window->stride[i] > limit)
            return hc_fail(error, HC_VALUE, "conv2d: stride %lld, expected 1 to 2^30", (long long)window->stride[i]);
        if (window->dilation[i] < 1 || window->dilation[i] > limit)
            return hc_fail(error, HC_VALUE, "conv2d: dilation %lld, expected 1 to 2^30",
                           (long long)window->dilation[i]);
        if (window->pad_before[i] < 0 || window->pad_before[i] > limit)
            return hc_fail(error, HC_VALUE, "conv2d: padding %lld, expected 0 to 2^30",
                           (long long)window->pad_before[i]);
    }
    c->out_height = out->ndim == 4 ? out->shape[2] : 0;
    c->out_width = out->ndim == 4 ? out->shape[3] : 0;
    if (out->dtype != HC_F32)
        return hc_fail(error, HC_TYPE, "conv2d: out must be float32");
    const int64_t want[4] = {c->n, c->filters, c->out_height, c->out_width};
    if (out->ndim != 4 || out->shape[0] != want[0] || out->shape[1] != want[1])
        return hc_fail(error, HC_VALUE, "conv2d: out has shape %s, expected %s",
                       shape_text(out->ndim, out->shape, text), shape_text(4, want, wanted));
    status = hc_check_view("out", out, error);
    if (status == HC_OK)
        status = hc_check_bias("conv2d", bias, c->filters, error);
    return status == HC_OK && bias ? hc_check_host("conv2d: bias", bias->device, error) : status;
}
