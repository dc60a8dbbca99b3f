/* hc_octav_avx512: kernels/clip/clip.h. */
#include <immintrin.h>

#define HC_DOUBLES 8
#define HC_REGISTERS 2
#define HC_BEYOND(sum, count, value, bound)                                                                            \
    do {                                                                                                               \
        const __mmask8 beyond = _mm512_cmp_pd_mask((__m512d)(value), (__m512d)(bound), _CMP_GT_OQ);                    \
        sum = (hc_doubles)_mm512_mask_add_pd((__m512d)sum, beyond, (__m512d)sum, (__m512d)(value));                    \
        count = (hc_words)_mm512_mask_sub_epi64((__m512i)count, beyond, (__m512i)count, _mm512_set1_epi64(-1));        \
    } while (0)
#define HC_ANY(words) (_mm512_test_epi64_mask((__m512i)(words), (__m512i)(words)) != 0)
#include "kernels/clip/across.h"
#include "kernels/clip/octav_across.h"

void hc_octav_avx512(int64_t groups, int64_t n, const void *x, bool is_double, bool positive, double inside,
                     double *scratch, float *thresholds) {
    hc_octav_body(groups, n, x, is_double, positive, inside, scratch, thresholds);
}
