/* An answer that shows that a value was refused, for callers that do not wait. */
#include "cuda/definition.h"

HC_KERNEL(hc_poison, hc_cuda_poison, 256) {
    if (p.state->illegal == 0)
        return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (int64_t)gridDim.x * blockDim.x)
        p.y[i] = NAN;
}
