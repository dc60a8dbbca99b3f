/* The int8 matmul on tiles of 16 rows by 64 bytes. The 32 x 32 sums are four accumulators. A step of 64 values of k
 * reads two tiles of a and two of b. A tile of a is 16 rows of 64 values as they are stored, one of b is 16 times 4
 * values of 16 columns.
 *
 *   tmm0 tmm1      tmm4      tmm6 tmm7
 *   tmm2 tmm3  +=  tmm5  x
 */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { MR = 32, NR = 32, KR = 64, ROWS = 16, ROW_BYTES = 64 };

/* The operand of ldtilecfg. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} hc_tile_config;

/* Constant: compilers assume that the intrinsic reads only the first 8 bytes, and may drop writes to the rest in a
 * function. */
static const hc_tile_config CONFIG = {
    .palette = 1,
    .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES},
    .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
};

void hc_gemm_s8_amx(int64_t n_steps, const void *a, const int8_t *b, const int32_t *init, int32_t *c) {
    _tile_loadconfig(&CONFIG);
    /* stride 0: every row begins with init */
    _tile_loadd(0, init, 0);
    _tile_loadd(1, init + 16, 0);
    _tile_loadd(2, init, 0);
    _tile_loadd(3, init + 16, 0);
    const int8_t *rows = a;
    for (; n_steps > 0; n_steps--, rows += MR * KR, b += NR * KR) {
        _tile_loadd(4, rows, KR);
        _tile_loadd(6, b, NR * 4);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, b + 64, NR * 4);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(5, rows + ROWS * KR, KR);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, c, NR * 4);
    _tile_stored(1, c + 16, NR * 4);
    _tile_stored(2, c + ROWS * NR, NR * 4);
    _tile_stored(3, c + ROWS * NR + 16, NR * 4);
    _tile_release();
}
