/* Packed codes as any bytes: they are searched for faults, and moved between the orders of other programs and back.
 *
 * A target of libFuzzer, in the form of OSS-Fuzz: build.sh compiles it. Four bytes choose bits, order, rows and columns.
 */
#include <stdlib.h>
#include <string.h>

#include "hc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 5)
        return 0;
    const int bits = 1 + data[0] % 8;
    const hc_codes_kind kind = data[1] % HC_N_CODES_KINDS;
    const bool nibbles = kind == HC_CODES_HIGH_FIRST || kind == HC_CODES_TURNED_AWQ;
    const int width = nibbles ? 4 : bits;
    const int64_t rows = 8 * (1 + data[2] % 8), columns = 32 * (1 + data[3] % 8); /* whole words in every order */
    const bool turned = kind == HC_CODES_TURNED || kind == HC_CODES_TURNED_AWQ;
    const int64_t plain = columns * width / 8, other = turned ? rows * width / 8 : plain;
    const int64_t bytes = rows * plain;
    if ((int64_t)size - 4 < bytes || width == 3 || width == 5 || width == 6 || width == 7)
        return 0;
    uint8_t *first = malloc((size_t)bytes), *moved = calloc((size_t)bytes, 1), *last = calloc((size_t)bytes, 1);
    memcpy(first, data + 4, (size_t)bytes);
    const hc_run run = {.isa = hc_cpu_isa(), .n_threads = 1};
    const hc_code_matrix rows_of = {first, width, HC_CODES_ROWS, plain}, in_order = {moved, width, kind, other},
                         back = {last, width, HC_CODES_ROWS, plain};
    hc_move_codes(&run, rows, columns, 0, &rows_of, &in_order);
    hc_move_codes(&run, rows, columns, 0, &in_order, &back);
    if (memcmp(first, last, (size_t)bytes) != 0)
        abort();
    const hc_code_rules rules = {.codes = first,
                                 .rows = rows,
                                 .row_bytes = plain,
                                 .runs = 1,
                                 .length = columns - data[4] % 32,
                                 .padded = columns,
                                 .groups = 1,
                                 .bits = width,
                                 .unused = data[1] % 3 - 1,
                                 .padding = 0};
    (void)hc_find_fault(&run, &rules);
    free(first);
    free(moved);
    free(last);
    return 0;
}
