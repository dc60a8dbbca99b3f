/* Dot products of rows by vpdpbusd; 128 is added to w, which makes it unsigned. */
#include "kernels/dots/avx512vnni.h"
#include "kernels/rows/rows_s8_avx512.h"

enum { STEP = 64, ADDED = 128 };

INLINE vector load_w(const int8_t *w) { return _mm512_xor_si512(_mm512_loadu_si512(w), _mm512_set1_epi8(-128)); }
INLINE vector load_w_tail(const int8_t *w, int n) {
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, w), _mm512_set1_epi8(-128));
}
INLINE vector load_x(const int8_t *x) { return _mm512_loadu_si512(x); }

#include "kernels/rows/rows_s8.h"

void hc_rows_s8_avx512vnni(const hc_rows_s8_args *args) {
    switch (args->n_x) { HC_ROWS_CASES }
}
