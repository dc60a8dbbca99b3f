/* The kinds of codes and the numbers of vectors of gemv_groups as constants. Included after `gemv_groups`. Each case is a
 * function of its own: the time of a compiler grows faster than the length of a function. */
#define HC_GEMV_GROUPS_CASE(name, bits, n_vectors, kind)                                                               \
    static __attribute__((noinline)) void name##_##n_vectors(const hc_gemv_floats_args *args) {                        \
        gemv_groups(args, bits, n_vectors, kind);                                                                      \
    }
#define HC_GEMV_GROUPS_CASES(n_vectors)                                                                                \
    HC_GEMV_GROUPS_CASE(floats, 32, n_vectors, CODES_FLOATS)                                                           \
    HC_GEMV_GROUPS_CASE(float8, 8, n_vectors, CODES_FLOAT8)                                                            \
    HC_GEMV_GROUPS_CASE(fraction, 8, n_vectors, CODES_FRACTION)                                                        \
    HC_GEMV_GROUPS_CASE(signed_8, 8, n_vectors, CODES_SIGNED)                                                          \
    HC_GEMV_GROUPS_CASE(zero_8, 8, n_vectors, CODES_ZERO)                                                              \
    HC_GEMV_GROUPS_CASE(table, 4, n_vectors, CODES_TABLE)                                                              \
    HC_GEMV_GROUPS_CASE(signed_4, 4, n_vectors, CODES_SIGNED)                                                          \
    HC_GEMV_GROUPS_CASE(zero_4, 4, n_vectors, CODES_ZERO)                                                              \
    static void choose_##n_vectors(const hc_gemv_floats_args *args) {                                                  \
        const bool is_signed = (unsigned)args->flip == 1u << (args->bits - 1) && !args->zeros[0];                      \
        if (args->bits == 32)                                                                                          \
            floats_##n_vectors(args);                                                                                  \
        else if (args->exponent_bits)                                                                                  \
            float8_##n_vectors(args);                                                                                  \
        else if (args->unit != 1)                                                                                      \
            fraction_##n_vectors(args);                                                                                \
        else if (args->bits == 8)                                                                                      \
            is_signed ? signed_8_##n_vectors(args) : zero_8_##n_vectors(args);                                         \
        else if (args->table[0])                                                                                       \
            table_##n_vectors(args);                                                                                   \
        else                                                                                                           \
            is_signed ? signed_4_##n_vectors(args) : zero_4_##n_vectors(args);                                         \
    }
HC_GEMV_GROUPS_CASES(1)
HC_GEMV_GROUPS_CASES(2)
HC_GEMV_GROUPS_CASES(4)

#define HC_GEMV_GROUPS(isa)                                                                                            \
    void hc_gemv_groups_##isa(const hc_gemv_floats_args *args) {                                                       \
        if (args->n_vectors == 1)                                                                                      \
            choose_1(args);                                                                                            \
        else if (args->n_vectors == 2)                                                                                 \
            choose_2(args);                                                                                            \
        else                                                                                                           \
            choose_4(args);                                                                                            \
    }
