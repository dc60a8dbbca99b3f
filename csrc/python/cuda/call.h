/* A call whose run is for a device: its arguments, and how it is launched. */
#ifndef HC_PYTHON_CUDA_CALL_H
#define HC_PYTHON_CUDA_CALL_H

#include "python/call.h"
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
    hc_view x, out, scales; /* scales: of steps */
    hc_packed packed;       /* the answer of quantize, the right side of matmul, the scales of chance */
    const hc_packed *a;     /* the left side of matmul, if it is packed */
    const hc_format *activations;
    hc_format format;
    int n_axes, axes[HC_MAX_DIMS];
    bool checks; /* it waits for values that the format refuses, if the settings say so */
    const float *bias;
    hc_cuda_clip clip;       /* of what is rounded; its note of pass */
    float between, infinity; /* of dequantize and chance */
    float *slope;            /* of steps and slope sums */
    hc_levels levels;
    uint64_t seed;
    hc_window window; /* of conv2d */
    hc_layer layer;
    hc_attention attention;
    bool relu;
    int n, m; /* prune: n of m values, and where they are stored; values: also what slope sums write */
    float *values;
    uint8_t *metadata;
} hc_cuda_call;

/* Fills a call that is all zeros. */
static inline void hc_cuda_fill_matmul(hc_cuda_call *call, const hc_operand *a, const hc_format *activations,
                                       const hc_packed *b, const hc_view *bias, const hc_view *out) {
    call->what = MATMUL;
    call->packed = *b;
    call->a = a->packed;
    call->activations = activations;
    call->out = *out;
    if (a->dense)
        call->x = *a->dense;
    for (int i = 0; i < 2; i++) /* planned as rows over the reduction axis */
        call->packed.shape[i] = b->shape[1 - i];
    call->packed.axes[0] = 1 - b->axes[0];
    call->bias = bias ? bias->data : NULL;
}

/* Launches without the GIL, unless settings->wanted is set: then nothing ran, and the caller's memory is needed. */
hc_status hc_cuda_run_call(hc_settings *settings, const hc_cuda_call *call, hc_error *error);
/* After a status of HC_OK: whether the call runs again, with memory of the caller; false with or without an exception. */
bool hc_cuda_lends(hc_settings *settings);
/* The first row with a value that the format refuses, or -1; NULL with the exception of the status. */
PyObject *hc_cuda_answer(const hc_settings *settings, hc_status status, const hc_error *error, hc_held *held);
/* All of it. */
PyObject *hc_cuda_finish(hc_settings *settings, const hc_cuda_call *call, hc_held *held);

/* Lets the core's route for matmuls use this device; once the driver is open. */
void hc_cuda_offer_route(void);

/* (chosen, [(path, what, reason, seconds, id, work)], kernels in the order of their launches): nothing is launched. */
PyObject *hc_cuda_explain(const hc_settings *settings, const hc_cuda_call *call);

/* None, or (address, hc_cuda_note_kind, low, high). */
int hc_cuda_parse_note(PyObject *object, hc_cuda_note *note);

/* The address of memory on a device that an integer names. */
static inline void *hc_address(PyObject *number) { return (void *)(uintptr_t)PyLong_AsUnsignedLongLong(number); }

#endif
