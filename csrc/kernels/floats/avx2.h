/* Lanes of float32 in AVX2, for headers with kernels that differ only in their registers. Included once per file. */
#include <immintrin.h>

enum { LANES = 8 };

#define HC_V __m256
#define HC_ZERO() _mm256_setzero_ps()
#define HC_LOAD(at) _mm256_loadu_ps(at)
#define HC_STORE(at, value) _mm256_storeu_ps(at, value)
#define HC_SET(value) _mm256_set1_ps(value)
#define HC_ADD(a, b) _mm256_add_ps(a, b)
#define HC_SUB(a, b) _mm256_sub_ps(a, b)
#define HC_MUL(a, b) _mm256_mul_ps(a, b)
#define HC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define HC_RELU(a) _mm256_and_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NLE_UQ), a)
