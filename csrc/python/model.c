/* The binding of csrc/model/: rows of numbers -> model -> release the GIL -> call -> tuples. No arithmetic here. */
#include "python/methods.h"

#include <string.h>

#include "model/mapper.h"
#include "model/systolic.h"
#include "python/call.h"

static const char WALK[] = "heterocompute.walk";

#define WITHOUT_GIL(call)                                                                                              \
    do {                                                                                                               \
        Py_BEGIN_ALLOW_THREADS const hc_float_env saved = hc_float_env_enter();                                        \
        call;                                                                                                          \
        hc_float_env_leave(saved);                                                                                     \
        Py_END_ALLOW_THREADS                                                                                           \
    } while (0)

/* A contiguous buffer of 8-byte numbers, int64 ('q', 'l') or float64 ('d'), with `ndim` dimensions. */
static bool numbers(PyObject *object, const char *name, bool whole, int ndim, bool writable, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return false;
    const char *format = view->format ? view->format : "B";
    if (view->itemsize == 8 && view->ndim == ndim && strlen(format) == 1 && strchr(whole ? "ql" : "d", format[0]))
        return true;
    PyBuffer_Release(view);
    PyErr_Format(PyExc_TypeError, "%s: expected a contiguous %d-dimensional array of %s", name, ndim,
                 whole ? "int64" : "float64");
    return false;
}

/* A model and the buffers from which it was read. */
typedef struct {
    Py_buffer ints, reals;
    hc_map_model model;
} held_model;

static void release_model(held_model *held) {
    PyBuffer_Release(&held->ints);
    PyBuffer_Release(&held->reals);
}

static bool read_model(PyObject *ints, PyObject *reals, held_model *held) {
    if (!numbers(ints, "search: the model", true, 1, false, &held->ints))
        return false;
    if (!numbers(reals, "search: the model", false, 1, false, &held->reals)) {
        PyBuffer_Release(&held->ints);
        return false;
    }
    hc_error error;
    const hc_status status =
        hc_map_read(held->ints.buf, held->ints.len / 8, held->reals.buf, held->reals.len / 8, &held->model, &error);
    if (status == HC_OK)
        return true;
    release_model(held);
    hc_raise(status, &error);
    return false;
}

static bool read_choice(const hc_map_model *model, PyObject *object, hc_map_choice *choice) {
    Py_buffer view;
    hc_error error;
    if (!numbers(object, "search: a choice", true, 1, false, &view))
        return false;
    const hc_status status = hc_map_read_choice(model, view.buf, view.len / 8, choice, &error);
    PyBuffer_Release(&view);
    if (status != HC_OK)
        hc_raise(status, &error);
    return status == HC_OK;
}

static PyObject *cost_tuple(const hc_map_cost *cost) {
    return Py_BuildValue("(dddd)", cost->energy, cost->cycles, cost->first, cost->second);
}

static PyObject *choice_list(const hc_map_model *model, const hc_map_choice *choice) {
    const int n_dims = model->n_dims, n_slots = 2 * model->n_levels;
    PyObject *list = PyList_New(n_slots * n_dims + model->n_levels);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        const Py_ssize_t slot = i / n_dims;
        PyObject *number = PyLong_FromLongLong(slot < n_slots ? choice->factor[slot][i % n_dims]
                                                              : choice->order[i - (Py_ssize_t)n_slots * n_dims]);
        if (!number)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, number);
    }
    return list;
}

PyObject *hc_map_cost_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *ints, *reals, *choice_object;
    held_model held;
    hc_map_choice choice;
    hc_map_cost cost;
    if (!PyArg_ParseTuple(args, "OOO", &ints, &reals, &choice_object) || !read_model(ints, reals, &held))
        return NULL;
    PyObject *answer = NULL;
    if (read_choice(&held.model, choice_object, &choice))
        answer = hc_map_cost_of(&held.model, &choice, &cost) ? cost_tuple(&cost) : Py_NewRef(Py_None);
    release_model(&held);
    return answer;
}

/* Whether the rows of every dimension are factors of its bound. */
static bool check_rows(const hc_map_model *model, int d, const int64_t *rows, int64_t n_rows) {
    const int n_slots = 2 * model->n_levels;
    for (int64_t row = 0; row < n_rows; row++, rows += n_slots) {
        int64_t rest = model->bound[d];
        for (int slot = 0; slot < n_slots; slot++) {
            if (rows[slot] < 1 || rest % rows[slot])
                return false;
            rest /= rows[slot];
        }
        if (rest != 1)
            return false;
    }
    return true;
}

PyObject *hc_map_enumerate_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *ints, *reals, *tables;
    long long start, stop;
    held_model held;
    if (!PyArg_ParseTuple(args, "OOO!LL", &ints, &reals, &PyTuple_Type, &tables, &start, &stop) ||
        !read_model(ints, reals, &held))
        return NULL;
    const int n_dims = held.model.n_dims, n_slots = 2 * held.model.n_levels;
    Py_buffer view[HC_MAP_DIMS];
    const int64_t *table[HC_MAP_DIMS];
    int64_t n_rows[HC_MAP_DIMS], total = 1;
    int count = 0;
    bool right = PyTuple_GET_SIZE(tables) == n_dims;
    for (; right && count < n_dims; count++) {
        if (!numbers(PyTuple_GET_ITEM(tables, count), "search: factors", true, 2, false, &view[count]))
            break;
        n_rows[count] = view[count].shape[0];
        table[count] = view[count].buf;
        right = view[count].shape[1] == n_slots && hc_mul_size(total, n_rows[count], &total) &&
                check_rows(&held.model, count, table[count], n_rows[count]);
    }
    PyObject *answer = NULL;
    if (!PyErr_Occurred() && (!right || start < 0 || start > stop || stop > total)) {
        PyErr_Format(PyExc_ValueError, "search: no factors number %lld to %lld of these tables", start, stop);
    } else if (!PyErr_Occurred()) {
        hc_map_found found;
        WITHOUT_GIL(hc_map_enumerate(&held.model, table, n_rows, start, stop, &found));
        if (found.found)
            answer = Py_BuildValue("(LNN)", (long long)found.evaluated, cost_tuple(&found.cost),
                                   choice_list(&held.model, &found.choice));
        else
            answer = Py_BuildValue("(LOO)", (long long)found.evaluated, Py_None, Py_None);
    }
    while (count > 0)
        PyBuffer_Release(&view[--count]);
    release_model(&held);
    return answer;
}

typedef struct {
    held_model held;
    hc_map_walk walk;
} held_walk;

static void free_walk(PyObject *capsule) {
    held_walk *walk = PyCapsule_GetPointer(capsule, WALK);
    release_model(&walk->held);
    PyMem_Free(walk);
}

PyObject *hc_map_walk_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *ints, *reals, *choice_object;
    unsigned long long seed;
    long long budget;
    if (!PyArg_ParseTuple(args, "OOOKL", &ints, &reals, &choice_object, &seed, &budget))
        return NULL;
    held_walk *walk = PyMem_Calloc(1, sizeof *walk);
    if (!walk)
        return PyErr_NoMemory();
    if (!read_model(ints, reals, &walk->held)) {
        PyMem_Free(walk);
        return NULL;
    }
    hc_map_choice choice;
    hc_error error;
    hc_status status = HC_OK;
    PyObject *capsule = NULL;
    if (read_choice(&walk->held.model, choice_object, &choice)) {
        status = hc_map_walk_begin(&walk->held.model, &choice, seed, budget, &walk->walk, &error);
        if (status == HC_OK)
            capsule = PyCapsule_New(walk, WALK, free_walk);
        else
            hc_raise(status, &error);
    }
    if (!capsule) {
        release_model(&walk->held);
        PyMem_Free(walk);
    }
    return capsule;
}

PyObject *hc_map_walk_on_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    long long steps;
    if (!PyArg_ParseTuple(args, "OL", &capsule, &steps))
        return NULL;
    held_walk *walk = PyCapsule_GetPointer(capsule, WALK);
    if (!walk)
        return NULL;
    if (steps < 0)
        return PyErr_Format(PyExc_ValueError, "search: %lld steps", steps);
    WITHOUT_GIL(hc_map_walk_on(&walk->held.model, &walk->walk, steps));
    return Py_BuildValue("(LLNN)", (long long)walk->walk.taken, (long long)walk->walk.valid,
                         cost_tuple(&walk->walk.best_cost), choice_list(&walk->held.model, &walk->walk.best));
}

PyObject *hc_systolic_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[3];
    long long rows, cols;
    int dataflow;
    if (!PyArg_ParseTuple(args, "OOLLiO", &objects[0], &objects[1], &rows, &cols, &dataflow, &objects[2]))
        return NULL;
    static const char *const NAMES[] = {"systolic: a", "systolic: b", "systolic: out"};
    Py_buffer view[3];
    int count = 0;
    while (count < 3 && numbers(objects[count], NAMES[count], false, 2, count == 2, &view[count]))
        count++;
    PyObject *answer = NULL;
    if (count == 3) {
        const int64_t m = view[0].shape[0], k = view[0].shape[1], n = view[1].shape[1];
        hc_systolic_run run = {.rows = rows, .cols = cols};
        hc_error error;
        hc_status status;
        if (view[1].shape[0] != k || view[2].shape[0] != m || view[2].shape[1] != n || m < 1 || n < 1 || k < 1 ||
            rows < 1 || cols < 1 || dataflow < HC_WEIGHT_STATIONARY || dataflow > HC_OUTPUT_STATIONARY) {
            PyErr_SetString(PyExc_ValueError, "systolic: shapes do not meet, or a size below 1");
        } else {
            HC_WITHOUT_GIL(hc_systolic_gemm(view[0].buf, view[1].buf, m, n, k, (hc_systolic_dataflow)dataflow,
                                            view[2].buf, &run, &error));
            answer = status != HC_OK
                         ? hc_raise(status, &error)
                         : Py_BuildValue("(LLLLL)", (long long)run.cycles, (long long)run.folds,
                                         (long long)run.left_reads, (long long)run.top_reads, (long long)run.writes);
        }
    }
    while (count > 0)
        PyBuffer_Release(&view[--count]);
    return answer;
}
