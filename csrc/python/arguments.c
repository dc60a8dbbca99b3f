/* Converts Python objects to the plain data of the C API, with the checks that keep memory safe. */
#include "python/arguments.h"

#include "cuda/hc_cuda.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#define NO_IMPORT_ARRAY
#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

const char *const HC_COMPONENT_NAMES[HC_N_COMPONENTS] = {"codes",       "scales",   "coarse", "codebook",
                                                         "zero_points", "metadata", "mean",   "minima"};

int hc_numpy_type(hc_dtype dtype) {
    static const int type[HC_N_DTYPES] = {NPY_FLOAT32, NPY_FLOAT64, NPY_FLOAT16, NPY_UINT16,
                                          NPY_UINT8,   NPY_INT8,    NPY_INT32,   NPY_INT64};
    return type[dtype];
}

void hc_release(hc_held *held) {
    while (held->count > 0)
        Py_DECREF(held->object[--held->count]);
}

int hc_hold(hc_held *held, PyObject *object) {
    if (held->count == HC_MAX_HELD) {
        PyErr_SetString(PyExc_RuntimeError, "a call holds too many arrays");
        return 0;
    }
    held->object[held->count++] = Py_NewRef(object);
    return 1;
}

/* Raises a class of heterocompute.base.errors, called with the arguments that `format` builds. */
static void raise_class(const char *name, const char *format, ...) {
    PyObject *module = PyImport_ImportModule("heterocompute.base.errors"), *class, *values = NULL, *error = NULL;
    va_list list;
    class = module ? PyObject_GetAttrString(module, name) : NULL;
    va_start(list, format);
    if (class)
        values = Py_VaBuildValue(format, list);
    va_end(list);
    if (values)
        error = PyObject_CallObject(class, values);
    if (error)
        PyErr_SetObject(class, error);
    Py_XDECREF(error);
    Py_XDECREF(values);
    Py_XDECREF(class);
    Py_XDECREF(module);
}

/* Refused(argument, index or None, value, text), from which Python builds the message. */
static void raise_refused(const hc_error *error) {
    PyObject *index = error->ndim < 0 ? Py_NewRef(Py_None) : PyTuple_New(error->ndim);
    for (int i = 0; index && i < error->ndim; i++) {
        PyObject *place = PyLong_FromLongLong(error->index[i]);
        if (place)
            PyTuple_SET_ITEM(index, i, place);
        else
            Py_CLEAR(index);
    }
    if (index)
        raise_class("Refused", "(sOds)", error->argument, index, error->value, error->text);
    Py_XDECREF(index);
}

PyObject *hc_raise(hc_status status, const hc_error *error) {
    if (status == HC_STOPPED) /* the signal has set its exception */
        return NULL;
    if (status == HC_MEMORY)
        PyErr_Format(PyExc_MemoryError, "%s", error->text);
    else if (status == HC_VALUE && error->argument)
        raise_refused(error);
    else
        raise_class(status == HC_TYPE          ? "WrongType"
                    : status == HC_UNSUPPORTED ? "Unsupported"
                                               : "WrongValue",
                    "(N)", PyUnicode_DecodeUTF8(error->text, (Py_ssize_t)strlen(error->text), "replace"));
    return NULL;
}

static int fill_view(PyArrayObject *array, const char *name, hc_view *view) {
    if (!PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array)) {
        PyErr_Format(PyExc_ValueError, "%s: expected an aligned array in native byte order", name);
        return 0;
    }
    if (PyArray_NDIM(array) > HC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions, at most %d are possible", name, PyArray_NDIM(array),
                     HC_MAX_DIMS);
        return 0;
    }
    view->data = PyArray_DATA(array);
    view->device = HC_HOST;
    view->ndim = PyArray_NDIM(array);
    for (int i = 0; i < view->ndim; i++) {
        view->shape[i] = PyArray_DIM(array, i);
        view->strides[i] = PyArray_STRIDE(array, i);
    }
    return 1;
}

/* The numbers of devices begin after that of the host. */
static int device_of(int number) { return HC_HOST + 1 + number; }

/* Memory of another device than that of the call is never read. */
static int is_of_call(const char *name, int device, const hc_held *held) {
    if (device == held->device)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s is on %s, expected an array %s", name, device == HC_HOST ? "the CPU" : "a device",
                 held->device == HC_HOST ? "on the CPU" : "on that of the call");
    return 0;
}

static int parse_far_view(PyObject *object, const char *name, hc_view *view, const hc_held *held) {
    static const char *const NAMES[] = {"float32", "float64", "float16", "bfloat16"};
    unsigned long long address;
    const char *dtype;
    PyObject *shape, *strides;
    int n_strides, number;
    if (!PyArg_ParseTuple(object, "KsOOi", &address, &dtype, &shape, &strides, &number) ||
        !hc_parse_sizes(shape, name, view->shape, &view->ndim) ||
        !hc_parse_sizes(strides, name, view->strides, &n_strides) || !is_of_call(name, device_of(number), held))
        return 0;
    view->data = (void *)(uintptr_t)address;
    view->device = device_of(number);
    int type = 0;
    while (type < (int)(sizeof NAMES / sizeof *NAMES) && strcmp(NAMES[type], dtype) != 0)
        type++;
    view->dtype = (hc_dtype)type;
    if (n_strides == view->ndim && type < (int)(sizeof NAMES / sizeof *NAMES))
        return 1;
    PyErr_Format(PyExc_TypeError, "%s: expected floats with a stride for each of %d dimensions, got %s", name,
                 view->ndim, dtype);
    return 0;
}

int hc_parse_view(PyObject *object, const char *name, hc_view *view, hc_held *held) {
    if (PyTuple_Check(object))
        return parse_far_view(object, name, view, held);
    if (!PyArray_Check(object)) {
        PyObject *type = PyType_GetName(Py_TYPE(object));
        if (type)
            PyErr_Format(PyExc_TypeError, "%s: expected an array, got %U", name, type);
        Py_XDECREF(type);
        return 0;
    }
    if (!is_of_call(name, HC_HOST, held))
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    switch (PyArray_TYPE(array)) {
    case NPY_FLOAT32:
        view->dtype = HC_F32;
        break;
    case NPY_FLOAT64:
        view->dtype = HC_F64;
        break;
    case NPY_FLOAT16:
        view->dtype = HC_F16;
        break;
    case NPY_UINT16:
        view->dtype = HC_BF16;
        break;
    default:
        PyErr_Format(PyExc_TypeError, "%s: expected float16, bfloat16, float32 or float64", name);
        return 0;
    }
    return fill_view(array, name, view) && hc_hold(held, object);
}

int hc_parse_tuple(PyObject *object, const char *name, const char *format, ...) {
    if (!PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a tuple", name);
        return 0;
    }
    va_list items;
    va_start(items, format);
    const int is_parsed = PyArg_VaParse(object, format, items);
    va_end(items);
    return is_parsed;
}

int hc_parse_format(PyObject *object, hc_format *format) {
    int n, m;
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 3 && PyTuple_Check(PyTuple_GET_ITEM(object, 0))) {
        PyObject *base;
        if (!PyArg_ParseTuple(object, "Oii", &base, &n, &m))
            return 0;
        if (PyTuple_Check(base) && PyTuple_GET_SIZE(base) > 0 && PyTuple_Check(PyTuple_GET_ITEM(base, 0))) {
            PyErr_SetString(PyExc_TypeError, "format: a pattern of a pattern, expected ((family, bits, ...), n, m)");
            return 0;
        }
        if (!hc_parse_format(base, format))
            return 0;
        format->n = n;
        format->m = m;
        return 1;
    }
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) < 3 || PyTuple_GET_SIZE(object) > 3 + HC_N_OPTIONS) {
        PyErr_SetString(PyExc_TypeError, "format: expected a tuple (family, bits, group, options...)");
        return 0;
    }
    *format = (hc_format){0};
    const char *family = PyUnicode_AsUTF8(PyTuple_GET_ITEM(object, 0));
    if (!family)
        return 0;
    const char *name, *description;
    while (hc_family(format->family, &name, &description) && strcmp(name, family) != 0)
        format->family++;
    if (!hc_family(format->family, &name, &description)) {
        PyErr_Format(PyExc_ValueError, "format: there is no family %s", family);
        return 0;
    }
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(object); i++) {
        const long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(object, i));
        if (value == -1 && PyErr_Occurred())
            return 0;
        if (value < 0 || value > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "format: %lld is out of range", value);
            return 0;
        }
        int32_t *field = i == 1 ? &format->bits : i == 2 ? &format->group : format->option + i - 3;
        *field = (int32_t)value;
    }
    return 1;
}

int hc_parse_sizes(PyObject *object, const char *name, int64_t *sizes, int *count) {
    if (!PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a tuple of integers", name);
        return 0;
    }
    if (PyTuple_GET_SIZE(object) > HC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s has %zd dimensions, at most %d are possible", name, PyTuple_GET_SIZE(object),
                     HC_MAX_DIMS);
        return 0;
    }
    *count = (int)PyTuple_GET_SIZE(object);
    for (int i = 0; i < *count; i++) {
        sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(object, i));
        if (sizes[i] == -1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError))
                PyErr_Format(PyExc_ValueError, "%s: its sizes overflow", name);
            return 0;
        }
    }
    return 1;
}

int hc_parse_axes(PyObject *object, int *axes, int *count) {
    int64_t sizes[HC_MAX_DIMS];
    if (!hc_parse_sizes(object, "axis", sizes, count))
        return 0;
    for (int i = 0; i < *count; i++)
        axes[i] = sizes[i] < 0 || sizes[i] >= HC_MAX_DIMS ? -1 : (int)sizes[i];
    return 1;
}

/* An int of a tuple; or 0, also past the end of the tuple. The caller looks for an exception. */
static int int_at(PyObject *tuple, Py_ssize_t i) {
    const long value = i < PyTuple_GET_SIZE(tuple) ? PyLong_AsLong(PyTuple_GET_ITEM(tuple, i)) : 0;
    if (value < INT_MIN || value > INT_MAX)
        PyErr_SetString(PyExc_OverflowError, "run: a number is too large");
    return (int)value;
}

static bool flag_at(PyObject *tuple, Py_ssize_t i) {
    return i < PyTuple_GET_SIZE(tuple) && PyObject_IsTrue(PyTuple_GET_ITEM(tuple, i)) == 1;
}

/* Item by item, since PyArg_ParseTuple would take a fifth of a small matmul. */
const char *hc_any_path_name(int number) {
    int n = 0;
    while (n <= number && hc_path_name(n))
        n++;
    return number < n ? hc_path_name(number) : hc_cuda_path_name(number - n);
}

int hc_parse_settings(PyObject *object, hc_settings *settings, hc_held *held) {
    *settings = (hc_settings){.row = -1};
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) < 2) {
        PyErr_SetString(PyExc_TypeError, "run: expected a tuple of two items or more");
        return 0;
    }
    hc_run *run = &settings->run;
    const unsigned long isa = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(object, 0));
    run->n_threads = int_at(object, 1);
    run->path = int_at(object, 2);
    run->route = int_at(object, 3);
    run->one_order = flag_at(object, 4);
    if (PyTuple_GET_SIZE(object) == 9) { /* on a device */
        PyObject *allocate = PyTuple_GET_ITEM(object, 7);
        run->device = int_at(object, 5);
        settings->stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(object, 6));
        settings->waits = allocate == Py_None;
        settings->allocate = PyCallable_Check(allocate) ? allocate : NULL;
        settings->device_order = flag_at(object, 8);
    }
    if (PyErr_Occurred())
        return 0;
    held->device = run->device;
    run->n_threads = (int)hc_min(run->n_threads, HC_MAX_THREADS);
    if (run->route < 0 || (run->route > 0 && !hc_route_name(run->route - 1))) {
        PyErr_Format(PyExc_ValueError, "run: there is no route %d", run->route);
        return 0;
    }
    if (run->path < 0 || (run->path > 0 && !hc_any_path_name(run->path - 1))) {
        PyErr_Format(PyExc_ValueError, "run: there is no path %d", run->path);
        return 0;
    }
    run->isa = (uint32_t)isa & hc_cpu_isa();
    return 1;
}

int hc_parse_call(PyObject *object, hc_settings *settings, hc_held *held) {
    if (!hc_parse_settings(object, settings, held))
        return 0;
    if (settings->run.n_threads < 1)
        settings->run.n_threads = hc_processors();
    return 1;
}

int hc_parse_run(PyObject *object, hc_run *run) {
    hc_settings settings;
    hc_held none;
    const int is_parsed = hc_parse_call(object, &settings, &none);
    *run = settings.run;
    return is_parsed;
}

int hc_parse_clip(PyObject *object, hc_clip *clip) {
    *clip = (hc_clip){HC_CLIP_ABSMAX, 0};
    if (object == Py_None)
        return 1;
    int kind;
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "clip: expected None or a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(object, "id", &kind, &clip->value))
        return 0;
    if (kind < HC_CLIP_ABSMAX || kind > HC_CLIP_OCTAV) {
        PyErr_Format(PyExc_ValueError, "clip: there is no kind %d", kind);
        return 0;
    }
    clip->kind = (hc_clip_kind)kind;
    return 1;
}

/* A new reference to an entry of a dict, safe from threads that remove the entry; NULL if there is none. */
static PyObject *held_entry(PyObject *dict, const char *key, hc_held *held) {
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object;
    if (PyDict_GetItemStringRef(dict, key, &object) <= 0)
        return NULL;
#else
    PyObject *name = PyUnicode_FromString(key);
    if (!name)
        return NULL;
    /* a borrowed reference, which is safe only under the GIL */
    PyObject *object = Py_XNewRef(PyDict_GetItemWithError(dict, name));
    Py_DECREF(name);
#endif
    const int is_held = object && hc_hold(held, object);
    Py_XDECREF(object);
    return is_held ? object : NULL;
}

/* One component: an array of the layout's dtype and shape, each row's part contiguous. */
static int parse_component(PyObject *dict, const char *name, hc_component_id id, const hc_component_layout *layout,
                           int64_t rows, bool writable, hc_component *part, hc_held *held) {
    PyObject *object = held_entry(dict, HC_COMPONENT_NAMES[id], held);
    if (!object || !PyArray_Check(object)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%s lacks the component %s", name, HC_COMPONENT_NAMES[id]);
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    const bool is_bf16 = layout->dtype == HC_BF16 && PyArray_DESCR(array)->kind == 'V' && PyArray_ITEMSIZE(array) == 2;
    if (PyArray_TYPE(array) != hc_numpy_type(layout->dtype) && !is_bf16) { /* ml_dtypes has bfloat16 */
        PyErr_Format(PyExc_TypeError, "%s: its component %s has the wrong dtype", name, HC_COMPONENT_NAMES[id]);
        return 0;
    }
    if (writable && !PyArray_ISWRITEABLE(array)) {
        PyErr_Format(PyExc_ValueError, "%s: its component %s is read-only", name, HC_COMPONENT_NAMES[id]);
        return 0;
    }
    hc_view view;
    if (!fill_view(array, HC_COMPONENT_NAMES[id], &view))
        return 0;
    const int lead = layout->per_row ? 1 : 0;
    bool same = view.ndim == layout->ndim + lead && (!lead || view.shape[0] == rows);
    int64_t size = hc_dtype_size(layout->dtype);
    bool contiguous = true;
    for (int i = layout->ndim - 1; same && i >= 0; i--) {
        same = view.shape[lead + i] == layout->shape[i];
        contiguous = contiguous && (layout->shape[i] <= 1 || view.strides[lead + i] == size);
        size *= layout->shape[i];
    }
    if (!same || (!contiguous && PyArray_SIZE(array) > 0)) {
        PyErr_Format(PyExc_ValueError, "%s: its component %s has the wrong %s", name, HC_COMPONENT_NAMES[id],
                     same ? "strides" : "shape");
        return 0;
    }
    part->data = view.data;
    part->device = view.device;
    part->row_stride = lead && view.shape[0] > 1 ? view.strides[0] : lead ? size : 0;
    return 1;
}

int hc_parse_described(PyObject *format, PyObject *shape, PyObject *axes, hc_packed *packed, hc_geometry *geometry,
                       hc_component_layout layout[HC_N_COMPONENTS]) {
    if (!hc_parse_format(format, &packed->format) || !hc_parse_sizes(shape, "shape", packed->shape, &packed->ndim) ||
        !hc_parse_axes(axes, packed->axes, &packed->n_axes))
        return 0;
    hc_error error;
    const hc_status status =
        hc_layout(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes, geometry, layout, &error);
    if (status != HC_OK)
        hc_raise(status, &error);
    return status == HC_OK;
}

/* The components of an array on a device, by their addresses. */
static int parse_far_components(PyObject *dict, const char *name, const hc_component_layout *layout, int device,
                                hc_packed *packed, hc_held *held) {
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        if (!layout[i].present)
            continue;
        PyObject *address = held_entry(dict, HC_COMPONENT_NAMES[i], held);
        if (!address) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "%s lacks the component %s", name, HC_COMPONENT_NAMES[i]);
            return 0;
        }
        hc_component *part = &packed->components.part[i];
        part->data = (uint8_t *)(uintptr_t)PyLong_AsUnsignedLongLong(address);
        part->device = device;
        part->row_stride = layout[i].per_row ? hc_component_bytes(&layout[i]) : 0;
    }
    return !PyErr_Occurred();
}

static int parse_far_packed(PyObject *object, const char *name, hc_packed *packed, hc_held *held) {
    PyObject *format, *shape, *axes, *components;
    unsigned long long panels;
    int number;
    if (!PyArg_ParseTuple(object, "OOOO!Ki", &format, &shape, &axes, &PyDict_Type, &components, &panels, &number) ||
        !is_of_call(name, device_of(number), held))
        return 0;
    packed->prepacked = (void *)(uintptr_t)panels;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    return hc_parse_described(format, shape, axes, packed, &geometry, layout) &&
           parse_far_components(components, name, layout, device_of(number), packed, held);
}

int hc_parse_packed(PyObject *object, const char *name, bool writable, hc_packed *packed, hc_held *held) {
    PyObject *format, *shape, *axes, *components, *prepacked = NULL;
    *packed = (hc_packed){0};
    if (!PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a packed array", name);
        return 0;
    }
    if (PyTuple_GET_SIZE(object) == 6)
        return parse_far_packed(object, name, packed, held);
    if (!is_of_call(name, HC_HOST, held) || !PyArg_ParseTuple(object, "OOOO!|O!", &format, &shape, &axes, &PyDict_Type,
                                                              &components, &PyCapsule_Type, &prepacked))
        return 0;
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    if (!hc_parse_described(format, shape, axes, packed, &geometry, layout))
        return 0;
    if (prepacked) {
        packed->prepacked = PyCapsule_GetPointer(prepacked, HC_PREPACKED_CAPSULE);
        if (!packed->prepacked || !hc_hold(held, prepacked))
            return 0;
    }
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        if (layout[i].present && !parse_component(components, name, (hc_component_id)i, &layout[i], geometry.rows,
                                                  writable, &packed->components.part[i], held))
            return 0;
    return 1;
}
