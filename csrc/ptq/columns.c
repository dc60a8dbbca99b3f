/* Rounding with feedback, column by column: GPTQ as Babai's nearest plane on the lattice of H (Frantar et al., ICLR
 * 2023, arXiv 2210.17323), in the form of LDLQ (Chee et al., "QuIP", NeurIPS 2023, arXiv 2307.13304). The corrections
 * of a block of columns by all columns before it are one product. Within a block each column corrects the next ones
 * immediately. The nonzeros of N:M are chosen at the start of each block (Frantar and Alistarh, "SparseGPT", ICML 2023,
 * arXiv 2301.00774), by their gain when they are rounded. Qronos rounds the first column from a value of its own
 * (Zhang et al., ICLR 2026, arXiv 2505.11695).
 */
#include "ptq/grid.h"

#include <math.h>
#include <string.h>

typedef struct {
    hc_ptq_rows rows;
    const double *w, *weight, *factor;
    const int32_t *order;
    const hc_ptq_choice *choice;
    const double *first;
    const hc_ptq_budget *budget;
    int32_t *codes;
    double *sums;
} columns_job;

static void score_task(void *context, int64_t task, int thread) {
    const columns_job *job = context;
    const hc_ptq_grid *grid = job->rows.grid;
    const int64_t first = task * job->rows.width, n = hc_min(job->rows.width, grid->rows - first);
    double *code = job->rows.scratch + thread * job->rows.scratch_size, *value = code + n;
    for (int64_t g = 0; g < grid->n_groups; g++)
        memset(job->sums + g * grid->rows + first, 0, (size_t)n * sizeof(double));
    for (int64_t j = 0; j < grid->columns; j++) {
        const double *x = job->w + j * grid->rows + first, weight = job->weight[j];
        double *sum = job->sums + grid->group[j] * grid->rows + first;
        const uint8_t *mask = hc_ptq_mask(grid, j, first);
        hc_ptq_prefetch(grid, job->w, sizeof *x, j, first, n);
        hc_ptq_round(&job->rows, j, first, n, x, code, value);
        for (int64_t i = 0; i < n; i++) {
            const double difference = mask && !mask[i] ? x[i] : x[i] - value[i];
            sum[i] = sum[i] + weight * (difference * difference);
        }
    }
}

hc_status hc_ptq_score(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *weight, double *sums,
                       hc_error *error) {
    columns_job job = {.w = w, .weight = weight, .sums = sums};
    const hc_status status = hc_ptq_begin(run, grid, 2, &job.rows, error);
    if (status != HC_OK)
        return status;
    hc_parallel(run->n_threads, hc_ptq_tasks(&job.rows), score_task, &job);
    hc_free_aligned(job.rows.scratch);
    return HC_OK;
}

/* Whether column order[j] is the first of its block. */
static bool begins(const columns_job *job, int64_t j) {
    const int32_t *block = job->choice->block, *order = job->order;
    return j == 0 || j == job->rows.grid->columns || block[order[j]] != block[order[j - 1]];
}

/* Chooses the mask of columns order[at .. at + m - 1], which are one block. `wanted` has the values that would be
 * rounded. */
static void choose(const columns_job *job, int64_t at, int64_t m, int64_t first, int64_t n, const double *wanted,
                   double *scores, double *code, double *value) {
    const hc_ptq_grid *grid = job->rows.grid;
    int kept[HC_PTQ_WIDTH] = {0};
    for (int64_t j = 0; j < m; j++) {
        const double *x = wanted + j * n, weight = job->choice->weight[at + j];
        hc_ptq_round(&job->rows, job->order[at + j], first, n, x, code, value);
        for (int64_t i = 0; i < n; i++) {
            const double left = x[i] - value[i];
            scores[j * n + i] = weight * (x[i] * x[i] - left * left);
        }
    }
    for (int64_t j = 0; j < m; j++) {
        const double *own = scores + j * n;
        uint8_t *mask = hc_ptq_mask(grid, job->order[at + j], first);
        int beaten[HC_PTQ_WIDTH] = {0};
        for (int64_t k = 0; k < m; k++) {
            const double *other = scores + k * n;
            for (int64_t i = 0; i < n; i++)
                beaten[i] += other[i] > own[i] || (k < j && other[i] == own[i]);
        }
        for (int64_t i = 0; i < n; i++) { /* never more than n, even if scores overflowed */
            mask[i] = beaten[i] < job->choice->n && kept[i] < job->choice->n;
            kept[i] += mask[i];
        }
    }
}

/* Rounds a column within a budget from `wanted`, which loses its threshold; `left` are its errors. */
static void round_within(const columns_job *job, int64_t column, int64_t first, int64_t n, const double *x,
                         double *wanted, double *code, double *value, double *left) {
    const hc_ptq_budget *budget = job->budget;
    const double *threshold =
        budget->threshold ? budget->threshold + budget->segment[column] * job->rows.grid->rows + first : NULL;
    for (int64_t i = 0; i < n; i++) {
        const double lost = threshold ? copysign(fmin(threshold[i], fabs(wanted[i])), wanted[i]) : 0.0;
        wanted[i] -= lost;
        left[i] = budget->forgets ? x[i] - lost : x[i];
    }
    double rounded[HC_PTQ_WIDTH];
    hc_ptq_round(&job->rows, column, first, n, wanted, rounded, value);
    memcpy(code, rounded, (size_t)n * sizeof *code);
    hc_ptq_limit(&job->rows, budget, column, first, n, NULL, code, value);
    for (int64_t i = 0; i < n; i++)
        left[i] -= budget->forgets && code[i] != rounded[i] ? wanted[i] : value[i];
}

static void columns_task(void *context, int64_t task, int thread) {
    const columns_job *job = context;
    const hc_ptq_rows *rows = &job->rows;
    const hc_ptq_grid *grid = rows->grid;
    const int64_t k = grid->columns, first = task * rows->width, n = hc_min(rows->width, grid->rows - first);
    double *errors = rows->scratch + thread * rows->scratch_size; /* (columns, n), in the order of the loop */
    double *owed = errors + k * n;                                /* (block, n) */
    double *code = owed + HC_PTQ_BLOCK * n, *value = code + n, *scores = value + n;
    for (int64_t block = 0, count; block < k; block += count) {
        count = hc_min(HC_PTQ_BLOCK, k - block);
        while (job->choice && !begins(job, block + count))
            count--;
        for (int64_t j = 0; j < count; j++)
            memcpy(owed + j * n, job->w + job->order[block + j] * grid->rows + first, (size_t)n * sizeof *owed);
        if (job->first && block == 0)
            memcpy(owed, job->first + first, (size_t)n * sizeof *owed);
        if (job->factor)
            hc_ptq_multiply(rows->gemm, count, n, block, 1.0, job->factor + block, k, errors, n, owed, n,
                            hc_ptq_pack(rows, thread));
        for (int64_t j = 0; j < count; j++) {
            const int64_t column = job->order[block + j];
            const double *x = job->w + column * grid->rows + first;
            double *left = errors + (block + j) * n;
            int32_t *out = job->codes + column * grid->rows + first;
            if (job->choice && begins(job, block + j)) {
                int64_t m = 1;
                while (!begins(job, block + j + m))
                    m++;
                choose(job, block + j, m, first, n, owed + j * n, scores, code, value);
            }
            const uint8_t *mask = hc_ptq_mask(grid, column, first);
            if (job->budget)
                round_within(job, column, first, n, x, owed + j * n, code, value, left);
            else
                hc_ptq_round(rows, column, first, n, owed + j * n, code, value);
            for (int64_t i = 0; job->budget && i < n; i++)
                out[i] = (int32_t)code[i];
            for (int64_t i = 0; !job->budget && i < n; i++) {
                const bool kept = !mask || mask[i];
                out[i] = kept ? (int32_t)code[i] : 0;
                left[i] = kept ? x[i] - value[i] : x[i];
            }
            for (int64_t later = j + 1; job->factor && later < count; later++)
                rows->axpy(n, job->factor[(block + j) * k + block + later], left, owed + later * n);
        }
    }
}

hc_status hc_ptq_columns(const hc_run *run, const hc_ptq_grid *grid, const double *w, const double *factor,
                         const int32_t *order, const hc_ptq_choice *choice, const double *first,
                         const hc_ptq_budget *budget, int32_t *codes, hc_error *error) {
    columns_job job = {.w = w, .factor = factor, .order = order, .choice = choice, .first = first, .codes = codes};
    job.budget = budget;
    const int64_t scratch = grid->columns + HC_PTQ_BLOCK + 2 + (choice ? HC_PTQ_MOST : 0);
    const hc_status status = hc_ptq_begin(run, grid, scratch, &job.rows, error);
    if (status != HC_OK)
        return status;
    hc_parallel(run->n_threads, hc_ptq_tasks(&job.rows), columns_task, &job);
    hc_free_aligned(job.rows.scratch);
    return HC_OK;
}
