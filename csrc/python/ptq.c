/* The binding of csrc/ptq/: contiguous arrays of float64 and int32 -> release the GIL -> call. No arithmetic here. */
#include "python/call.h"
#include "python/methods.h"

#include "ptq/ptq.h"

#include <limits.h>
#include <string.h>

enum { MAX_BUFFERS = 16 };

/* The buffers of one call. */
typedef struct {
    int count;
    Py_buffer view[MAX_BUFFERS];
} buffers;

static PyObject *give_up(buffers *held) {
    while (held->count > 0)
        PyBuffer_Release(&held->view[--held->count]);
    return NULL;
}

/* The memory of a contiguous array of this kind ('d' float64, 'i' int32, 'l' int64, 'B' uint8) with this number of
 * items; NULL with an error. */
static void *items(buffers *held, PyObject *object, const char *name, char kind, int64_t count, bool writable) {
    Py_buffer *view = &held->view[held->count];
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return NULL;
    held->count++;
    const char *format = view->format ? view->format : "B";
    const bool right = format[0] == kind || (kind == 'l' && format[0] == 'q' && view->itemsize == 8);
    if (strlen(format) != 1 || !right || (kind == 'l' && view->itemsize != 8) ||
        (count >= 0 && view->len / view->itemsize != count)) {
        PyErr_Format(PyExc_ValueError, "ptq: %s: expected %lld contiguous items of %s", name, (long long)count,
                     kind == 'd'   ? "float64"
                     : kind == 'i' ? "int32"
                     : kind == 'l' ? "int64"
                                   : "uint8");
        return NULL;
    }
    /* an empty array has an address too, so NULL always means an error */
    return view->buf ? view->buf : (void *)held;
}

/* (rows, groups, group, scale, zero or None, low, high, levels or None, thresholds or None, mask or None, exact) */
static bool parse_grid(PyObject *object, buffers *held, hc_ptq_grid *grid) {
    PyObject *group, *scale, *zero, *levels, *thresholds, *mask;
    long long rows, n_groups;
    int exact;
    *grid = (hc_ptq_grid){0};
    if (!hc_parse_tuple(object, "ptq: grid", "LLOOOddOOOp", &rows, &n_groups, &group, &scale, &zero, &grid->low,
                        &grid->high, &levels, &thresholds, &mask, &exact) ||
        !(grid->group = items(held, group, "groups", 'i', -1, false)))
        return false;
    grid->rows = rows;
    grid->n_groups = n_groups;
    grid->exact = exact;
    grid->columns = held->view[held->count - 1].len / (int64_t)sizeof(int32_t);
    int64_t size;
    for (int64_t i = 0; i < grid->columns; i++)
        if (grid->group[i] < (i ? grid->group[i - 1] : 0) || grid->group[i] >= n_groups) {
            PyErr_SetString(PyExc_ValueError, "ptq: groups: expected numbers of groups, not falling");
            return false;
        }
    if (rows < 0 || n_groups < 0 || !hc_mul_size(rows, n_groups, &size)) {
        PyErr_SetString(PyExc_ValueError, "ptq: sizes below 0 or too large");
        return false;
    }
    if (!(grid->scale = items(held, scale, "scales", 'd', size, true)) ||
        (zero != Py_None && !(grid->zero = items(held, zero, "zero points", 'd', size, false))))
        return false;
    if (mask != Py_None &&
        (!hc_mul_size(rows, grid->columns, &size) || !(grid->mask = items(held, mask, "the mask", 'B', size, true))))
        return false;
    if (levels == Py_None)
        return true;
    if (!(grid->levels = items(held, levels, "levels", 'd', -1, false)) ||
        !(grid->thresholds = items(held, thresholds, "thresholds", 'd', -1, false)))
        return false;
    const Py_buffer *found = &held->view[held->count - 2];
    grid->per_row = found->ndim == 2;
    grid->n_levels = found->ndim ? (int)found->shape[0] : 0;
    if (grid->n_levels < 1 || found->ndim > 2 || (grid->per_row && found->shape[1] != rows) ||
        found[1].len / 8 != (int64_t)(grid->n_levels - 1) * (grid->per_row ? rows : 1)) {
        PyErr_SetString(PyExc_ValueError, "ptq: levels: expected (levels) or (levels, rows) and one threshold less");
        return false;
    }
    return true;
}

PyObject *hc_ptq_gram_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *left_object, *right_object, *sum_object;
    long long tokens, columns;
    hc_run run;
    buffers held = {0};
    int64_t size, square;
    if (!PyArg_ParseTuple(args, "OLLOOO", &run_object, &tokens, &columns, &left_object, &right_object, &sum_object) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    if (tokens < 0 || columns < 0 || !hc_mul_size(tokens, columns, &size) || !hc_mul_size(columns, columns, &square))
        return PyErr_Format(PyExc_ValueError, "ptq: %lld inputs of %lld columns", tokens, columns);
    const double *left = items(&held, left_object, "inputs", 'd', size, false);
    const double *right = left ? items(&held, right_object, "inputs", 'd', size, false) : NULL;
    double *sum = right ? items(&held, sum_object, "the sum", 'd', square, true) : NULL;
    if (!sum)
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_gram(&run, tokens, columns, left, left_object == right_object ? left : right, sum, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_ptq_factor_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *matrix_object, *diagonal_object;
    hc_run run;
    buffers held = {0};
    if (!PyArg_ParseTuple(args, "OOO", &run_object, &matrix_object, &diagonal_object) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    double *diagonal = items(&held, diagonal_object, "the diagonal", 'd', -1, true);
    const int64_t columns = diagonal ? held.view[0].len / 8 : 0;
    int64_t square;
    double *matrix = diagonal && hc_mul_size(columns, columns, &square)
                         ? items(&held, matrix_object, "the matrix", 'd', square, true)
                         : NULL;
    if (!matrix)
        return give_up(&held);
    hc_error error;
    hc_status status;
    int64_t failed;
    HC_WITHOUT_GIL(hc_ptq_factor(&run, columns, matrix, diagonal, &failed, &error));
    give_up(&held);
    return status == HC_OK ? PyLong_FromLongLong(failed) : hc_raise(status, &error);
}

PyObject *hc_ptq_largest_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *matrix_object;
    long long columns;
    int steps;
    hc_run run;
    buffers held = {0};
    if (!PyArg_ParseTuple(args, "OLOi", &run_object, &columns, &matrix_object, &steps) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    int64_t square;
    if (columns < 0 || steps < 0 || !hc_mul_size(columns, columns, &square))
        return PyErr_Format(PyExc_ValueError, "ptq: %lld columns and %d steps", columns, steps);
    const double *matrix = items(&held, matrix_object, "the matrix", 'd', square, false);
    if (!matrix)
        return give_up(&held);
    hc_error error;
    hc_status status;
    double largest;
    HC_WITHOUT_GIL(hc_ptq_largest(&run, columns, matrix, steps, &largest, &error));
    give_up(&held);
    return status == HC_OK ? PyFloat_FromDouble(largest) : hc_raise(status, &error);
}

/* Parses the common arguments of functions with a grid: w, and a second array with columns^2 items if `square`,
 * otherwise one item per column. Without a second array, w itself is passed. */
static bool begin(PyObject *run_object, PyObject *grid_object, PyObject *w_object, PyObject *second_object, bool square,
                  hc_run *run, buffers *held, hc_ptq_grid *grid, const double **w, const double **second) {
    int64_t size, other;
    if (!hc_parse_run(run_object, run) || !parse_grid(grid_object, held, grid))
        return false;
    if (!hc_mul_size(grid->columns, grid->rows, &size) ||
        !hc_mul_size(grid->columns, square ? grid->columns : 1, &other)) {
        PyErr_SetString(PyExc_ValueError, "ptq: sizes too large");
        return false;
    }
    return (*w = items(held, w_object, "w", 'd', size, false)) &&
           (*second = items(held, second_object, "the matrix", 'd', second_object == w_object && !square ? size : other,
                            false));
}

PyObject *hc_ptq_score_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *grid_object, *w_object, *weight_object, *sums_object;
    hc_run run;
    hc_ptq_grid grid;
    buffers held = {0};
    const double *w, *weight;
    if (!PyArg_ParseTuple(args, "OO!OOO", &run_object, &PyTuple_Type, &grid_object, &w_object, &weight_object,
                          &sums_object))
        return NULL;
    double *sums = begin(run_object, grid_object, w_object, weight_object, false, &run, &held, &grid, &w, &weight)
                       ? items(&held, sums_object, "sums", 'd', grid.n_groups * grid.rows, true)
                       : NULL;
    if (!sums)
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_score(&run, &grid, w, weight, sums, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

/* (n, block, weight): the columns of a block are adjacent in the order. */
static bool parse_choice(PyObject *object, buffers *held, const hc_ptq_grid *grid, const int32_t *order,
                         hc_ptq_choice *choice) {
    PyObject *block, *weight;
    if (!PyTuple_Check(object) || !grid->mask) {
        PyErr_SetString(PyExc_ValueError, "ptq: choice: expected (n, block, weight) and a grid with a mask");
        return false;
    }
    if (!PyArg_ParseTuple(object, "iOO", &choice->n, &block, &weight) ||
        !(choice->block = items(held, block, "blocks", 'i', grid->columns, false)) ||
        !(choice->weight = items(held, weight, "weights", 'd', grid->columns, false)))
        return false;
    for (int64_t i = 0, length = 1; i + 1 < grid->columns; i++) {
        length = choice->block[order[i]] == choice->block[order[i + 1]] ? length + 1 : 1;
        if (length > HC_PTQ_MOST) {
            PyErr_Format(PyExc_ValueError, "ptq: choice: expected blocks of at most %d columns", HC_PTQ_MOST);
            return false;
        }
    }
    return true;
}

/* (segment, positive, negative, (p, n, limit) twice, threshold or None, forgets) or None */
static bool parse_budget(PyObject *object, buffers *held, const hc_ptq_grid *grid, hc_ptq_budget *budget) {
    PyObject *segment, *positive, *negative, *threshold;
    long long n_segments;
    int forgets;
    *budget = (hc_ptq_budget){0};
    if (!hc_parse_tuple(object, "ptq: budget", "LOOO(ddd)(ddd)Op", &n_segments, &segment, &positive, &negative,
                        &budget->p[0], &budget->n[0], &budget->limit[0], &budget->p[1], &budget->n[1],
                        &budget->limit[1], &threshold, &forgets))
        return false;
    int64_t size;
    budget->n_segments = n_segments;
    if (n_segments < 0 || !hc_mul_size(budget->n_segments, grid->rows, &size) || grid->n_levels || grid->exact ||
        grid->mask) {
        PyErr_SetString(PyExc_ValueError, "ptq: budget: expected segments, and a grid of steps without a mask");
        return false;
    }
    budget->forgets = forgets;
    if (!(budget->segment = items(held, segment, "segments", 'i', grid->columns, false)) ||
        !(budget->positive = items(held, positive, "sums", 'd', size, true)) ||
        !(budget->negative = items(held, negative, "sums", 'd', size, true)) ||
        (threshold != Py_None && !(budget->threshold = items(held, threshold, "thresholds", 'd', size, false))))
        return false;
    for (int64_t i = 0; i < grid->columns; i++)
        if (budget->segment[i] < 0 || budget->segment[i] >= budget->n_segments) {
            PyErr_SetString(PyExc_ValueError, "ptq: budget: expected numbers of segments");
            return false;
        }
    return true;
}

PyObject *hc_ptq_columns_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *grid_object, *w_object, *factor_object, *order_object, *choice_object, *codes_object;
    PyObject *first_object = Py_None, *budget_object = Py_None;
    hc_run run;
    hc_ptq_choice choice;
    hc_ptq_budget budget;
    hc_ptq_grid grid;
    buffers held = {0};
    const double *w, *factor, *first = NULL;
    if (!PyArg_ParseTuple(args, "OO!OOOOO|OO", &run_object, &PyTuple_Type, &grid_object, &w_object, &factor_object,
                          &order_object, &choice_object, &codes_object, &first_object, &budget_object))
        return NULL;
    const int32_t *order = NULL;
    int32_t *codes = NULL;
    const bool alone = factor_object == Py_None; /* w is passed to the check instead */
    if (begin(run_object, grid_object, w_object, alone ? w_object : factor_object, !alone, &run, &held, &grid, &w,
              &factor) &&
        (order = items(&held, order_object, "order", 'i', grid.columns, false)))
        codes = items(&held, codes_object, "codes", 'i', grid.columns * grid.rows, true);
    for (int64_t i = 0; codes && i < grid.columns; i++)
        if (order[i] < 0 || order[i] >= grid.columns) {
            PyErr_SetString(PyExc_ValueError, "ptq: order: expected numbers of columns");
            codes = NULL;
        }
    const bool chosen = choice_object != Py_None;
    const bool begun = first_object != Py_None, limited = budget_object != Py_None;
    if (!codes || (chosen && !parse_choice(choice_object, &held, &grid, order, &choice)) ||
        (begun && !(first = items(&held, first_object, "first", 'd', grid.rows, false))) ||
        (limited && !parse_budget(budget_object, &held, &grid, &budget)))
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_columns(&run, &grid, w, alone ? NULL : factor, order, chosen ? &choice : NULL, first,
                                  limited ? &budget : NULL, codes, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

/* Whether codes can come from hc_ptq_columns. */
static bool within(const hc_ptq_grid *grid, const int32_t *codes) {
    for (int64_t i = 0; grid->n_levels && i < grid->columns * grid->rows; i++)
        if (codes[i] < 0 || codes[i] >= grid->n_levels) {
            PyErr_SetString(PyExc_ValueError, "ptq: codes: expected numbers of levels");
            return false;
        }
    return true;
}

/* (kind, table or None, unit or None) */
static bool parse_scales(PyObject *object, buffers *held, const hc_ptq_grid *grid, hc_ptq_scales *scales) {
    PyObject *table, *unit;
    int kind;
    if (!hc_parse_tuple(object, "ptq: scales", "iOO", &kind, &table, &unit))
        return false;
    *scales = (hc_ptq_scales){.kind = (hc_ptq_scale_kind)kind};
    if (kind == HC_PTQ_F32 || kind == HC_PTQ_F16)
        return true;
    if (kind == HC_PTQ_TABLE || kind == HC_PTQ_TABLE_F32)
        return (scales->table = items(held, table, "scales", 'd', -1, false)) &&
               (scales->n = (int)(held->view[held->count - 1].len / 8)) > 0 &&
               (scales->unit = items(held, unit, "units", 'd', grid->rows, false));
    PyErr_SetString(PyExc_ValueError, "ptq: there is no such kind of scales");
    return false;
}

PyObject *hc_ptq_descend_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *grid_object, *w_object, *h_object, *scales_object, *codes_object, *changed_object;
    PyObject *budget_object = Py_None;
    hc_run run;
    hc_ptq_grid grid;
    hc_ptq_scales scales;
    hc_ptq_budget budget;
    buffers held = {0};
    const double *w, *h;
    int refits;
    if (!PyArg_ParseTuple(args, "OO!OOOiOO|O", &run_object, &PyTuple_Type, &grid_object, &w_object, &h_object,
                          &scales_object, &refits, &codes_object, &changed_object, &budget_object))
        return NULL;
    int32_t *codes = begin(run_object, grid_object, w_object, h_object, true, &run, &held, &grid, &w, &h)
                         ? items(&held, codes_object, "codes", 'i', grid.columns * grid.rows, true)
                         : NULL;
    int64_t *changed = codes ? items(&held, changed_object, "changed", 'l', -1, true) : NULL;
    const int64_t sweeps = changed ? held.view[held.count - 1].len / (int64_t)sizeof *changed : 0;
    const bool moving = scales_object != Py_None, limited = budget_object != Py_None;
    if (changed && sweeps > INT_MAX)
        PyErr_SetString(PyExc_ValueError, "ptq: too many sweeps");
    if (!changed || sweeps > INT_MAX || !within(&grid, codes) ||
        (moving && !parse_scales(scales_object, &held, &grid, &scales)) ||
        (limited && !parse_budget(budget_object, &held, &grid, &budget)))
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_descend(&run, &grid, w, h, moving ? &scales : NULL, limited ? &budget : NULL, refits,
                                  (int)sweeps, codes, changed, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_ptq_levels_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *grid_object, *w_object, *h_object, *codes_object, *curvature_object, *slope_object;
    hc_run run;
    hc_ptq_grid grid;
    buffers held = {0};
    const double *w, *h;
    long long first, count;
    if (!PyArg_ParseTuple(args, "OO!OOOLLOO", &run_object, &PyTuple_Type, &grid_object, &w_object, &h_object,
                          &codes_object, &first, &count, &curvature_object, &slope_object))
        return NULL;
    const int32_t *codes = begin(run_object, grid_object, w_object, h_object, true, &run, &held, &grid, &w, &h)
                               ? items(&held, codes_object, "codes", 'i', grid.columns * grid.rows, false)
                               : NULL;
    int64_t size = 0, squares = 0;
    double *curvature = NULL, *slope = NULL;
    if (codes && (grid.n_levels < 1 || first < 0 || count < 0 || count > grid.rows || first > grid.rows - count ||
                  !hc_mul_size(count, grid.n_levels, &size) || !hc_mul_size(size, grid.n_levels, &squares)))
        PyErr_SetString(PyExc_ValueError, "ptq: rows: expected some of the grid's, with levels");
    else if (codes && within(&grid, codes) &&
             (curvature = items(&held, curvature_object, "curvatures", 'd', squares, true)))
        slope = items(&held, slope_object, "slopes", 'd', size, true);
    if (!slope)
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_levels(&run, &grid, w, h, codes, first, count, curvature, slope, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}

PyObject *hc_ptq_losses_method(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run_object, *errors_object, *h_object, *sums_object;
    long long columns;
    hc_run run;
    buffers held = {0};
    int64_t size, square;
    if (!PyArg_ParseTuple(args, "OLOOO", &run_object, &columns, &errors_object, &h_object, &sums_object) ||
        !hc_parse_run(run_object, &run))
        return NULL;
    double *sums = items(&held, sums_object, "sums", 'd', -1, true);
    const int64_t rows = sums ? held.view[0].len / (int64_t)sizeof *sums : 0;
    const double *errors = NULL, *h = NULL;
    if (sums && (columns < 0 || !hc_mul_size(columns, rows, &size) || !hc_mul_size(columns, columns, &square)))
        PyErr_SetString(PyExc_ValueError, "ptq: sizes below 0 or too large");
    else if (sums && (errors = items(&held, errors_object, "errors", 'd', size, false)))
        h = items(&held, h_object, "the matrix", 'd', square, false);
    if (!h)
        return give_up(&held);
    hc_error error;
    hc_status status;
    HC_WITHOUT_GIL(hc_ptq_losses(&run, columns, rows, errors, h, sums, &error));
    give_up(&held);
    return status == HC_OK ? Py_NewRef(Py_None) : hc_raise(status, &error);
}
