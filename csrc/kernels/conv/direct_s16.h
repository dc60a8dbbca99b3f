/* A tile of int16: up to MR rows by NR columns, two registers of sums a row, two values of k at a time. Included after
 * MR and NR and the definitions of
 *
 *   vector, load, store       two values of k of NR / 2 columns; NR / 2 sums
 *   broadcast, dot            two values of a row in all lanes; sum + x b
 *
 * or of HC_OWN_TILE and `tile`.
 */
#ifndef HC_OWN_TILE
INLINE void tile(const int n, int64_t pairs, const int16_t *const *rows, const int16_t *panel, int32_t *c,
                 int64_t ldc) {
    vector sum[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = (vector){0};
    for (int64_t k = 0; k < pairs; k++, panel += 2 * NR) {
        const vector low = load(panel), high = load(panel + NR);
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) {
            int32_t pair;
            __builtin_memcpy(&pair, rows[i] + 2 * k, sizeof pair);
            const vector values = broadcast(pair);
            sum[i][0] = dot(sum[i][0], values, low);
            sum[i][1] = dot(sum[i][1], values, high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) {
        store(c + i * ldc, sum[i][0]);
        store(c + i * ldc + NR / 2, sum[i][1]);
    }
}
#endif

#define HC_CASE(n)                                                                                                     \
    case n:                                                                                                            \
        tile(n, pairs, rows, panel, c, ldc);                                                                           \
        break;
#define HC_CASES_6 HC_CASE(1) HC_CASE(2) HC_CASE(3) HC_CASE(4) HC_CASE(5) HC_CASE(6)
#define HC_CASES_10 HC_CASES_6 HC_CASE(7) HC_CASE(8) HC_CASE(9) HC_CASE(10)
#define HC_CASES_14 HC_CASES_10 HC_CASE(11) HC_CASE(12) HC_CASE(13) HC_CASE(14)
#define HC_DIRECT_S16(isa, cases)                                                                                      \
    void hc_direct_s16_##isa(int64_t pairs, const int16_t *const *rows, const int16_t *panel, int n_rows, int32_t *c,  \
                             int64_t ldc) {                                                                            \
        switch (n_rows) { cases }                                                                                      \
    }
