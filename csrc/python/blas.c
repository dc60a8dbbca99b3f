/* cblas_sgemm and cblas_sgemv of a library opened with dlopen(RTLD_LOCAL), so that several BLAS live in one process untouched. */
#include "python/blas.h"
#include "python/arguments.h"

#include <dlfcn.h>
#include <limits.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);

typedef void sgemv_fn(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x,
                      int incx, float beta, float *y, int incy);

static sgemm_fn *sgemm;
static sgemv_fn *sgemv;
static void (*set_threads)(int);
static int (*get_threads)(void);
static int threads_set; /* what the last product set; another number is a limit that someone else set since */

PyObject *hc_blas_open(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *path;
    const char *gemm_name, *gemv_name, *threads_name, *get_threads_name, *config_name;
    if (!PyArg_ParseTuple(args, "O&sssss", PyUnicode_FSConverter, &path, &gemm_name, &gemv_name, &threads_name,
                          &get_threads_name, &config_name))
        return NULL;
    void *library = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
    Py_DECREF(path);
    if (!library)
        return PyErr_Format(PyExc_OSError, "blas: %s", dlerror());
    sgemm_fn *found;
    sgemv_fn *found_gemv;
    *(void **)&found = dlsym(library, gemm_name);
    *(void **)&found_gemv = dlsym(library, gemv_name);
    if (!found || !found_gemv)
        return PyErr_Format(PyExc_OSError, "blas: the library has no function %s", found ? gemv_name : gemm_name);
    *(void **)&set_threads = dlsym(library, threads_name);
    *(void **)&get_threads = dlsym(library, get_threads_name);
    threads_set = 0;
    char *(*config)(void);
    *(void **)&config = dlsym(library, config_name);
    sgemm = found;
    sgemv = found_gemv;
    return PyUnicode_FromString(config ? config() : "");
}

/* BLAS wants one of two strides to be that of an element; false where neither is, or a size leaves int. */
static int matrix(const hc_view *view, int *trans, int *ld) {
    const int64_t rows = view->shape[0], columns = view->shape[1], size = sizeof(float);
    if (view->ndim != 2 || view->dtype != HC_F32 || rows > INT_MAX || columns > INT_MAX)
        return 0;
    const int64_t row = rows > 1 ? view->strides[0] : columns * size;
    const int64_t column = columns > 1 ? view->strides[1] : size;
    const bool plain = column == size && row >= columns * size;
    const bool transposed =
        (rows > 1 ? view->strides[0] : size) == size && (columns > 1 ? view->strides[1] : rows * size) >= rows * size;
    if (!plain && !transposed)
        return 0;
    const int64_t stride = plain ? row : columns > 1 ? view->strides[1] : rows * size;
    if (stride % size != 0 || stride / size > INT_MAX)
        return 0;
    *trans = plain ? NO_TRANS : TRANS;
    *ld = (int)hc_max(stride / size, 1);
    return 1;
}

static bool is_vector(const hc_view *view, int axis) {
    return view->shape[axis] <= 1 || view->strides[axis] == sizeof(float);
}

/* Sets the number of threads, unless someone else (threadpoolctl) set a smaller one since the last product. */
static void use_threads(int threads) {
    if (!set_threads)
        return;
    if (get_threads && threads_set && get_threads() != threads_set) {
        set_threads((int)hc_min(threads, get_threads()));
        return;
    }
    set_threads(threads);
    threads_set = get_threads ? get_threads() : threads;
}

PyObject *hc_blas_sgemm(PyObject *self, PyObject *args) {
    (void)self;
    int threads;
    PyObject *a_object, *b_object, *out_object;
    hc_view a, b, out;
    hc_held held = {.count = 0};
    if (!PyArg_ParseTuple(args, "iOOO", &threads, &a_object, &b_object, &out_object) ||
        !hc_parse_view(a_object, "sgemm: a", &a, &held) || !hc_parse_view(b_object, "sgemm: b", &b, &held) ||
        !hc_parse_view(out_object, "sgemm: out", &out, &held)) {
        hc_release(&held);
        return NULL;
    }
    int trans_a, trans_b, trans_out, lda, ldb, ldc;
    const bool served = sgemm && a.ndim == 2 && b.ndim == 2 && out.ndim == 2 && matrix(&a, &trans_a, &lda) &&
                        matrix(&b, &trans_b, &ldb) && matrix(&out, &trans_out, &ldc) && trans_out == NO_TRANS &&
                        a.shape[1] == b.shape[0] && out.shape[0] == a.shape[0] && out.shape[1] == b.shape[1] &&
                        a.shape[0] > 0 && a.shape[1] > 0 && b.shape[1] > 0;
    if (served) {
        const hc_float_env saved = hc_float_env_enter(); /* threads that begin here inherit it */
        use_threads(threads);
        Py_BEGIN_ALLOW_THREADS const int m = (int)a.shape[0], n = (int)b.shape[1], k = (int)a.shape[1];
        if (m == 1 && is_vector(&a, 1) && is_vector(&out, 1)) /* sgemm packs the whole matrix for a single vector */
            sgemv(ROW_MAJOR, trans_b == TRANS ? NO_TRANS : TRANS, trans_b == TRANS ? n : k, trans_b == TRANS ? k : n,
                  1.0f, b.data, ldb, a.data, 1, 0.0f, out.data, 1);
        else if (n == 1 && is_vector(&b, 0) && is_vector(&out, 0))
            sgemv(ROW_MAJOR, trans_a, trans_a == TRANS ? k : m, trans_a == TRANS ? m : k, 1.0f, a.data, lda, b.data, 1,
                  0.0f, out.data, 1);
        else
            sgemm(ROW_MAJOR, trans_a, trans_b, m, n, k, 1.0f, a.data, lda, b.data, ldb, 0.0f, out.data, ldc);
        Py_END_ALLOW_THREADS hc_float_env_leave(saved);
    }
    hc_release(&held);
    return PyBool_FromLong(served);
}
