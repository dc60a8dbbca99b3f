/* Shared by the kernels that transpose 4 rows by 4 units in registers. Included after `four_rows`. */
static void one_row(const char *from, int64_t units, char *to, int lanes, uint32_t flip) {
    for (int64_t u = 0; u < units; u++) {
        uint32_t unit;
        memcpy(&unit, from + u * 4, sizeof unit);
        unit ^= flip;
        memcpy(to + u * lanes * 4, &unit, sizeof unit);
    }
}

/* The rows from `row` on: 4 at a time, then one. */
static void other_rows(const char *from, int64_t row_bytes, int row, int n_rows, int64_t units, char *to, int lanes,
                       uint32_t flip) {
    const int64_t whole = units / 4 * 4;
    for (; row + 4 <= n_rows; row += 4)
        four_rows(from + row * row_bytes, row_bytes, whole, to + row * 4, lanes, flip);
    for (int i = 0; i < n_rows; i++) {
        const int64_t done = i < row ? whole : 0;
        one_row(from + i * row_bytes + done * 4, units - done, to + (done * lanes + i) * 4, lanes, flip);
    }
}
