/* Copies and checks indices, 8 at a time: hc_csr_copy_avx2; kernels/compressed/compressed.h. What is stored is what is
 * checked, since another thread may change the indices; their order is that of two reads. */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

enum { LANES = 8, PART = 1 << 24 };

int64_t hc_csr_copy_avx2(int64_t n, const int32_t *indices, int64_t columns, int32_t *to, bool *inside) {
    const uint32_t most = columns > 0 ? (uint32_t)columns - 1 : 0;
    const __m256i limit = _mm256_set1_epi32((int32_t)most);
    __m256i largest = _mm256_setzero_si256();
    int64_t falls = 0, t = 0;
    uint32_t beyond = columns > 0 || n == 0 ? 0 : 1;
    if (n > 0) {
        to[0] = indices[0];
        beyond |= (uint32_t)to[0] > most;
        t = 1;
    }
    while (t + LANES <= n) { /* counts of a part fit into 32 bits */
        const int64_t end = n - t < PART ? n : t + PART;
        __m256i steps = _mm256_setzero_si256();
        for (; t + LANES <= end; t += LANES) {
            const __m256i found = _mm256_loadu_si256((const __m256i *)(const void *)(indices + t));
            _mm256_storeu_si256((__m256i *)(void *)(to + t), found);
            const __m256i before = _mm256_loadu_si256((const __m256i *)(const void *)(indices + t - 1));
            largest = _mm256_max_epu32(largest, found);
            steps = _mm256_sub_epi32(steps, _mm256_cmpgt_epi32(before, found));
        }
        int32_t counts[LANES];
        memcpy(counts, &steps, sizeof counts);
        for (int i = 0; i < LANES; i++)
            falls += counts[i];
    }
    const __m256i legal = _mm256_cmpeq_epi32(_mm256_max_epu32(largest, limit), limit);
    for (; t < n; t++) {
        to[t] = indices[t];
        beyond |= (uint32_t)to[t] > most;
        falls += to[t] < to[t - 1];
    }
    *inside = beyond == 0 && _mm256_movemask_epi8(legal) == -1;
    return falls;
}
