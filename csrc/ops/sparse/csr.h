/* Matmuls with compressed sparse rows (base/compressed.h), after the checks. */
#ifndef HC_OPS_CSR_H
#define HC_OPS_CSR_H

#include "base/compressed.h"
#include "ops/product/product.h"

/* out[i, j] = fmaf chain from +0 over the stored values of row j, columns ascending: values[t] * x[i, indices[t]]. */
hc_status hc_csr_gemm(const hc_run *run, const hc_source *x, const hc_csr *w, const hc_rows *out, hc_error *error);

#endif
