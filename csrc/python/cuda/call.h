/* A call of the binding of CUDA: what it parses, and how it runs. */
#ifndef HC_PYTHON_CUDA_CALL_H
#define HC_PYTHON_CUDA_CALL_H

#include "python/cuda/raise.h"

/* An operation with its arguments, planned twice: for the size of its workspace, and with it. */
typedef struct {
    enum {
        QUANTIZE,
        FAKE_QUANTIZE,
        DEQUANTIZE,
        PREPACK,
        MATMUL,
        CONV2D,
        CHANCE,
        PASS,
        STEPS,
        SLOPE_SUMS,
        PRUNE,
        LAYER,
        ATTENTION
    } what;
    int device;
    void *stream;
    PyObject *allocate;     /* of the caller; or NULL */
    hc_view x, out, scales; /* scales: of steps */
    hc_packed a, packed;    /* packed: the answer of quantize, the right side of matmul, the scales of chance */
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS];
    bool has_a, has_format;
    bool checks; /* waits for values that the format refuses, unless the caller allocates */
    bool device_order;
    const float *bias;
    hc_cuda_clip clip;       /* of what is rounded; its note of pass */
    float between, infinity; /* of dequantize and chance */
    float *slope;            /* of steps and slope sums */
    hc_levels levels;
    uint64_t seed;
    hc_window window; /* of conv2d */
    hc_layer layer;
    hc_attention attention;
    hc_packed kept[2]; /* keys and values, if they are packed */
    bool relu;
    int n, m; /* prune: n of m values, and where they are stored; values: also what slope sums write */
    float *values;
    uint8_t *metadata;
} hc_cuda_call;

int hc_cuda_parse_view(PyObject *object, hc_view *view);
int hc_cuda_parse_packed(PyObject *object, hc_packed *packed);

/* Every call begins with (device, stream, allocate): allocate is None, or a function of a number of bytes that returns an
 * address; the call then waits for nothing. Then n arguments follow. */
enum { AFTER_START = 3 };
int hc_cuda_parse_start(PyObject *args, Py_ssize_t n, hc_cuda_call *call);
/* n arguments, or two more: None or (kind, value) of a clip, and None or (address, hc_cuda_note_kind, low, high) of a note. */
int hc_cuda_parse_rounding(PyObject *args, int n, hc_cuda_call *call);
static inline PyObject *argument(PyObject *args, int number) { return PyTuple_GET_ITEM(args, AFTER_START + number); }

/* Memory for a plan for a device, or, unless it is 0, for any of that architecture; NULL with an exception. */
hc_cuda_plan *hc_cuda_new_plan(int device, int architecture, bool device_order);
hc_status hc_cuda_plan_call(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, hc_error *error);
/* Launches; returns the first row with a value that the format refuses, or -1. */
PyObject *hc_cuda_finish_call(const hc_cuda_call *call);

#endif
