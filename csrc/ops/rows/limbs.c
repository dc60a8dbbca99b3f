/* Rows as signed limbs. */
#include "ops/rows/limbs.h"
#include "ops/product/pack.h"

#include <string.h>

int64_t hc_rows_planes(const hc_source *source) {
    const hc_int_form *form = &source->form[HC_INT_FOLDED];
    return hc_max(form->n_limbs, hc_signed_limbs(form));
}

void hc_rows_load(const hc_source *source, int64_t first, int64_t rows, int64_t ld, int64_t plane, int8_t *to,
                  float *scales) {
    const int n_limbs = source->form[HC_INT_FOLDED].n_limbs,
              signed_limbs = hc_signed_limbs(&source->form[HC_INT_FOLDED]);
    int8_t *const planes[] = {to, to + plane, to + 2 * plane, to + 3 * plane};
    const hc_int_tile tile = {.limb = {planes[0], planes[1], planes[2]}, .ld = ld, .row_scale = scales};
    source->integers(source, HC_INT_FOLDED, first, rows, 0, source->columns, &tile);
    if (n_limbs > 1)
        hc_balance_limbs(planes, ld, n_limbs, signed_limbs, rows, source->columns);
}

/* Adds eight bytes at a time, made unsigned, in 16-bit lanes: no instruction set adds bytes of different signs. */
int32_t hc_rows_sum(const int8_t *values, int64_t n) {
    const uint64_t low = 0x00ff00ff00ff00ff;
    int64_t sum = 0, i = 0;
    while (i + 8 <= n) {
        const int64_t first = i, end = hc_min(n & ~(int64_t)7, i + 1024); /* 128 words of at most 510 a lane */
        uint64_t lanes = 0;
        for (; i < end; i += 8) {
            uint64_t word;
            memcpy(&word, values + i, sizeof word);
            word ^= 0x8080808080808080;
            lanes += (word & low) + (word >> 8 & low);
        }
        sum += (int64_t)((lanes & 0xffff) + (lanes >> 16 & 0xffff) + (lanes >> 32 & 0xffff) + (lanes >> 48));
        sum -= 128 * (i - first);
    }
    for (; i < n; i++)
        sum += values[i];
    return (int32_t)sum;
}
