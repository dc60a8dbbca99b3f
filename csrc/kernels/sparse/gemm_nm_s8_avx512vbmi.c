/* gemm_nm_s8 for 4 of 16, 32 and 64; the included file describes it. */
#include "kernels/sparse/gemm_nm_s8_avx512vnni.h"

__attribute__((target("avx512vnni"))) void
hc_gemm_nm_s8_of16_avx512vbmi(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(16, n_steps, a, b, init, c);
}

__attribute__((target("avx512vnni"))) void
hc_gemm_nm_s8_of32_avx512vbmi(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(32, n_steps, a, b, init, c);
}

__attribute__((target("avx512vnni"))) void
hc_gemm_nm_s8_of64_avx512vbmi(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    sparse_s8(64, n_steps, a, b, init, c);
}
