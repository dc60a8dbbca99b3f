/* gemm_nm_s8_of16: 4 of 16; the file that is included says how. */
#include "kernels/sparse/gemm_nm_s8_avx512.h"

void hc_gemm_nm_s8_of16_avx512(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}
