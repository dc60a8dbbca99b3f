/* Matmuls on a device of CUDA, by a function that the binding sets: nothing is linked. Only packed weights have kernels. */
#include "ops/route/route.h"

#include <stdatomic.h>

static _Atomic(hc_device_matmul_fn *) matmul_of_device;

void hc_cuda_use(hc_device_matmul_fn *matmul) { atomic_store(&matmul_of_device, matmul); }

const char *hc_cuda_refuses(const hc_call *call) {
    const hc_run *run = call->run;
    if (run->device == HC_HOST || !atomic_load(&matmul_of_device) || hc_elsewhere(call, run->device))
        return HC_ELSEWHERE;
    const hc_packed *a = call->a->packed, *b = call->b->packed;
    if (!b)
        return "b is not quantized, expected quantized weights: CUDA kernels multiply no dense ones; quantize it, or "
               "use "
               "CuPy or torch";
    if (b->ndim != 2)
        return "b has more than two dimensions, expected two on a CUDA device";
    if (call->bias && call->bias->shape[0] > 1 && call->bias->strides[0] != sizeof(float))
        return "bias is not contiguous, expected contiguous float32 on a CUDA device";
    int64_t rows = 1;
    for (int i = 0; i < call->sides[0].ndim - 1; i++)
        rows *= call->sides[0].shape[i];
    if (run->one_order && rows > HC_GEMV_MOST)
        return "a has more than 8 rows, expected at most 8 under hc.use(order='one'): CUDA kernels use another order "
               "of "
               "sums for more";
    return a && a->ndim < 2 ? "a is a quantized vector, expected two dimensions or more on a CUDA device" : NULL;
}

/* Asked only if another route does not refuse: never, since operands are in one memory. */
double hc_cuda_share(const hc_call *call) {
    (void)call;
    return 1;
}

hc_status hc_cuda_run(const hc_call *call, hc_error *error) {
    return atomic_load(&matmul_of_device)(call->run, call->a, call->b->packed, call->activations, call->bias, call->out,
                                          error);
}
