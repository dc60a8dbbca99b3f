/* Dot products of rows by vpdpbusd on 256-bit registers; 128 is added to w, which makes it unsigned. */
#include "kernels/dots/avxvnni.h"
#include "kernels/rows/rows_s8_avx2.h"

enum { STEP = 32, ADDED = 128 };

INLINE vector load_x(const int8_t *x) { return _mm256_loadu_si256((const __m256i *)x); }
INLINE vector load_w(const int8_t *w) { return _mm256_xor_si256(load_x(w), _mm256_set1_epi8(-128)); }
INLINE vector load_w_tail(const int8_t *w, int n) {
    int8_t bytes[STEP] = {0};
    memcpy(bytes, w, (size_t)n);
    return load_w(bytes);
}

#include "kernels/rows/rows_s8.h"

void hc_rows_s8_avxvnni(const hc_rows_s8_args *args) {
    switch (args->n_x) { HC_ROWS_CASES }
}
