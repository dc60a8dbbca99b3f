/* Converts Python objects to the plain data of the C API. A call holds the objects that it borrows until `release`. */
#ifndef HC_ARGUMENTS_H
#define HC_ARGUMENTS_H

#include "python/limited.h"

#include "hc.h"

enum { HC_MAX_HELD = 32 };
typedef struct {
    PyObject *object[HC_MAX_HELD];
    int count;
    int device; /* of the call: arrays in another memory are refused */
} hc_held;
int hc_hold(hc_held *held, PyObject *object);
void hc_release(hc_held *held);

/* A float array (float16, float32, float64; uint16 stands for bfloat16), or one on a device: (address, dtype, shape,
 * strides in bytes, number of the device). */
int hc_parse_view(PyObject *object, const char *name, hc_view *view, hc_held *held);
/* (family, bits, group, options...), or (such a tuple, n, m) for a format with a pattern */
int hc_parse_format(PyObject *object, hc_format *format);
/* As PyArg_ParseTuple, with a TypeError for anything but a tuple. */
int hc_parse_tuple(PyObject *object, const char *name, const char *format, ...);
int hc_parse_sizes(PyObject *object, const char *name, int64_t *sizes, int *count);
int hc_parse_axes(PyObject *object, int *axes, int *count);
#define HC_PREPACKED_CAPSULE "heterocompute.prepacked"
#define HC_PREPACKED_FILTERS_CAPSULE "heterocompute.prepacked_filters"

/* Format, shape and axes of a packed array, and the layout of its components. */
int hc_parse_described(PyObject *format, PyObject *shape, PyObject *axes, hc_packed *packed, hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]);
/* (format, shape, axes, components[, capsule of prepack]); components' dtypes, shapes and strides are checked against
 * the layout. On a device: (format, shape, axes, {component: address}, address of panels or 0, number of the device), all
 * in C order. */
int hc_parse_packed(PyObject *object, const char *name, bool writable, hc_packed *packed, hc_held *held);
/* The settings of a call, and where a device computes it. */
typedef struct {
    hc_run run; /* first: the function of a device's route gets its address */
    void *stream;
    PyObject *allocate; /* a function of a number of bytes that returns an address; or NULL */
    bool waits;         /* for invalid values: `allocate` was None */
    bool device_order;  /* sums of floats may have the order of the device's matrix units */
    void *workspace;    /* memory of the caller for the next attempt */
    int64_t wanted;     /* bytes of the caller's memory that the call needs: nothing ran */
    int64_t row;        /* the first row with an invalid value, or -1 */
    bool failed;        /* the driver failed */
} hc_settings;
/* (isa mask, threads or 0 for all processors[, path[, route[, one order[, 1 + number of a device, stream, allocate, device
 * order]]]]); allocate is None, or, if the call waits for nothing, True or a function. `settings` does not resolve 0 threads */
int hc_parse_settings(PyObject *object, hc_settings *settings, hc_held *held);
int hc_parse_call(PyObject *object, hc_settings *settings, hc_held *held);
/* The same for functions of the host alone. */
int hc_parse_run(PyObject *object, hc_run *run);
/* None, or (kind, value) */
int hc_parse_clip(PyObject *object, hc_clip *clip);
/* The names of paths, those of the CPU before those of devices, each once; NULL past the end. A run has a path's number + 1. */
const char *hc_any_path_name(int number);
/* Sets the exception of a status. */
PyObject *hc_raise(hc_status status, const hc_error *error);

extern const char *const HC_COMPONENT_NAMES[HC_N_COMPONENTS];
int hc_numpy_type(hc_dtype dtype);

#endif
