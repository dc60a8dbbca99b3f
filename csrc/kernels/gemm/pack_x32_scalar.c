/* Transposing 32-bit units of rows into a panel; kernels/gemm/gemm.h. */
#include "kernels/kernel.h"

#include <string.h>

void hc_pack_x32_scalar(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                        uint32_t flip) {
    for (int64_t u = 0; u < units; u++)
        for (int i = 0; i < n_rows; i++) {
            uint32_t unit;
            memcpy(&unit, (const char *)rows + i * row_bytes + u * 4, sizeof unit);
            unit ^= flip;
            memcpy((char *)panel + (u * lanes + i) * 4, &unit, sizeof unit);
        }
}
