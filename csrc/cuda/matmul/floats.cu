/* Floats times decoded weights: each value of y is one chain of fma (chains.h). */
#include "cuda/matmul/floats.h"

HC_KERNEL(hc_sgemm_16, hc_cuda_sgemm, 128) { chains<16, 64, 2, 4, 8, 32, 5, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_32, hc_cuda_sgemm, 128) { chains<32, 64, 4, 4, 8, 32, 4, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_64, hc_cuda_sgemm, 256) { chains<64, 64, 4, 4, 4, 32, 4, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_128, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 4, 16, 4, 2, floats>::run(p); }
#ifdef HC_TRY
HC_KERNEL(hc_sgemm_v1, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 4, 32, 3, 2, floats>::run(p); }
HC_KERNEL(hc_sgemm_v2, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 4, 32, 3, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_v3, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 4, 16, 4, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_v4, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 8, 16, 4, 2, floats>::run(p); }
HC_KERNEL(hc_sgemm_v5, hc_cuda_sgemm, 256) { chains<128, 128, 8, 8, 8, 16, 4, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_v6, hc_cuda_sgemm, 128) { chains<128, 64, 8, 8, 4, 16, 4, 2, floats>::run(p); }
HC_KERNEL(hc_sgemm_v7, hc_cuda_sgemm, 128) { chains<64, 128, 8, 8, 4, 16, 4, 4, floats>::run(p); }
HC_KERNEL(hc_sgemm_v8, hc_cuda_sgemm, 128, 2) { chains<64, 128, 8, 8, 4, 32, 3, 4, floats>::run(p); }
#endif

/* Rows of x as floats, one behind another, for the kernels of this file and of floats_bf16.cu. */
HC_KERNEL(hc_floats, hc_cuda_floats, 128) {
    const char *from = p.x.data + hc_dims_offset(&p.x.rows, blockIdx.x);
    float *to = p.to + blockIdx.x * p.k;
    for (int64_t k = (int64_t)blockIdx.y * 512 + threadIdx.x; k < hc_min(p.k, (int64_t)blockIdx.y * 512 + 512);
         k += 128)
        to[k] = hc_load_value(from + k * p.x.column_stride, p.x.dtype);
}
