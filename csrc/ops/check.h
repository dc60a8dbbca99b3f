/* Checks of arguments: one function per operation, called first. Accepted arguments are valid for the rest of ops/. */
#ifndef HC_CHECK_H
#define HC_CHECK_H

#include "formats/format.h"
#include "hc.h"

/* Fails unless memory of this device can be read here: for operations without routes. */
hc_status hc_check_host(const char *name, int device, hc_error *error);
/* Checks that dtype is a float type, that sizes are not negative and do not overflow, and that the view is on the
 * host. */
hc_status hc_check_view(const char *name, const hc_view *view, hc_error *error);
/* Number of values of a checked view. */
static inline int64_t hc_values(const hc_view *view) {
    int64_t values = 1;
    for (int i = 0; i < view->ndim; i++)
        values *= view->shape[i];
    return values;
}
/* Advances to the next value of a nonempty view in C order; false after the last. */
static inline bool hc_view_next(const hc_view *view, int64_t index[HC_MAX_DIMS], const char **value) {
    for (int i = view->ndim - 1; i >= 0; i--) {
        *value += view->strides[i];
        if (++index[i] < view->shape[i])
            return true;
        *value -= view->shape[i] * view->strides[i];
        index[i] = 0;
    }
    return false;
}
/* Checks that x can be quantized to this format along these axes. */
hc_status hc_check_encoding(const char *name, const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                            hc_geometry *geometry, hc_error *error);
/* Checks that the format learns a codebook or searches scales, that importance has the shape of x, and that its values
 * are finite and not negative. */
hc_status hc_check_importance(const char *name, const hc_view *importance, const hc_view *x, const hc_format *format,
                              hc_error *error);
/* The array that panels were packed from; an hc_prepacked begins with it. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
} hc_prepacked_origin;
/* Checks format, shape and axes, that every component exists and is on the host, and that panels, if any, belong to
 * this array. */
hc_status hc_check_packed(const char *name, const hc_packed *packed, hc_geometry *geometry, hc_error *error);

/* Shape and reduction axes of a dense or packed operand of a matmul. */
typedef struct {
    int ndim;
    int64_t shape[HC_MAX_DIMS];
    hc_geometry geometry; /* of a packed operand, and of a dense one that will be packed */
    int device;
} hc_side;
hc_status hc_check_bias(const char *operation, const hc_view *bias, int64_t n, hc_error *error);
/* Checks everything except devices, which the routes check. */
hc_status hc_check_matmul(const hc_operand *a, const hc_operand *b, const hc_format *activations, const hc_view *bias,
                          const hc_view *out, hc_side sides[2], hc_error *error);

typedef struct {
    int64_t n, channels, height, width;    /* x */
    int64_t filters, group_channels, r, s; /* w */
    int64_t out_height, out_width;
    hc_geometry geometry; /* of a packed w */
} hc_conv_shape;
hc_status hc_check_conv2d(const hc_view *x, const hc_operand *w, const hc_view *bias, const hc_window *window,
                          const hc_format *activations, const hc_view *out, hc_conv_shape *shape, hc_error *error);

#endif
