/* gemm_nm_s8 for 4 of 8 and of 16; the included file describes it. */
#include "kernels/sparse/gemm_nm_s8_avx512vnni.h"

void hc_gemm_nm_s8_of8_avx512vnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(8, n_steps, a, b, init, c);
}

void hc_gemm_nm_s8_of16_avx512vnni(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}
