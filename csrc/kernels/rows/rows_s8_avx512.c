/* Dot products of rows by vpmaddwd, exact where vpmaddubsw saturates: both sides are widened to int16 when they are
 * loaded. */
#include "kernels/rows/rows_s8_avx512.h"
#include "kernels/dots/avx512.h"

enum { STEP = 32, ADDED = 0 };

INLINE vector load_w(const int8_t *w) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)w)); }
INLINE vector load_w_tail(const int8_t *w, int n) {
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(((__mmask32)1 << n) - 1, w));
}
INLINE vector load_x(const int8_t *x) { return load_w(x); }

#include "kernels/rows/rows_s8.h"

void hc_rows_s8_avx512(const hc_rows_s8_args *args) {
    switch (args->n_x) { HC_ROWS_CASES }
}
