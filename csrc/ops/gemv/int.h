/* Parts of the matmuls of stored weights and few integer vectors; int.c describes them. */
#ifndef HC_OPS_GEMV_INT_H
#define HC_OPS_GEMV_INT_H

#include "ops/gemv/gemv.h"

enum { HC_INTEGERS_ROWS = 16, HC_INTEGERS_LINES = HC_GEMV_MOST * 4 }; /* rows whose chains are in lanes; limbs */

typedef struct {
    hc_gemv_weights weights;
    const hc_geometry *geometry; /* of the rows that are multiplied by x: rows of a pattern are made dense */
    hc_gemv_densified dense;
    bool densifies;
    hc_order kind;
    bool folds;                      /* every segment has an integer scale, which is multiplied into its dot product */
    float unit;                      /* GROUPED: value of an integer 1 of the weights */
    int64_t first_vector, n_vectors; /* of this turn */
    int64_t segment, segments, padded_segments, x_bytes;
    int64_t words; /* 32-bit words of codes in a row of x_bytes */
    int n_signed_limbs;
    int8_t *x;            /* (n_vectors, n_signed_limbs, x_bytes), in the kernel's order */
    int32_t *sums;        /* (n_vectors, n_signed_limbs, padded_segments): of x */
    int32_t *corrections; /* the same times the weights' only zero point */
    int32_t *start;       /* (n_vectors, n_signed_limbs, words), minus zero times the sums over words */
    float *x_scales;      /* GROUPED: (n_vectors, padded_segments); FOLDED: (n_vectors) */
    int64_t task_rows, n_tasks, scratch_bytes;
    int64_t lines_bytes, load_bytes; /* of the vectors in the kernel's form, and during conversion */
    int n_threads;
    uint8_t *scratch;
    hc_gemv_scaled_fn *scaled;             /* or NULL: dots and chain are used instead */
    int scaled_lines;                      /* of x in a call of scaled, any number up to this; 0: 1, 2 or 4 */
    bool is_packed;                        /* scaled reads codes of widths other than 4 and 8 bits as they are stored */
    hc_gemv_folded_fn *folded;             /* or NULL: dots and sum are used instead */
    hc_gemv_folded_bytes_fn *folded_bytes; /* the same, for one or two lines */
    hc_gemv_scaled_fn *turned;             /* the same */
    int64_t most;                          /* of folded_bytes or turned */
    hc_gemv_dots_fn *dots;
    hc_gemv_sum_fn *sum;
    hc_gemv_chain_fn *chain;
    hc_dequantize_s64_fn *dequantize;
    const hc_rows *out;
} hc_integers_job;

/* Memory of one thread, in its scratch memory. */
typedef struct {
    uint8_t *row;
    int32_t *dots;        /* (n_vectors, n_signed_limbs, padded_segments) */
    int32_t *corrections; /* (n_signed_limbs, padded_segments) */
    float *ones;          /* (padded_segments) */
    float *scales;        /* GROUPED: (HC_INTEGERS_ROWS, padded_segments) */
    void *values;         /* GROUPED: (n_vectors, HC_INTEGERS_ROWS, padded_segments), int32 dots or float32 */
    uint8_t *dense;       /* of a row of a pattern */
    void *scaled;         /* HC_GEMV_SCALED_BYTES if gemv_scaled is used */
} hc_integers_scratch;

/* scaled.c: plans the blocks of rows for gemv_scaled, after the weights and segments of a job are known. */
void hc_integers_scaled_plan(hc_integers_job *job, const hc_run *run);
void hc_integers_scaled(const hc_integers_job *job, int64_t block, int64_t n_rows, const hc_integers_scratch *scratch);

/* The same for gemv_turned: the integers S of each line and row, and the scales of the rows. */
void hc_integers_turned_plan(hc_integers_job *job, const hc_run *run);
void hc_integers_turned(const hc_integers_job *job, int64_t block, int64_t n_rows, const hc_integers_scratch *scratch,
                        float row_scales[HC_INTEGERS_ROWS], int64_t sums[HC_INTEGERS_LINES][HC_INTEGERS_ROWS]);

/* Whether the scales of rows are converted to float32 before a kernel reads them. */
bool hc_integers_loads_scales(const hc_integers_job *job);

/* Converts the stored scales of a row, in scales[0 .. groups), to those of its segments' integers. */
void hc_integers_scales(const hc_integers_job *job, const hc_gemv_row *row, float *scales);

void hc_integers_store(const hc_rows *out, int64_t row, int64_t vector, int64_t n, const float *y);

#endif
