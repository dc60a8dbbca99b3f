/* The binding: parse -> view -> release the GIL -> call -> status. No arithmetic here. */
#include "python/arguments.h"

#include "python/call.h"
#include "python/cuda/call.h"
#include "python/methods.h"

#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

PyObject *hc_check_format_method(PyObject *self, PyObject *argument) {
    (void)self;
    hc_format format;
    hc_error error;
    if (!hc_parse_format(argument, &format))
        return NULL;
    const hc_status status = hc_format_check(&format, &error);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

/* define(fields, (target, largest_scale, least, most), levels, bounds, ranked) -> number: fields in the order of hc_sentence, the others as bytes. */
PyObject *hc_define_method(PyObject *self, PyObject *args) {
    (void)self;
    hc_sentence own;
    memset(&own, 0, sizeof own);
    int32_t *const fields[] = {&own.bits,       &own.codes,      &own.ranks,  &own.is_signed,  &own.saturates,
                               &own.nan,        &own.minus_zero, &own.lowest, &own.largest,    &own.places,
                               &own.is_plain,   &own.whole,      &own.scale,  &own.scale_bits, &own.sharing,
                               &own.block_rows, &own.second,     &own.rule,   &own.even_places};
    hc_own_float *const types[] = {&own.type, &own.scale_type};
    enum { FIELDS = sizeof fields / sizeof *fields, OF_TYPE = 6, ALL = FIELDS + 2 * OF_TYPE };
    PyObject *given;
    const char *levels, *bounds, *ranked;
    Py_ssize_t sizes[3];
    if (!PyArg_ParseTuple(args, "O!(dddd)y#y#y#", &PyTuple_Type, &given, &own.target, &own.largest_scale, &own.least,
                          &own.most, &levels, &sizes[0], &bounds, &sizes[1], &ranked, &sizes[2]))
        return NULL;
    if (PyTuple_GET_SIZE(given) != ALL || sizes[0] != sizeof own.level || sizes[1] != sizeof own.bound ||
        sizes[2] != sizeof own.ranked) {
        PyErr_SetString(PyExc_ValueError, "define: a table or the tuple of fields has another length");
        return NULL;
    }
    long values[ALL];
    for (Py_ssize_t i = 0; i < ALL; i++) {
        values[i] = PyLong_AsLong(PyTuple_GET_ITEM(given, i));
        if (values[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    for (int i = 0; i < FIELDS; i++)
        *fields[i] = (int32_t)values[i];
    for (int i = 0; i < 2; i++) {
        const long *of = values + FIELDS + i * OF_TYPE;
        *types[i] = (hc_own_float){(int32_t)of[0],  (int32_t)of[1],  (int32_t)of[2],
                                   (uint32_t)of[3], (uint32_t)of[4], (uint32_t)of[5]};
    }
    memcpy(own.level, levels, sizeof own.level);
    memcpy(own.bound, bounds, sizeof own.bound);
    memcpy(own.ranked, ranked, sizeof own.ranked);
    int32_t number;
    hc_error error;
    const hc_status status = hc_define(&own, &number, &error);
    return status == HC_OK ? PyLong_FromLong(number) : hc_raise(status, &error);
}

/* Fields of hc_stored_form that other parts of the package use; kinds are converted to names. */
PyObject *hc_stored_form_method(PyObject *self, PyObject *argument) {
    static const char *const codes[HC_N_CODE_KINDS] = {"unstated", "integer", "float", "table", "log", "learned"};
    static const char *const scales[HC_N_SCALE_KINDS] = {"none", "f32",  "f16",    "integer",
                                                         "e8m0", "e4m3", "double", "own"};
    static const char *const seconds[HC_N_SECOND_KINDS] = {"none", "row", "scale"};
    (void)self;
    hc_format format;
    hc_error error;
    if (!hc_parse_format(argument, &format))
        return NULL;
    const hc_status status = hc_format_check(&format, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    int count;
    double levels[HC_MAX_CODES];
    const hc_stored_form form = hc_format_form(&format, &count, levels);
    PyObject *table = PyTuple_New(count);
    for (int code = 0; table && code < count; code++) {
        PyObject *level = PyFloat_FromDouble(levels[code]);
        if (level)
            PyTuple_SET_ITEM(table, code, level);
        else
            Py_CLEAR(table);
    }
    if (!table)
        return NULL;
    return Py_BuildValue("{si ss sO sO sO si sl sl si si sd si si sN ss si ss sO sO}", "bits", (int)format.bits,
                         "codes", codes[form.codes], "signed", form.is_signed ? Py_True : Py_False, "zero_points",
                         form.has_zero_points ? Py_True : Py_False, "minima", form.has_minima ? Py_True : Py_False,
                         "fraction_bits", form.fraction_bits, "lowest", (long)form.lowest, "largest",
                         (long)form.largest, "precision", form.precision, "smallest", form.smallest, "maximum",
                         (double)form.maximum, "steps", form.steps, "code_values", form.code_values, "levels", table,
                         "scale", scales[form.scale], "scale_bits", form.scale_bits, "second", seconds[form.second],
                         "shared", form.is_shared ? Py_True : Py_False, "any_axis",
                         hc_form_fits_any_axis(&form) ? Py_True : Py_False);
}

PyObject *hc_layout_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *format_object, *shape_object, *axes_object;
    hc_packed packed = {0};
    if (!PyArg_ParseTuple(args, "OOO", &format_object, &shape_object, &axes_object) ||
        !hc_parse_format(format_object, &packed.format) ||
        !hc_parse_sizes(shape_object, "shape", packed.shape, &packed.ndim) ||
        !hc_parse_axes(axes_object, packed.axes, &packed.n_axes))
        return NULL;
    hc_geometry geometry;
    hc_component_layout parts[HC_N_COMPONENTS] = {{0}};
    hc_error error;
    const hc_status status =
        hc_layout(&packed.format, packed.ndim, packed.shape, packed.n_axes, packed.axes, &geometry, parts, &error);
    if (status != HC_OK)
        return hc_raise(status, &error);
    PyObject *answer = PyDict_New();
    for (int i = 0; answer && i < HC_N_COMPONENTS; i++) {
        if (!parts[i].present)
            continue;
        const int lead = parts[i].per_row ? 1 : 0;
        PyObject *shape = PyTuple_New(parts[i].ndim + lead);
        if (shape && lead)
            PyTuple_SET_ITEM(shape, 0, PyLong_FromLongLong(geometry.rows));
        for (int d = 0; shape && d < parts[i].ndim; d++)
            PyTuple_SET_ITEM(shape, lead + d, PyLong_FromLongLong(parts[i].shape[d]));
        PyArray_Descr *dtype = PyArray_DescrFromType(hc_numpy_type(parts[i].dtype));
        PyObject *entry = shape && dtype ? Py_BuildValue("(OOO)", dtype, shape, lead ? Py_True : Py_False) : NULL;
        if (!entry || PyDict_SetItemString(answer, HC_COMPONENT_NAMES[i], entry) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(entry);
        Py_XDECREF(shape);
        Py_XDECREF((PyObject *)dtype);
    }
    return answer;
}

PyObject *hc_quantize_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *clip_object, *packed_object, *importance_object = Py_None;
    hc_settings settings;
    hc_view x, importance;
    hc_clip clip;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOO|O", &run_object, &x_object, &clip_object, &packed_object, &importance_object) ||
        !hc_parse_call(run_object, &settings, &held) || !hc_parse_clip(clip_object, &clip) ||
        !hc_parse_view(x_object, "quantize: x", &x, &held) ||
        (importance_object != Py_None &&
         !hc_parse_view(importance_object, "quantize: importance", &importance, &held)) ||
        !hc_parse_packed(packed_object, "quantize: q", true, &packed, &held))
        return hc_give_up(&held);
    if (settings.run.device != HC_HOST) {
        const hc_cuda_call call = {.what = QUANTIZE, .x = x, .clip = {.clip = clip}, .packed = packed, .checks = true};
        return hc_cuda_finish(&settings, &call, &held);
    }
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_quantize_weighted(&settings.run, &x, &clip, importance_object != Py_None ? &importance : NULL,
                                        &packed, &error));
    return hc_finish(status, &error, &held);
}

PyObject *hc_dequantize_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *packed_object, *out_object;
    float between = 0;
    hc_settings settings;
    hc_packed packed;
    hc_view out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOO|f", &run_object, &packed_object, &out_object, &between) ||
        !hc_parse_call(run_object, &settings, &held) ||
        !hc_parse_packed(packed_object, "dequantize: q", false, &packed, &held) ||
        !hc_parse_view(out_object, "dequantize: out", &out, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    if (settings.run.device != HC_HOST) {
        const hc_cuda_call call = {.what = DEQUANTIZE, .packed = packed, .between = between, .out = out};
        return hc_cuda_finish(&settings, &call, &held);
    }
    HC_WITHOUT_GIL(hc_dequantize(&settings.run, &packed, &out, &error));
    return hc_finish(status, &error, &held);
}

PyObject *hc_dequantize_slab_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *packed_object, *out_object;
    long long first;
    hc_run run;
    hc_packed packed;
    hc_view out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOLO", &run_object, &packed_object, &first, &out_object) ||
        !hc_parse_run(run_object, &run) || !hc_parse_packed(packed_object, "dequantize: q", false, &packed, &held) ||
        !hc_parse_view(out_object, "dequantize: out", &out, &held))
        return hc_give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_dequantize_slab(&run, &packed, first, out.ndim ? out.shape[0] : 0, &out, &error));
    return hc_finish(status, &error, &held);
}

PyObject *hc_slab_step_method(PyObject *self, PyObject *packed_object) {
    (void)self;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!hc_parse_packed(packed_object, "dequantize: q", false, &packed, &held))
        return hc_give_up(&held);
    hc_release(&held);
    return PyLong_FromLongLong(hc_slab_step(&packed));
}

/* Adds the errors of two arrays to a state: the bytes of an hc_error_state, empty before the first values. */
PyObject *hc_compare_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *x_object, *y_object;
    hc_error_state state = {.values = 0};
    const char *before;
    Py_ssize_t size;
    hc_run run;
    hc_view x, y;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "OOOy#", &run_object, &x_object, &y_object, &before, &size) ||
        !hc_parse_run(run_object, &run) || !hc_parse_view(x_object, "error: x", &x, &held) ||
        !hc_parse_view(y_object, "error: y", &y, &held))
        return hc_give_up(&held);
    if (size == (Py_ssize_t)sizeof state)
        memcpy(&state, before, sizeof state);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_compare(&run, &x, &y, &state, &error));
    hc_release(&held);
    if (status != HC_OK)
        return hc_raise(status, &error);
    const hc_error_sums sums = hc_compared(&state);
    return Py_BuildValue("(ddddd)y#", sums.xx, sums.ee, sums.xy, sums.yy, sums.max_abs, (const char *)&state,
                         (Py_ssize_t)sizeof state);
}

PyObject *hc_limit_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *amount_object;
    const char *what;
    hc_run run;
    if (!PyArg_ParseTuple(args, "OsO", &run_object, &what, &amount_object) || !hc_parse_run(run_object, &run))
        return NULL;
    const bool counts = PyLong_Check(amount_object);
    Py_buffer bytes = {0};
    const long long amount = counts ? PyLong_AsLongLong(amount_object) : 0;
    if (counts ? amount == -1 && PyErr_Occurred() : PyObject_GetBuffer(amount_object, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    if (counts != (strncmp(what, "read", 4) != 0)) {
        PyBuffer_Release(&bytes);
        return PyErr_Format(PyExc_TypeError, "limit: '%s' needs %s", what, counts ? "bytes" : "a number of steps");
    }
    hc_error error;
    hc_limit_result result;
    hc_status status;
    HC_WITHOUT_GIL(hc_limit(&run, what, bytes.buf, counts ? amount : bytes.len, &result, &error));
    PyBuffer_Release(&bytes);
    if (status != HC_OK)
        return hc_raise(status, &error);
    return Py_BuildValue("(dKs)", result.work, (unsigned long long)result.sum, result.isa);
}

PyObject *hc_formats_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    PyObject *answer = PyDict_New();
    const char *name, *description;
    for (int32_t i = 0; answer && hc_family(i, &name, &description); i++) {
        PyObject *text = PyUnicode_FromString(description);
        if (!text || PyDict_SetItemString(answer, name, text) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(text);
    }
    return answer;
}

PyObject *hc_kernels_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    PyObject *answer = PyList_New(0);
    const char *family, *isa;
    uint32_t needs;
    for (int i = 0; answer && hc_kernel_line(i, &family, &isa, &needs); i++) {
        PyObject *line = Py_BuildValue("(ssI)", family, isa, (unsigned int)needs);
        if (!line || PyList_Append(answer, line) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(line);
    }
    return answer;
}

/* (conv, instruction sets) -> [(name, (ns of a call, ns of each count ...)) ...] */
PyObject *hc_costs_method(PyObject *self, PyObject *args) {
    (void)self;
    int conv;
    unsigned int isa;
    if (!PyArg_ParseTuple(args, "pI", &conv, &isa))
        return NULL;
    PyObject *answer = PyList_New(0);
    const char *id;
    double costs[HC_MAX_COSTS];
    for (int i = 0, n; answer && (n = hc_costs_of(conv, i, isa, &id, costs)) > 0; i++) {
        PyObject *numbers = PyTuple_New(n);
        for (int j = 0; numbers && j < n; j++) {
            PyObject *number = PyFloat_FromDouble(costs[j]);
            if (!number || PyTuple_SetItem(numbers, j, number) < 0)
                Py_CLEAR(numbers);
        }
        PyObject *line = numbers ? Py_BuildValue("(sN)", id, numbers) : NULL;
        if (!line || PyList_Append(answer, line) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(line);
    }
    return answer;
}

/* (conv, instruction sets, float64 of all paths or algorithms, one after the other; none: those of this build) */
PyObject *hc_keep_costs_method(PyObject *self, PyObject *args) {
    (void)self;
    int conv;
    unsigned int isa;
    PyObject *costs;
    if (!PyArg_ParseTuple(args, "pIO", &conv, &isa, &costs))
        return NULL;
    if (!PyArray_Check(costs) || PyArray_TYPE((PyArrayObject *)costs) != NPY_FLOAT64 ||
        !PyArray_ISCARRAY_RO((PyArrayObject *)costs)) {
        PyErr_SetString(PyExc_TypeError, "costs: expected float64 in C order");
        return NULL;
    }
    hc_error error;
    const hc_status status = hc_keep_costs(conv, isa, (int64_t)PyArray_SIZE((PyArrayObject *)costs),
                                           PyArray_DATA((PyArrayObject *)costs), &error);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_cpu_isa_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromUnsignedLong(hc_cpu_isa());
}

PyObject *hc_cpu_processor_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    const uint32_t kind = hc_cpu_processor(), family = kind >> 16 & 0xfff, model = kind & 0xffff;
    const char *const vendors[] = {"other", "amd", "intel", "arm"};
    const char *vendor = kind >> 28 < 4 ? vendors[kind >> 28] : vendors[0];
    return model ? PyUnicode_FromFormat("%s-%u-%u", vendor, family, model)
                 : PyUnicode_FromFormat("%s-%u", vendor, family);
}

PyObject *hc_processors_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromLong(hc_processors());
}

PyObject *hc_isa_mask_method(PyObject *self, PyObject *argument) {
    (void)self;
    const char *name = PyUnicode_AsUTF8(argument);
    uint32_t mask;
    if (!name)
        return NULL;
    if (!hc_isa_from_name(name, &mask)) {
        PyErr_Format(PyExc_ValueError, "isa: there is no %s", name);
        return NULL;
    }
    return PyLong_FromUnsignedLong(mask);
}

PyObject *hc_isa_names_method(PyObject *self, PyObject *argument) {
    (void)self;
    const unsigned long mask = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred())
        return NULL;
    PyObject *answer = PyList_New(0);
    for (int i = -1; answer && i < HC_N_ISA; i++) {
        const uint32_t bit = i < 0 ? 0 : 1u << i;
        if (i >= 0 && !(mask & bit))
            continue;
        PyObject *name = PyUnicode_FromString(hc_isa_name(bit));
        if (!name || PyList_Append(answer, name) < 0)
            Py_CLEAR(answer);
        Py_XDECREF(name);
    }
    return answer;
}

PyObject *hc_compiler_method(PyObject *self, PyObject *none) {
    (void)self, (void)none;
#if defined(__clang__)
    return PyUnicode_FromString("clang " __clang_version__);
#elif defined(__GNUC__)
    return PyUnicode_FromString("gcc " __VERSION__);
#else
    return PyUnicode_FromString("unknown");
#endif
}

/* heterocompute/_heterocompute.pyi states the arguments and results. */
static PyMethodDef METHODS[] = {
#define HC_METHOD(name, kind) {#name, hc_##name##_method, METH_##kind, NULL},
#include "python/methods.def"
#undef HC_METHOD
    {"direct", (PyCFunction)(void (*)(void))hc_direct_method, METH_FASTCALL, NULL},
    {"direct_conv2d", (PyCFunction)(void (*)(void))hc_direct_conv2d_method, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module) {
    (void)module;
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    return 0;
}

/* One extension serves all versions of Python, and Python 3.11 rejects unknown slots. So PyInit adds the newer
 * slots. */
enum { MULTIPLE_INTERPRETERS = 3 }; /* Py_mod_multiple_interpreters; the value NULL stands for "not supported" */

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, exec_module},
#if defined(Py_GIL_DISABLED)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_heterocompute",
    .m_doc = "The C core of heterocompute.",
    .m_size = 0,
    .m_methods = METHODS,
    .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit__heterocompute(void) {
    if (Py_Version >= 0x030c0000)
        SLOTS[sizeof SLOTS / sizeof *SLOTS - 2] = (PyModuleDef_Slot){MULTIPLE_INTERPRETERS, NULL};
    return PyModuleDef_Init(&MODULE);
}
