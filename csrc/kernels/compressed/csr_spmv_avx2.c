/* Stored weights times one vector, with fused multiply-add; kernels/compressed/compressed.h. Rows of few values are read in
 * blocks of 8, so that no branch depends on the number of values of a row: processors predict it badly. Lanes behind the
 * end of a row keep their sums. */
#include "kernels/compressed/csr_spmv.h"

#include <immintrin.h>

enum { LANES = 8, SHORT = 20, ROWS = 64 };

static const int32_t first_lanes[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};

/* A load per value: a gather takes longer on Zen 4. */
static inline __m256 taken(const float *x, const int32_t *at) {
    __m128 low = _mm_insert_ps(_mm_load_ss(x + at[0]), _mm_load_ss(x + at[1]), 0x10);
    __m128 high = _mm_insert_ps(_mm_load_ss(x + at[4]), _mm_load_ss(x + at[5]), 0x10);
    low = _mm_insert_ps(low, _mm_load_ss(x + at[2]), 0x20);
    high = _mm_insert_ps(high, _mm_load_ss(x + at[6]), 0x20);
    low = _mm_insert_ps(low, _mm_load_ss(x + at[3]), 0x30);
    high = _mm_insert_ps(high, _mm_load_ss(x + at[7]), 0x30);
    return _mm256_set_m128(high, low);
}

/* Folds the 8 sums of each row. */
static void fold(int64_t rows, const float *sums, float *out) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, sums += 4 * LANES) {
        __m128 a = _mm_add_ps(_mm_loadu_ps(sums), _mm_loadu_ps(sums + 4));
        __m128 b = _mm_add_ps(_mm_loadu_ps(sums + 8), _mm_loadu_ps(sums + 12));
        __m128 c = _mm_add_ps(_mm_loadu_ps(sums + 16), _mm_loadu_ps(sums + 20));
        __m128 d = _mm_add_ps(_mm_loadu_ps(sums + 24), _mm_loadu_ps(sums + 28));
        _MM_TRANSPOSE4_PS(a, b, c, d);
        _mm_storeu_ps(out + i, _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d)));
    }
    for (; i < rows; i++, sums += LANES)
        out[i] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* Returns the number of rows before the first one with a block that reaches behind `end`; starts count from `values`. */
static int64_t walk_blocks(int64_t rows, const int64_t *starts, int64_t end, const float *values,
                           const int32_t *indices, const float *x, float *out) {
    float sums[ROWS * LANES];
    __m256 sum = _mm256_setzero_ps();
    int64_t row = 0, at = starts[0];
    while (row < rows && at + LANES <= end) {
        const int64_t next = starts[row + 1], left = next - at;
        const __m256i inside =
            _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + LANES - hc_min(left, LANES)));
        const __m256 more = _mm256_fmadd_ps(_mm256_loadu_ps(values + at), taken(x, indices + at), sum);
        sum = _mm256_blendv_ps(sum, more, _mm256_castsi256_ps(inside));
        _mm256_storeu_ps(sums + row * LANES, sum);
        const int64_t is_last = left <= LANES;
        sum = _mm256_and_ps(sum, _mm256_castsi256_ps(_mm256_set1_epi32((int)is_last - 1)));
        at = is_last ? next : at + LANES;
        row += is_last;
    }
    fold(row, sums, out);
    return row;
}

void hc_csr_spmv_avx2(int64_t rows, const int64_t *starts, const float *values, const int32_t *indices, const float *x,
                      float *out) {
    int64_t i = 0;
    while (i < rows) {
        const int64_t some = hc_min(ROWS, rows - i);
        const bool is_short = starts[i + some] - starts[i] < SHORT * some;
        const int64_t done = is_short ? walk_blocks(some, starts + i, starts[rows], values, indices, x, out + i) : 0;
        hc_csr_walk(some - done, starts + i + done, values, indices, x, out + i + done);
        i += some;
    }
}
