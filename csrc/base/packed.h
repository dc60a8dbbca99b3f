/* Shapes that formats, kernels and operations share; all plain data. A row contains the values of one index of the
 * other axes: `runs` runs of `run_length` values each (the reduction axes but the last, times the last). Groups never
 * cross a run; the last group of a run is padded with values that decode to 0. In padded columns a row is groups x
 * group values, group i at columns [i * group, (i + 1) * group).
 *
 *   shape (K, C, R, S), axis (2, 3, 1), group 16:   rows = K, runs = R * S, run_length = C,
 *   groups_per_run = ceil(C / 16), groups = runs * groups_per_run, padded = groups * 16
 *
 * A format that keeps n of every m values sees only rows of nonzeros: run_length = ceil(whole_length / m) * n.
 */
#ifndef HC_PACKED_H
#define HC_PACKED_H

#include "base/base.h"

typedef enum { HC_F32 = 0, HC_F64, HC_F16, HC_BF16, HC_U8, HC_I8, HC_I32, HC_I64, HC_N_DTYPES } hc_dtype;

static inline int64_t hc_dtype_size(hc_dtype dtype) {
    static const int8_t size[HC_N_DTYPES] = {4, 8, 2, 2, 1, 1, 4, 8};
    return size[dtype];
}

/* A format by its parameters. The file of each format defines its `option`. */
enum { HC_N_OPTIONS = 6, HC_MAX_M = 32 };
typedef struct {
    int32_t family; /* index into formats.def */
    int32_t bits;
    int32_t group; /* 0: one group for the whole row */
    int32_t option[HC_N_OPTIONS];
    int32_t n, m; /* n of every m values along a run are kept, the rest are 0; m = 0: all are kept */
} hc_format;

/* Bits of the position of a nonzero in its block of m. */
static inline int hc_position_bits(int m) {
    int bits = 0;
    while (1 << bits < m)
        bits++;
    return bits;
}

typedef struct {
    int64_t rows, runs, run_length;
    int64_t group, groups_per_run, groups; /* the effective group; groups of one row */
    int64_t columns, padded;               /* values of one row, without and with the padding */
    int64_t whole_length, whole_columns;   /* run_length and columns before n of every m are kept */
} hc_geometry;

/* The arrays that a packed tensor consists of. */
typedef enum {
    HC_CODES = 0,
    HC_SCALES,
    HC_COARSE,
    HC_CODEBOOK,
    HC_ZERO_POINTS,
    HC_METADATA,
    HC_MEAN,
    HC_MINIMA,
    HC_N_COMPONENTS
} hc_component_id;

typedef struct {
    bool present;
    bool per_row; /* shape (rows,) + the rest; otherwise one for the whole array */
    hc_dtype dtype;
    int ndim;         /* of one row's part */
    int64_t shape[2]; /* of one row's part */
} hc_component_layout;

/* Bytes of one row, or of the component of the whole array. */
static inline int64_t hc_component_bytes(const hc_component_layout *layout) {
    int64_t bytes = hc_dtype_size(layout->dtype);
    for (int i = 0; i < layout->ndim; i++)
        bytes *= layout->shape[i];
    return bytes;
}

/* Part of row r: data + r * row_stride, in bytes; row_stride is 0 for a component that all rows share. */
typedef struct {
    uint8_t *data;
    int64_t row_stride;
    int device; /* device of the data; the same for all components of an array */
} hc_component;
typedef struct {
    hc_component part[HC_N_COMPONENTS];
    int64_t first_row; /* row 0 here is this row of the encoded array; for components that all rows share */
} hc_components;

static inline void *hc_part(const hc_components *components, hc_component_id id, int64_t row) {
    return hc_offset(components->part[id].data, row * components->part[id].row_stride);
}

/* Rows of float32 or float64 values in padded columns; the padding of groups is +0. */
typedef struct {
    const void *data;
    hc_dtype dtype;     /* HC_F32 or HC_F64 */
    int64_t row_stride; /* elements */
    int64_t first_row, rows;
} hc_float_rows;

/* A portion of packed rows, in padded columns. It starts at a multiple of 8 columns, hence on a byte. If the format has
 * groups, it starts and ends at group boundaries (or 8 columns inside a group longer than the tile). */
typedef struct {
    int64_t first_row, rows;
    int64_t first_column, columns;
} hc_tile;

/* The forms of integers in products. FOLDED: value = row_scale * v, integer group scales multiplied into v.
 * GROUPED: value = group_scale * v, float32 scales (two levels: float32(gamma * s_q); no groups: one, the row's).
 * SPLIT: value = row_scale * group_scale * v, FOLDED with separate codes and integer group scales (as floats).
 * Zero points are subtracted. v = sum of limb[i] * 256^i: the top limb signed, those below unsigned bytes. */
typedef enum { HC_INT_FOLDED = 0, HC_INT_GROUPED, HC_INT_SPLIT, HC_N_INT_MODES } hc_int_mode;
typedef struct {
    /* FOLDED does not apply to formats with float32 group scales. Neither FOLDED nor GROUPED applies to codebooks and
     * floats. SPLIT applies to formats with integer group scales. */
    bool available;
    /* GROUPED: value = group_scale * v + minimum, one per group; the format's `minima` returns them */
    bool has_minima;
    int n_limbs;       /* 1 to 3 */
    int32_t max_abs;   /* of the v that rounding makes; a stored code may be one lower (hc_most_of) */
    int fraction_bits; /* v is the value of a code times 2^fraction_bits: for floats that are integers of few bits */
} hc_int_form;
typedef struct {
    int8_t *limb[3]; /* (rows, columns), leading dimension ld */
    int64_t ld;
    float *group_scale; /* GROUPED, SPLIT: (rows, groups touched), leading dimension groups_ld */
    int64_t groups_ld;
    float *row_scale; /* FOLDED, SPLIT: (rows) */
} hc_int_tile;

/* The values of codes and their scales separately, for products with few vectors: c_k and s_g of the stated order. */
typedef struct {
    float *codes; /* (rows, columns), leading dimension codes_ld */
    int64_t codes_ld;
    float *scales; /* (rows, groups touched); not written if has_groups() is false */
    int64_t scales_ld;
    float *row_scale; /* (rows): factor of the folded sum, or 1 */
} hc_code_tile;

/* Result of a function that may decline: it has done everything, or nothing, so that another function must. */
enum { HC_DONE = -1, HC_DECLINED = -2 };

#endif
