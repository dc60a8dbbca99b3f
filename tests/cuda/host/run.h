/* Runs kernels in this process, block by block (device.h). NULL, or what went wrong. */
#ifndef HC_CUDA_HOST_RUN_H
#define HC_CUDA_HOST_RUN_H

#include "cuda/hc_cuda.h"

extern "C" {
/* One step. order: of the threads and blocks, 0 forward, 1 backward, more: shuffled by that seed. */
const char *hc_cuda_host_launch(const char *kernel, const uint32_t grid[3], const uint32_t block[3],
                                uint32_t shared_bytes, const void *params, uint32_t params_bytes, uint32_t order);
const char *hc_cuda_host_run(const hc_cuda_plan *plan, uint32_t order); /* all steps of a plan */
const char *hc_cuda_host_step(const hc_cuda_plan *plan, int number);    /* its kernel; NULL past the end */
bool hc_cuda_host_is_in(const char *kernel, const char *module);
}

#endif
