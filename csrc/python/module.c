/* The binding: parse -> view -> release the GIL -> call -> status. No arithmetic here. */
#include "python/arguments.h"

#include "python/call.h"
#include "python/cuda/call.h"
#include "python/dlpack.h"
#include "python/methods.h"

#define PY_ARRAY_UNIQUE_SYMBOL hc_numpy_api
#include <numpy/arrayobject.h>

static PyObject *check_format(PyObject *self, PyObject *argument) {
    (void)self;
    hc_format format;
    hc_error error;
    if (!hc_parse_format(argument, &format))
        return NULL;
    const hc_status status = hc_format_check(&format, &error);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

/* define(fields, (target, largest_scale, least, most), levels, bounds, ranked) -> number: fields in the order of hc_sentence, the others as bytes. */
static PyObject *define(PyObject *self, PyObject *args) {
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
static PyObject *stored_form(PyObject *self, PyObject *argument) {
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

static PyObject *layout(PyObject *self, PyObject *args) {
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

static PyObject *quantize(PyObject *self, PyObject *args) {
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

static PyObject *dequantize(PyObject *self, PyObject *args) {
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

static PyObject *dequantize_slab(PyObject *self, PyObject *args) {
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

static PyObject *slab_step(PyObject *self, PyObject *packed_object) {
    (void)self;
    hc_packed packed;
    hc_held held = {.count = 0};
    if (!hc_parse_packed(packed_object, "dequantize: q", false, &packed, &held))
        return hc_give_up(&held);
    hc_release(&held);
    return PyLong_FromLongLong(hc_slab_step(&packed));
}

/* Adds the errors of two arrays to a state: the bytes of an hc_error_state, empty before the first values. */
static PyObject *compare(PyObject *self, PyObject *args) {
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

static PyObject *limit(PyObject *self, PyObject *args) {
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

static PyObject *formats(PyObject *self, PyObject *none) {
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

static PyObject *kernels(PyObject *self, PyObject *none) {
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

static PyObject *cpu_isa(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromUnsignedLong(hc_cpu_isa());
}

static PyObject *cpu_processor(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    const uint32_t kind = hc_cpu_processor(), family = kind >> 16 & 0xfff, model = kind & 0xffff;
    const char *const vendors[] = {"other", "amd", "intel", "arm"};
    const char *vendor = kind >> 28 < 4 ? vendors[kind >> 28] : vendors[0];
    return model ? PyUnicode_FromFormat("%s-%u-%u", vendor, family, model)
                 : PyUnicode_FromFormat("%s-%u", vendor, family);
}

static PyObject *processors(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromLong(hc_processors());
}

static PyObject *isa_mask(PyObject *self, PyObject *argument) {
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

static PyObject *isa_names(PyObject *self, PyObject *argument) {
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

static PyObject *compiler(PyObject *self, PyObject *none) {
    (void)self, (void)none;
#if defined(__clang__)
    return PyUnicode_FromString("clang " __clang_version__);
#elif defined(__GNUC__)
    return PyUnicode_FromString("gcc " __VERSION__);
#else
    return PyUnicode_FromString("unknown");
#endif
}

static PyMethodDef METHODS[] = {
    {"cuda_addresses", hc_cuda_addresses_method, METH_NOARGS, "cuda_addresses() -> {planner: address}, for tests"},
    {"formats", formats, METH_NOARGS, "formats() -> {family: description}"},
    {"define", define, METH_VARARGS, NULL},
    {"check_format", check_format, METH_O, "check_format(params): ValueError if a parameter is illegal"},
    {"stored_form", stored_form, METH_O, "stored_form(params) -> {field: value}: the format as data"},
    {"layout", layout, METH_VARARGS, "layout(params, shape, axes) -> {component: (dtype, shape, per_row)}"},
    {"quantize", quantize, METH_VARARGS,
     "quantize(run, x, clip, packed, importance=None); on a device -> first row that is refused, or -1"},
    {"dequantize_slab", dequantize_slab, METH_VARARGS,
     "dequantize_slab(run, packed, first, out): of axis 0, as long as out"},
    {"slab_step", slab_step, METH_O, "slab_step(packed) -> of what `first` is a multiple"},
    {"dequantize", dequantize, METH_VARARGS, "dequantize(run, packed, out)"},
    {"fake_quantize", hc_fake_quantize_method, METH_VARARGS,
     "fake_quantize(run, x, params, axes, clip, out, inside=None), inside: (low, high, bits, factor or None)"},
    {"inside_shape", hc_inside_shape_method, METH_VARARGS, "inside_shape(params, shape, axes) -> (rows, bytes)"},
    {"keep_inside", hc_keep_inside_method, METH_VARARGS,
     "keep_inside(run, g, params, axes, bits, out); on a device the note of fake_quantize in place of bits"},
    {"scaled_steps", hc_scaled_steps_method, METH_VARARGS,
     "scaled_steps(run, x, params, axes, scales, out, address of slopes), on a device"},
    {"slope_sums", hc_slope_sums_method, METH_VARARGS,
     "slope_sums(run, g, params, axes, address of slopes, address of sums), on a device"},
    {"round_by_chance", hc_round_by_chance_method, METH_VARARGS,
     "round_by_chance(run, x, packed, levels, seed, out), levels: (table or None, fraction, least, low, high)"},
    {"layer", hc_layer_method, METH_VARARGS,
     "layer(run, kind, rows, n, x, weight, bias, out, epsilon, half, repeat, turns, pairs), kind: hc_layer_kind"},
    {"attention", hc_attention_method, METH_VARARGS,
     "attention(run, q, k, v, out, kv_heads, causal, window, scale, cap), k and v: arrays or (packed, steps, sizes)"},
    {"llm_layers", hc_llm_layers_method, METH_VARARGS,
     "llm_layers(run, activations, x, [((heads, kv_heads, head_width, hidden, half, pairs, gelu, window), "
     "(epsilon, scale, cap), norms, weights, biases, cosine, sine, k, v, held)]) -> (x, layers that ran): hc_llm_norm "
     "and hc_llm_weight name the tuples"},
    {"move_codes", hc_move_codes_method, METH_VARARGS,
     "move_codes(run, rows, columns, flip, from, to), each (array, bits, kind): 0 rows, 1 high half first, 2 columns "
     "of "
     "words, 3 turned, 4 turned in the order of AWQ"},
    {"code_fault", hc_code_fault_method, METH_VARARGS,
     "code_fault(run, codes, bits, runs, length, padded, unused or -1, padding or -1, zero_points or None, groups of a "
     "run) -> 0, 1: the unused code, 2: padding"},
    {"blocks", hc_blocks_method, METH_VARARGS, "blocks(run, name, packed, data, reads)"},
    {"blocks_bytes", hc_blocks_bytes_method, METH_VARARGS,
     "blocks_bytes(name, values) -> bytes of a row, 0 where there are no such blocks"},
    {"compare", compare, METH_VARARGS,
     "compare(run, x, y, state) -> (xx, ee, xy, yy, max_abs) of all values so far, state"},
    {"matmul", hc_matmul_method, METH_VARARGS, "matmul(run, a, b, activations, bias, out)"},
    {"matmul_shape", hc_matmul_shape_method, METH_VARARGS, "matmul_shape(name, a, b): shapes to that of the answer"},
    {"direct", (PyCFunction)(void (*)(void))hc_direct_method, METH_FASTCALL,
     "direct(run, is_linear, a, b, bias, activations, out) -> the answer, or None: it is for the long way"},
    {"direct_types", hc_direct_types_method, METH_VARARGS,
     "direct_types(types...): of packed arrays that `direct` takes"},
    {"explain", hc_explain_method, METH_VARARGS,
     "explain(run, a, b, activations, out) -> (number of a route or -1, [(route, what, reason, seconds)], (number of a "
     "path "
     "or -1, [(path, what, reason, seconds, id, work)], kernels of a device))"},
    {"paths", hc_paths_method, METH_NOARGS, "paths() -> names of the paths of the CPU, and of devices"},
    {"conv2d", hc_conv2d_method, METH_VARARGS,
     "conv2d(run, x, w, bias, stride, padding, dilation, groups, activations, out, algorithm=None, strict=False, "
     "relu=False)"},
    {"explain_conv2d", hc_explain_conv2d_method, METH_VARARGS,
     "explain_conv2d(arguments of conv2d) -> chosen, [(name, what, reason, seconds, work, bytes, admitted, id)], "
     "kernels; on a "
     "device the three of explain"},
    {"conv_algorithms", hc_conv_algorithms_method, METH_NOARGS, "conv_algorithms() -> [(name, what, error)]"},
    {"limit", limit, METH_VARARGS, "limit(run, what, steps or bytes) -> (work, sum, isa)"},
    {"prepack", hc_prepack_method, METH_VARARGS, "prepack(run, packed) -> (capsule, bytes), or None without integers"},
    {"prune", hc_prune_method, METH_VARARGS, "prune(run, x, scores, n, m, axes, values, metadata)"},
    {"permute", hc_permute_method, METH_VARARGS, "permute(run, scores, rows, n, m, order) -> exchanges"},
    {"conv2d_outer", hc_conv2d_outer_method, METH_VARARGS, "conv2d_outer(run, x, w, stride, padding, out)"},
    {"count_outer", hc_count_outer_method, METH_VARARGS,
     "count_outer(run, x, w, stride, padding, out_size, cells, multipliers, banks, accumulators) -> five counts"},
    {"bitmap", hc_bitmap_method, METH_VARARGS,
     "bitmap(run, items, bitmap, values, what) -> kept: mark (0), keep (1), place (2)"},
    {"terms", hc_terms_method, METH_VARARGS,
     "terms(run, packed, codes, scales, row_scale) -> (integers, groups, integer_scales)"},
    {"emulate_codes", hc_emulate_codes_method, METH_VARARGS,
     "emulate_codes(run, a, b, bits, saturates, chunk, mitchell, shift, limit, powers, unit, out)"},
    {"emulate_floats", hc_emulate_floats_method, METH_VARARGS,
     "emulate_floats(run, a, b, precision, smallest, chunk, aligned_bits, cuts, truncates, smallest_input, lowest, "
     "out)"},
    {"csr_transpose", hc_csr_transpose_method, METH_VARARGS, "csr_transpose(csr) -> (starts, indices, values)"},
    {"csr_matmul", hc_csr_matmul_method, METH_VARARGS, "csr_matmul(run, x, csr, out) -> whether columns ascend"},
    {"eie_codebook", hc_eie_codebook_method, METH_VARARGS, "eie_codebook(values, codebook)"},
    {"eie_count", hc_eie_count_method, METH_VARARGS, "eie_count(run, w, pointers) -> entries"},
    {"eie_encode", hc_eie_encode_method, METH_VARARGS, "eie_encode(run, w, eie)"},
    {"eie_check", hc_eie_check_method, METH_VARARGS, "eie_check(eie)"},
    {"eie_decode", hc_eie_decode_method, METH_VARARGS, "eie_decode(run, eie, out)"},
    {"eie_expand", hc_eie_expand_method, METH_VARARGS, "eie_expand(run, eie) -> (starts, indices, values)"},
    {"eie_multiply", hc_eie_multiply_method, METH_VARARGS, "eie_multiply(run, eie, x, out)"},
    {"eie_load", hc_eie_load_method, METH_VARARGS,
     "eie_load(eie, x or None, depth, busy) -> (cycles, broadcasts, stalls, padding)"},
    {"in_float_env", hc_in_float_env_method, METH_VARARGS, "in_float_env(function, args, kwargs) -> its answer"},
    {"in_callers_float_env", hc_in_callers_float_env_method, METH_VARARGS,
     "in_callers_float_env(function, args, kwargs) -> its answer"},
    {"kernels", kernels, METH_NOARGS, "kernels() -> [(family, isa, needs)]"},
    {"processors", processors, METH_NOARGS, "processors() -> how many this thread may run on"},
    {"cpu_isa", cpu_isa, METH_NOARGS, "cpu_isa() -> mask of this machine"},
    {"cpu_processor", cpu_processor, METH_NOARGS, "cpu_processor() -> its kind, such as amd-26"},
    {"isa_mask", isa_mask, METH_O, "isa_mask(name) -> mask"},
    {"isa_names", isa_names, METH_O, "isa_names(mask) -> names"},
    {"compiler", compiler, METH_NOARGS, "compiler() -> name and version"},
    {"from_dlpack", hc_from_dlpack, METH_O, "from_dlpack(capsule) -> (array, is_bfloat16)"},
    {"read_dlpack", hc_read_dlpack, METH_O,
     "read_dlpack(capsule) -> (owner, type of device, its number, address, code, bits, shape, strides in items)"},
    {"write_dlpack", hc_write_dlpack, METH_VARARGS,
     "write_dlpack(owner, device, address, code, bits, shape, strides in items) -> capsule"},
    {"cuda_open", hc_cuda_open_method, METH_VARARGS,
     "cuda_open(library) -> (version of the driver, [(name, major, minor, bytes)], whether the kernels are of this "
     "build)"},
    {"cuda_modules", hc_cuda_modules_method, METH_NOARGS, "cuda_modules() -> {name: bytes} of what was built"},
    {"cuda_allocate", hc_cuda_allocate_method, METH_VARARGS, "cuda_allocate(device, stream, bytes) -> address"},
    {"cuda_hold", hc_cuda_hold_method, METH_VARARGS, "cuda_hold(device, stream, bytes) -> (owner, address)"},
    {"cuda_free", hc_cuda_free_method, METH_VARARGS, "cuda_free(device, stream, address)"},
    {"cuda_copy", hc_cuda_copy_method, METH_VARARGS,
     "cuda_copy(device, stream, address, buffer, whether to the device), which waits"},
    {"cuda_move", hc_cuda_move_method, METH_VARARGS,
     "cuda_move(device, stream, to, from, bytes): a copy on the device, which does not wait"},
    {"cuda_wait", hc_cuda_wait_method, METH_VARARGS, "cuda_wait(device, stream)"},
    {"cuda_place", hc_cuda_place_method, METH_O, "cuda_place(address) -> its device, -1: none"},
    {"cuda_check", hc_cuda_check_method, METH_VARARGS,
     "cuda_check(device, address of words, address of answers, whether of warpgroups)"},
    {"blas_open", hc_blas_open_method, METH_VARARGS,
     "blas_open(path, gemm, gemv, set_threads, get_threads, config, core) -> (text of config, name of core); "
     "blas_open(None): there is none"},
    {"blas_speed", hc_blas_speed_method, METH_VARARGS, "blas_speed(isa) -> an hc_blas_speed"},
    {"routes", hc_routes_method, METH_NOARGS, "routes() -> names of the routes, by number"},
    {"map_cost", hc_model_cost, METH_VARARGS,
     "map_cost(ints, reals, choice) -> (energy, cycles, first, second) or None"},
    {"map_enumerate", hc_model_enumerate, METH_VARARGS,
     "map_enumerate(ints, reals, tables, start, stop) -> (evaluated, cost, choice)"},
    {"map_walk", hc_model_walk, METH_VARARGS, "map_walk(ints, reals, choice, seed, budget) -> capsule"},
    {"map_walk_on", hc_model_walk_on, METH_VARARGS, "map_walk_on(capsule, steps) -> (taken, valid, cost, choice)"},
    {"systolic", hc_model_systolic, METH_VARARGS,
     "systolic(a, b, rows, cols, dataflow, out) -> (cycles, folds, left, top, writes)"},
    {"ptq_gram", hc_ptq_gram_method, METH_VARARGS, "ptq_gram(run, tokens, columns, left, right, sum)"},
    {"ptq_factor", hc_ptq_factor_method, METH_VARARGS, "ptq_factor(run, matrix, diagonal) -> failed column or -1"},
    {"ptq_score", hc_ptq_score_method, METH_VARARGS, "ptq_score(run, grid, w, weight, sums)"},
    {"ptq_columns", hc_ptq_columns_method, METH_VARARGS, "ptq_columns(run, grid, w, factor, order, codes)"},
    {"ptq_descend", hc_ptq_descend_method, METH_VARARGS,
     "ptq_descend(run, grid, w, h, scales or None, refits, codes, changed)"},
    {"ptq_levels", hc_ptq_levels_method, METH_VARARGS,
     "ptq_levels(run, grid, w, h, codes, first, count, curvature, slope)"},
    {"ptq_losses", hc_ptq_losses_method, METH_VARARGS, "ptq_losses(run, columns, errors, h, sums)"},
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
