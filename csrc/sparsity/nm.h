/* N:M patterns: the n values with the largest score of every m along a run are kept, the lower index if scores are
 * equal. A row is a sequence of blocks of m padded columns; nonzero t = block * n + i is in padded column block * m +
 * position(t), positions of a block ascending. Position t occupies bits t * b .. t * b + b - 1 of the row's metadata, b
 * = ceil(log2 m), bit 0 = lowest of byte 0. Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021 (arXiv
 * 2104.08378), section 3, has n = 2, m = 4.
 */
#ifndef HC_NM_H
#define HC_NM_H

#include "base/packed.h"

#include <math.h>

/* blocks * m values of x -> blocks * n nonzeros and their positions, from bit 0 of `metadata` on; the rest of the last
 * byte is 0. scores: of x, or NULL for |x|. Returns HC_DONE, or the index of the first NaN score. */
static inline int64_t hc_nm_choose(int n, int m, int64_t blocks, const float *x, const float *scores, float *values,
                                   uint8_t *metadata) {
    const int bits = hc_position_bits(m);
    uint64_t pending = 0;
    int n_pending = 0;
    for (int64_t block = 0; block < blocks; block++, x += m) {
        float score[HC_MAX_M];
        for (int i = 0; i < m; i++)
            score[i] = scores ? scores[block * m + i] : fabsf(x[i]);
        for (int i = 0; i < m; i++)
            if (isnan(score[i]))
                return block * m + i;
        for (int i = 0; i < m; i++) {
            int better = 0;
            for (int j = 0; j < m; j++)
                better += j < i ? score[j] >= score[i] : score[j] > score[i];
            if (better >= n)
                continue;
            *values++ = x[i];
            pending |= (uint64_t)i << n_pending;
            for (n_pending += bits; n_pending >= 8; n_pending -= 8, pending >>= 8)
                *metadata++ = (uint8_t)pending;
        }
    }
    if (n_pending > 0)
        *metadata = (uint8_t)pending;
    return HC_DONE;
}

/* Positions [first, first + count) of a row with `kept` nonzeros; all are below m, for any bits. */
void hc_nm_positions(const uint8_t *metadata, int64_t kept, int m, int64_t first, int64_t count, uint8_t *positions);

/* Bit k % 64 of masks[k / 64], k < columns: whether column first_block * m + k of a row is a nonzero. */
void hc_nm_masks(const uint8_t *metadata, int64_t kept, int n, int m, int64_t first_block, int64_t columns,
                 uint64_t *masks);

/* The same by a table. An index of `bits` bits of metadata stands for several blocks, or for several positions of one
 * block. A block then takes `lookups` indices, the last of last_bits. */
typedef struct {
    int n, m;
    int width, unit_bits;               /* columns that are written at once, and their bits of metadata */
    int lookups, bits, last_bits, last; /* last: start of the masks of last_bits */
    uint32_t masks[(1 << 12) + (1 << 9)];
} hc_nm_table;
/* The table of a pattern, allocated at its first use and kept; NULL: out of memory. */
const hc_nm_table *hc_nm_table_of(int n, int m);
void hc_nm_table_masks(const hc_nm_table *table, const uint8_t *metadata, int64_t kept, int64_t first_block,
                       int64_t columns, uint64_t *masks);

#endif
