/* Matmuls of plain arguments in one step: float arrays of NumPy's own type, and packed arrays, whose view is kept on
 * the array. If an argument is anything else, or is invalid, the call returns None without side effects. The general
 * path (heterocompute/products/matmul.py) then handles the call: it knows all kinds of arguments and every error
 * message.
 */
#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

#define SEEN_CAPSULE "heterocompute.seen"
enum { MOST_TYPES = 4, MOST_PART_DIMS = 3 };

/* types whose instances have the slot `_seen`; subclasses are excluded, since they may change anything */
static PyTypeObject *packed_types[MOST_TYPES];
static PyObject *seen_name, *packed_name;

PyObject *hc_direct_types_method(PyObject *self, PyObject *args) {
    (void)self;
    if (PyTuple_GET_SIZE(args) > MOST_TYPES)
        return PyErr_Format(PyExc_ValueError, "direct_types: at most %d types", MOST_TYPES);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        if (!PyType_Check(PyTuple_GET_ITEM(args, i)))
            return PyErr_Format(PyExc_TypeError, "direct_types: expected types");
    if ((!seen_name && !(seen_name = PyUnicode_InternFromString("_seen"))) ||
        (!packed_name && !(packed_name = PyUnicode_InternFromString("_packed"))))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        packed_types[i] = (PyTypeObject *)Py_NewRef(PyTuple_GET_ITEM(args, i)); /* for good */
    return Py_NewRef(Py_None);
}

static bool is_packed_type(PyTypeObject *type) {
    for (int i = 0; i < MOST_TYPES && packed_types[i]; i++)
        if (packed_types[i] == type)
            return true;
    return false;
}

/* The memory of an array when it was seen. Its owner may resize or reshape the same array later. */
typedef struct {
    PyArrayObject *array;
    const void *data;
    int type, ndim;
    npy_intp shape[MOST_PART_DIMS], strides[MOST_PART_DIMS];
} hc_glimpse;

static void take_glimpse(PyArrayObject *array, hc_glimpse *glimpse) {
    *glimpse = (hc_glimpse){array, PyArray_DATA(array), PyArray_TYPE(array), PyArray_NDIM(array), {0}, {0}};
    for (int i = 0; i < glimpse->ndim && i < MOST_PART_DIMS; i++) {
        glimpse->shape[i] = PyArray_DIM(array, i);
        glimpse->strides[i] = PyArray_STRIDE(array, i);
    }
}

static bool is_as_it_was(const hc_glimpse *was) {
    bool same = PyArray_DATA(was->array) == was->data && PyArray_TYPE(was->array) == was->type &&
                PyArray_NDIM(was->array) == was->ndim && PyArray_ISALIGNED(was->array) &&
                PyArray_ISNOTSWAPPED(was->array);
    for (int i = 0; same && i < was->ndim && i < MOST_PART_DIMS; i++)
        same = PyArray_DIM(was->array, i) == was->shape[i] && PyArray_STRIDE(was->array, i) == was->strides[i];
    return same;
}

struct hc_seen {
    hc_packed packed;
    hc_held held; /* objects that it points into */
    int n;
    hc_glimpse part[2 * HC_MAX_HELD];
};

static void free_seen(PyObject *capsule) {
    hc_seen *seen = PyCapsule_GetPointer(capsule, SEEN_CAPSULE);
    hc_release(&seen->held);
    PyMem_Free(seen);
}

/* Clears an error that the general path will report. Errors of memory and interrupts stay. */
void hc_forget(void) {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
}

/* A new reference, which is also kept on the object. NULL, without an exception, if the object is not as expected. */
static PyObject *look_at(PyObject *object) {
    hc_seen *seen = PyMem_Calloc(1, sizeof *seen);
    PyObject *tuple = seen ? PyObject_CallMethodNoArgs(object, packed_name) : NULL;
    const bool is_far = tuple && PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == 6; /* on a device */
    if (is_far)
        seen->held.device = 1 + (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, 5));
    const bool fits = tuple && hc_parse_packed(tuple, "w", false, &seen->packed, &seen->held);
    for (int i = 0; fits && i < seen->held.count; i++) {
        if (!PyArray_Check(seen->held.object[i]))
            continue; /* panels, which cannot change */
        PyArrayObject *array = (PyArrayObject *)seen->held.object[i];
        take_glimpse(array, &seen->part[seen->n++]);
        PyObject *base = PyArray_BASE(array);
        if (base && PyArray_Check(base)) /* a view of values as codes, which is a new array */
            take_glimpse((PyArrayObject *)base, &seen->part[seen->n++]);
    }
    Py_XDECREF(tuple);
    PyObject *capsule = fits ? PyCapsule_New(seen, SEEN_CAPSULE, free_seen) : NULL;
    if (!capsule && seen) {
        hc_release(&seen->held);
        PyMem_Free(seen);
    }
    if (capsule && PyObject_SetAttr(object, seen_name, capsule) < 0)
        Py_CLEAR(capsule);
    hc_forget();
    return capsule;
}

static const hc_seen *seen_of(PyObject *object, hc_held *held) {
    PyObject *capsule = PyObject_GetAttr(object, seen_name); /* AttributeError: never seen */
    const hc_seen *seen =
        capsule && PyCapsule_IsValid(capsule, SEEN_CAPSULE) ? PyCapsule_GetPointer(capsule, SEEN_CAPSULE) : NULL;
    for (int i = 0; seen && i < seen->n; i++)
        if (!is_as_it_was(&seen->part[i]))
            seen = NULL;
    if (!seen) {
        hc_forget();
        Py_XDECREF(capsule);
        capsule = look_at(object);
        seen = capsule ? PyCapsule_GetPointer(capsule, SEEN_CAPSULE) : NULL;
    }
    if (seen && !hc_hold(held, capsule))
        seen = NULL;
    Py_XDECREF(capsule);
    return seen;
}

const hc_packed *hc_packed_of(PyObject *object, hc_held *held) {
    const hc_seen *seen = is_packed_type(Py_TYPE(object)) ? seen_of(object, held) : NULL;
    return seen && seen->held.device == held->device ? &seen->packed : NULL;
}

static bool is_plain(PyObject *object) {
    if (!PyArray_CheckExact(object))
        return false;
    PyArrayObject *array = (PyArrayObject *)object;
    const int type = PyArray_TYPE(array);
    return (type == NPY_FLOAT32 || type == NPY_FLOAT64 || type == NPY_FLOAT16) && PyArray_ISALIGNED(array) &&
           PyArray_ISNOTSWAPPED(array) && PyArray_NDIM(array) >= 1 && PyArray_NDIM(array) < HC_MAX_DIMS &&
           PyArray_SIZE(array) > 0;
}

static void view_of(PyArrayObject *array, hc_view *view) {
    const int type = PyArray_TYPE(array);
    view->data = PyArray_DATA(array);
    view->device = HC_HOST;
    view->dtype = type == NPY_FLOAT32 ? HC_F32 : type == NPY_FLOAT64 ? HC_F64 : HC_F16;
    view->ndim = PyArray_NDIM(array);
    for (int i = 0; i < view->ndim; i++) {
        view->shape[i] = PyArray_DIM(array, i);
        view->strides[i] = PyArray_STRIDE(array, i);
    }
}

static void add_axis(hc_view *view, int axis) {
    for (int i = view->ndim++; i > axis; i--) {
        view->shape[i] = view->shape[i - 1];
        view->strides[i] = view->strides[i - 1];
    }
    view->shape[axis] = 1;
    view->strides[axis] = hc_dtype_size(view->dtype);
}

static void exchange(int64_t *pair) {
    const int64_t first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
}

bool hc_side_as_given(PyObject *object, hc_side *side, hc_held *held) {
    side->operand = (hc_operand){0};
    side->seen = NULL;
    side->array = NULL;
    side->is_dense = side->is_vector = false;
    const bool is_far = PyTuple_CheckExact(object); /* on a device */
    if (is_far || is_plain(object)) {
        side->array = is_far ? NULL : (PyArrayObject *)object;
        side->is_dense = true;
        if (is_far && !hc_parse_view(object, "x", &side->view, held)) {
            hc_forget();
            return false;
        }
        if (!is_far)
            view_of(side->array, &side->view);
        side->operand.dense = &side->view;
        return hc_hold(held, object);
    }
    if (!is_packed_type(Py_TYPE(object)) || !(side->seen = seen_of(object, held)) ||
        side->seen->held.device != held->device)
        return false;
    side->packed = side->seen->packed;
    side->operand.packed = &side->packed;
    for (int i = 0; i < side->packed.ndim; i++)
        if (side->packed.shape[i] == 0)
            return false;
    return true;
}

bool hc_side_of(PyObject *object, bool is_b, bool turned, hc_side *side, hc_held *held) {
    if (!hc_side_as_given(object, side, held))
        return false;
    if (side->is_dense) {
        if (turned && side->view.ndim != 2)
            return false;
        side->is_vector = side->view.ndim == 1;
        if (side->is_vector)
            add_axis(&side->view, is_b ? 1 : 0);
        if (turned) {
            exchange(side->view.shape);
            exchange(side->view.strides);
        }
        return true;
    }
    hc_packed *packed = &side->packed;
    if (packed->ndim < 2 || packed->n_axes != 1 || (turned && packed->ndim != 2))
        return false;
    if (turned) {
        exchange(packed->shape);
        packed->axes[0] = 1 - packed->axes[0];
    }
    return packed->axes[0] == packed->ndim - (is_b ? 2 : 1);
}

/* Addresses of the first and after the last value. */
static void extent(PyArrayObject *array, const char **from, const char **to) {
    *from = PyArray_BYTES(array);
    *to = *from + PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        const npy_intp reach = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        *(reach < 0 ? from : to) += reach;
    }
}

static bool are_apart(PyArrayObject *a, PyArrayObject *b) {
    const char *a_from, *a_to, *b_from, *b_to;
    extent(a, &a_from, &a_to);
    extent(b, &b_from, &b_to);
    return a_to <= b_from || b_to <= a_from;
}

static bool is_apart_from(PyArrayObject *out, const hc_side *side) {
    if (side->array)
        return are_apart(out, side->array);
    for (int i = 0; i < side->seen->n; i++)
        if (PyArray_SIZE(side->seen->part[i].array) && !are_apart(out, side->seen->part[i].array))
            return false;
    return true;
}

/* `out`, if it is plain, has the shape of the result and does not overlap an input. */
static PyArrayObject *accepted(PyObject *out, int ndim, const npy_intp *shape, const hc_side sides[2], PyObject *bias) {
    if (!PyArray_CheckExact(out))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)out;
    bool fits = PyArray_TYPE(array) == NPY_FLOAT32 && PyArray_ISBEHAVED(array) && PyArray_NDIM(array) == ndim &&
                PyArray_IS_C_CONTIGUOUS(array);
    for (int i = 0; fits && i < ndim; i++)
        fits = PyArray_DIM(array, i) == shape[i];
    for (int i = 0; fits && i < 2; i++)
        fits = is_apart_from(array, &sides[i]);
    if (fits && bias != Py_None)
        fits = are_apart(array, (PyArrayObject *)bias);
    return fits ? (PyArrayObject *)Py_NewRef(out) : NULL;
}

/* A new array. A large one begins at a cache line, unlike NumPy's memory, so that a store of 64 bytes is within a line. */
static PyArrayObject *new_result(int ndim, const npy_intp *shape) {
    enum { LINE = HC_CACHE_LINE / sizeof(float), LARGE = 1 << 18 };
    npy_intp size = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] > ((npy_intp)1 << 60) / (size ? size : 1)) /* the general path says that it overflows */
            return NULL;
        size *= shape[i];
    }
    if (size < LARGE)
        return (PyArrayObject *)PyArray_SimpleNew(ndim, shape, NPY_FLOAT32);
    npy_intp room = size + LINE;
    PyArrayObject *memory = (PyArrayObject *)PyArray_SimpleNew(1, &room, NPY_FLOAT32);
    if (!memory)
        return NULL;
    char *first = PyArray_BYTES(memory);
    first += -(uintptr_t)first % HC_CACHE_LINE;
    PyArrayObject *result = (PyArrayObject *)PyArray_SimpleNewFromData(ndim, shape, NPY_FLOAT32, (void *)first);
    if (!result || PyArray_SetBaseObject(result, (PyObject *)memory) < 0) { /* which takes the reference */
        if (!result)
            Py_DECREF(memory);
        Py_CLEAR(result);
    }
    return result;
}

PyObject *hc_answer_of(PyObject *out, int ndim, const int64_t *sizes, const hc_side sides[2], PyObject *bias,
                       hc_view *view) {
    npy_intp shape[HC_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = (npy_intp)sizes[i];
    PyArrayObject *answer = out == Py_None ? new_result(ndim, shape) : accepted(out, ndim, shape, sides, bias);
    if (answer)
        view_of(answer, view);
    return (PyObject *)answer;
}

typedef struct {
    hc_settings settings;
    bool has_format, has_bias, stopped;
    hc_format format;
    hc_view bias;
    hc_side side[2];
} hc_direct;

static void choose_threads(hc_direct *d, const hc_view *out, int64_t k) {
    double rows = 1, columns = 1;
    for (int i = 0; i < out->ndim; i++) {
        rows *= columns;
        columns = (double)out->shape[i];
    }
    const double products = (rows + 3) * columns * (double)k; /* weights are read or decoded once, see hc_run_for */
    d->settings.run.n_threads = hc_threads_for(d->settings.run.n_threads, products);
}

static bool run_product(hc_direct *d, const hc_view *out) {
    const bool may_want_blas = d->side[0].operand.dense && d->side[1].operand.dense && d->settings.run.route != 1;
    hc_error error;
    hc_status status;
    if (may_want_blas && !hc_blas_looked()) /* the general path looks for a BLAS */
        return false;
    do
        HC_WITHOUT_GIL(hc_matmul(&d->settings.run, &d->side[0].operand, &d->side[1].operand,
                                 d->has_format ? &d->format : NULL, d->has_bias ? &d->bias : NULL, out, &error));
    while (status == HC_OK && hc_cuda_lends(&d->settings));
    d->stopped = status == HC_STOPPED || PyErr_Occurred();
    if (status == HC_MEMORY || (status != HC_OK && d->settings.failed)) {
        hc_raise_driver(status, &error);
        d->stopped = true;
    }
    return status == HC_OK;
}

/* The result, or NULL, with or without an exception. */
static PyObject *try_product(hc_direct *d, PyObject *bias, PyObject *out_object, hc_held *held) {
    const hc_side *a = &d->side[0], *b = &d->side[1];
    const int64_t *a_shape = a->is_dense ? a->view.shape : a->packed.shape;
    const int64_t *b_shape = b->is_dense ? b->view.shape : b->packed.shape;
    const int a_ndim = a->is_dense ? a->view.ndim : a->packed.ndim;
    const int b_ndim = b->is_dense ? b->view.ndim : b->packed.ndim;
    int64_t full[HC_MAX_DIMS], shape[HC_MAX_DIMS];
    int ndim, n = 0;
    hc_error error;
    if (hc_matmul_shape("matmul", a_ndim, a_shape, b_ndim, b_shape, &ndim, full, &error) != HC_OK)
        return NULL;
    for (int i = 0; i < ndim; i++)
        if (!(i == ndim - 2 && a->is_vector) && !(i == ndim - 1 && b->is_vector))
            shape[n++] = full[i];
    if (d->has_bias && d->bias.shape[0] != full[ndim - 1])
        return NULL;
    hc_view out;
    if (d->settings.run.device != HC_HOST) /* of memory that overlaps nothing */
        return hc_parse_view(out_object, "out", &out, held) && run_product(d, &out) ? Py_NewRef(out_object) : NULL;
    PyObject *answer = hc_answer_of(out_object, n, shape, d->side, bias, &out);
    if (!answer)
        return NULL;
    if (b->is_vector)
        add_axis(&out, out.ndim);
    if (a->is_vector)
        add_axis(&out, out.ndim - 1);
    choose_threads(d, &out, a_shape[a_ndim - 1]);
    if (!run_product(d, &out))
        Py_CLEAR(answer);
    return answer;
}

bool hc_bias_of(PyObject *object, hc_view *bias, hc_held *held) {
    if (PyTuple_CheckExact(object))
        return hc_parse_view(object, "bias", bias, held) && bias->ndim == 1;
    if (!is_plain(object) || PyArray_NDIM((PyArrayObject *)object) != 1)
        return false;
    view_of((PyArrayObject *)object, bias);
    return bias->dtype == HC_F32 && hc_hold(held, object);
}

PyObject *hc_direct_method(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (n != 7)
        return PyErr_Format(PyExc_TypeError, "direct: expected 7 arguments, got %zd", n);
    PyObject *bias = args[4], *format = args[5];
    const bool is_linear = args[1] == Py_True;
    hc_direct d;
    hc_held held = {.count = 0};
    d.has_bias = bias != Py_None;
    d.has_format = format != Py_None;
    d.stopped = false;
    PyObject *answer = NULL;
    if (hc_parse_settings(args[0], &d.settings, &held) && hc_side_of(args[2], false, false, &d.side[0], &held) &&
        hc_side_of(args[3], true, is_linear, &d.side[1], &held) &&
        (!d.has_format || hc_parse_format(format, &d.format)) &&
        (!d.has_format || d.side[0].is_dense != d.side[1].is_dense) &&
        !(d.has_format && is_linear && !d.side[0].is_dense)) {
        if (!d.has_bias || hc_bias_of(bias, &d.bias, &held))
            answer = try_product(&d, bias, args[6], &held);
    }
    hc_release(&held);
    if (answer || d.stopped)
        return answer;
    hc_forget();
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
