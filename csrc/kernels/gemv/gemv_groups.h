/* The kinds of codes and the numbers of vectors of gemv_groups as constants. Included after `gemv_groups`. */
INLINE void choose(const hc_gemv_floats_args *args, int n_vectors) {
    const bool is_signed = (unsigned)args->flip == 1u << (args->bits - 1) && !args->zeros[0];
    if (args->bits == 32)
        gemv_groups(args, 32, n_vectors, CODES_FLOATS);
    else if (args->exponent_bits)
        gemv_groups(args, 8, n_vectors, CODES_FLOAT8);
    else if (args->unit != 1)
        gemv_groups(args, 8, n_vectors, CODES_FRACTION);
    else if (args->bits == 8)
        is_signed ? gemv_groups(args, 8, n_vectors, CODES_SIGNED) : gemv_groups(args, 8, n_vectors, CODES_ZERO);
    else if (args->table[0])
        gemv_groups(args, 4, n_vectors, CODES_TABLE);
    else
        is_signed ? gemv_groups(args, 4, n_vectors, CODES_SIGNED) : gemv_groups(args, 4, n_vectors, CODES_ZERO);
}

#define HC_GEMV_GROUPS(isa)                                                                                            \
    void hc_gemv_groups_##isa(const hc_gemv_floats_args *args) {                                                       \
        if (args->n_vectors == 1)                                                                                      \
            choose(args, 1);                                                                                           \
        else if (args->n_vectors == 2)                                                                                 \
            choose(args, 2);                                                                                           \
        else                                                                                                           \
            choose(args, 4);                                                                                           \
    }
