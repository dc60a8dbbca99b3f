/* Shared by the kernels of codes that compute STEP values, four registers, at a time. Included after LANES and STEP and
 * the definitions of
 *
 *   words, every          the type of a register of int32; a register with one value in all lanes
 *   larger, largest_of    the larger values of two registers as uint32; the largest value of a register
 *   magnitude_of          magnitudes of LANES floats
 *   units                 codes of STEP values plus `zero`; false if they must be computed by division
 *   put                   writes them
 *   put_pair              writes LANES pairs of codes
 */
INLINE void codes(const float *x, int64_t n, float scale, const int form, void *to) {
    const float reciprocal = 1.0f / scale;
    const int zero = form == HC_PANEL_U8 ? ZERO : 0;
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        words unit[4];
        if (__builtin_expect(units(x + i, reciprocal, zero, unit), 1))
            put(unit, form, scale, i, to);
        else
            divided_codes(x + i, STEP, scale, form, i, to);
    }
    divided_codes(x + i, n - i, scale, form, i, to);
}

INLINE void some_pairs(const float *a, const float *b, float scale, float reciprocal, int32_t *to) {
    words low[4], high[4] = {every(0), every(0), every(0), every(0)};
    if (__builtin_expect(units(a, reciprocal, 0, low) && (!b || units(b, reciprocal, 0, high)), 1))
        for (int j = 0; j < 4; j++)
            put_pair(low[j], high[j], to + j * LANES);
    else
        divided_pairs(a, b, STEP, scale, to);
}

/* The last STEP pairs overlap those before them. */
INLINE void pairs(const float *a, const float *b, int64_t n, float scale, int32_t *to) {
    const float reciprocal = 1.0f / scale;
    for (int64_t i = 0; i < n && n >= STEP; i += STEP) {
        const int64_t at = i + STEP <= n ? i : n - STEP;
        some_pairs(a + at, b ? b + at : b, scale, reciprocal, to + at);
    }
    if (n > 0 && n < STEP) {
        float rest[2][STEP] = {0};
        int32_t some[STEP];
        memcpy(rest[0], a, (size_t)n * sizeof *a);
        if (b)
            memcpy(rest[1], b, (size_t)n * sizeof *b);
        some_pairs(rest[0], rest[1], scale, reciprocal, some);
        memcpy(to, some, (size_t)n * sizeof *to);
    }
}

#define HC_CODES_S8(isa)                                                                                               \
    uint32_t hc_largest_f32_##isa(const float *x, int64_t n, uint32_t so_far) {                                        \
        words most[4] = {every(so_far), every(so_far), every(so_far), every(so_far)};                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + STEP <= n; i += STEP)                                                                               \
            for (int j = 0; j < 4; j++)                                                                                \
                most[j] = larger(most[j], magnitude_of(x + i + j * LANES));                                            \
        for (int64_t at = i; at < n; at += LANES) {                                                                    \
            float last[LANES] = {0};                                                                                   \
            memcpy(last, x + at, (size_t)(n - at < LANES ? n - at : LANES) * sizeof *x);                               \
            most[0] = larger(most[0], magnitude_of(last));                                                             \
        }                                                                                                              \
        return largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));                                 \
    }                                                                                                                  \
    void hc_codes_s8_##isa(const float *x, int64_t n, float scale, int form, void *to) {                               \
        if (!inverts(scale))                                                                                           \
            divided_codes(x, n, scale, form, 0, to);                                                                   \
        else if (form == HC_PANEL_S16)                                                                                 \
            codes(x, n, scale, HC_PANEL_S16, to);                                                                      \
        else if (form == HC_PANEL_F32)                                                                                 \
            codes(x, n, scale, HC_PANEL_F32, to);                                                                      \
        else if (form == HC_CODES_ROUNDED)                                                                             \
            codes(x, n, scale, HC_CODES_ROUNDED, to);                                                                  \
        else                                                                                                           \
            codes(x, n, scale, HC_PANEL_U8, to);                                                                       \
    }                                                                                                                  \
    void hc_code_pairs_s8_##isa(const float *a, const float *b, int64_t n, float scale, int32_t *to) {                 \
        if (!inverts(scale))                                                                                           \
            divided_pairs(a, b, n, scale, to);                                                                         \
        else                                                                                                           \
            pairs(a, b, n, scale, to);                                                                                 \
    }
