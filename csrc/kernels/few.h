/* Products of packed weights with few vectors (batch 1 to 8), straight from storage.
 *
 * A stored code is 4 or 8 bits, c = (code ^ flip) - zero: flip 8 or 128 and the same zero for two's complement, flip 0
 * for unsigned codes; zero is one for all or one a group. Other widths are unpacked to 8 bits first (few_unpack).
 */
#ifndef HC_FEW_H
#define HC_FEW_H

enum { HC_FEW_ROWS = 4, HC_FEW_VECTORS = 4 }; /* the most that one call takes */

typedef struct {
    int bits;    /* 4 or 8 */
    int flip;    /* one code's */
    float zero;  /* where zeros[0] is NULL */
    int n_rows, n_vectors; /* 4 and 1, 2 and 2, or 1 and 4 */
    int64_t columns;                     /* few_rows: values of a row */
    int64_t group, groups;               /* few_groups: a group fills whole 32-bit words; groups of a row */
    const uint8_t *codes[HC_FEW_ROWS];   /* no byte beyond a row's last code is read */
    const float *scales[HC_FEW_ROWS];    /* (groups) */
    const float *zeros[HC_FEW_ROWS];     /* (groups) or NULL */
    const uint8_t *next[HC_FEW_ROWS];    /* where the next call's codes lie, for prefetch */
    const float *x;                      /* in the family's order, places beyond the columns hold +0 */
    float *out;                          /* (n_rows, n_vectors): the folded sums */
} hc_few_floats_args;

/* few_groups:  p = fmaf chain over the codes of a group from +0, acc[g % 16] = fmaf(scale_g, p, acc[g % 16]),
 * g ascending; out = acc folded i with i + 8, + 4, + 2, + 1. A padded code changes no p: codes are integers, so
 * no p is -0 and fmaf(+0, c, p) = p.   x[((g / 16 * group + k) * n_vectors + v) * 16 + g % 16] */
typedef void hc_few_groups_fn(const hc_few_floats_args *args);

/* few_rows:  acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]), k ascending; out = acc folded i with i + 32, ..., + 1.
 * x[(k / 64 * n_vectors + v) * 64 + place]: 8 bits: place = k % 4 * 16 + k / 4 % 16; 4 bits: k % 8 * 8 + k / 8 % 8. */
typedef void hc_few_rows_fn(const hc_few_floats_args *args);

#endif
