/* Addresses of the planners and modules of CUDA (cuda/hc_cuda.h), for tests that run the kernels on the host. */
#include "python/call.h"
#include "python/methods.h"

#include "cuda/hc_cuda.h"

PyObject *hc_cuda_addresses_method(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue(
        "{sNsNsNsNsNsNsN}", "quantize", PyLong_FromVoidPtr((void *)hc_cuda_plan_quantize), "dequantize",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_dequantize), "fake_quantize",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_fake_quantize), "matmul",
        PyLong_FromVoidPtr((void *)hc_cuda_plan_matmul), "chance", PyLong_FromVoidPtr((void *)hc_cuda_plan_chance),
        "prune", PyLong_FromVoidPtr((void *)hc_cuda_plan_prune), "module", PyLong_FromVoidPtr((void *)hc_cuda_module));
}
