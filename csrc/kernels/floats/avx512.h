/* Lanes of float32 in AVX-512, for headers with kernels that differ only in their registers. Included once per file. */
#include <immintrin.h>

enum { LANES = 16 };

#define HC_V __m512
#define HC_ZERO() _mm512_setzero_ps()
#define HC_LOAD(at) _mm512_loadu_ps(at)
#define HC_STORE(at, value) _mm512_storeu_ps(at, value)
#define HC_SET(value) _mm512_set1_ps(value)
#define HC_ADD(a, b) _mm512_add_ps(a, b)
#define HC_SUB(a, b) _mm512_sub_ps(a, b)
#define HC_MUL(a, b) _mm512_mul_ps(a, b)
#define HC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define HC_RELU(a) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NLE_UQ), a)
