/* A simulation of a systolic array, cycle by cycle. */
#ifndef HC_MODEL_SYSTOLIC_H
#define HC_MODEL_SYSTOLIC_H

#include "base/base.h"

typedef enum { HC_WEIGHT_STATIONARY = 0, HC_INPUT_STATIONARY, HC_OUTPUT_STATIONARY } hc_systolic_dataflow;

typedef struct {
    int64_t rows, cols, cycles, folds;
    int64_t left_reads, top_reads, writes; /* words that enter the array from the left and the top, and that leave it */
} hc_systolic_run;

/* c (m, n) = a (m, k) times b (k, n), all in row-major order, on an array of run->rows x run->cols; fills the rest of
 * `run`. HC_MEMORY if the array does not fit into memory. Sizes are at least 1. */
hc_status hc_systolic_gemm(const double *a, const double *b, int64_t m, int64_t n, int64_t k,
                           hc_systolic_dataflow dataflow, double *c, hc_systolic_run *run, hc_error *error);

#endif
