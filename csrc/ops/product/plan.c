/* The table of paths.def, and the choice; and which dense products a BLAS is better at. */
#include "ops/product/plan.h"

#include "ops/gemv/minima.h"

#include <string.h>

#define HC_PATH(order, symbol, ...)                                                                                    \
    const char *hc_##symbol##_refuses(const hc_product *product);                                                      \
    hc_work hc_##symbol##_work(const hc_product *product);                                                             \
    hc_status hc_##symbol##_run(const hc_product *product, hc_error *error);                                           \
    const char *hc_##symbol##_differs(const hc_product *product); /* few have it */
#include "ops/product/paths.def"
#undef HC_PATH

static const hc_path PATHS[HC_N_PATHS] = {
#define HC_PATH(section, symbol, text, does, ...)                                                                      \
    {.order = HC_ORDER_##section,                                                                                      \
     .id = #section "_" #symbol,                                                                                       \
     .name = text,                                                                                                     \
     .what = does,                                                                                                     \
     .refuses = hc_##symbol##_refuses,                                                                                 \
     .work = hc_##symbol##_work,                                                                                       \
     .run = hc_##symbol##_run,                                                                                         \
     __VA_ARGS__},
#include "ops/product/paths.def"
#undef HC_PATH
};

const char *hc_path_name(int number) {
    int n = 0;
    for (int i = 0; i < HC_N_PATHS; i++) {
        bool is_new = true;
        for (int j = 0; j < i; j++)
            is_new = is_new && strcmp(PATHS[j].name, PATHS[i].name) != 0;
        if (is_new && n++ == number)
            return PATHS[i].name;
    }
    return NULL;
}

static int64_t longest_group(const hc_source *source) {
    return source->group ? hc_min(source->group, source->run_length) : source->columns;
}

/* Exact integer sums must fit int64. */
static hc_status check_sums(const hc_product *product, hc_error *error) {
    const hc_source *x = product->x, *w = product->w;
    if (product->order != HC_ORDER_FOLDED && product->order != HC_ORDER_GROUPED)
        return HC_OK;
    const hc_int_mode mode = product->order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    int64_t length = x->columns, bound;
    if (product->order == HC_ORDER_GROUPED)
        length = hc_min(longest_group(x), longest_group(w));
    if (hc_mul_size((int64_t)x->form[mode].max_abs * w->form[mode].max_abs, length, &bound))
        return HC_OK;
    return hc_fail(error, HC_VALUE, "product: sums of %lld terms of %d x %d pass 64-bit integers", (long long)length,
                   (int)x->form[mode].max_abs, (int)w->form[mode].max_abs);
}

static hc_status forced(const hc_product *product, const char *name, hc_plan *plan, hc_error *error) {
    char known[160] = "";
    for (int i = 0; i < plan->n; i++) {
        const hc_path *path = plan->candidate[i].path;
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, path->name, sizeof known - strlen(known) - 1);
        if (strcmp(path->name, name) != 0)
            continue;
        const char *reason = plan->candidate[i].reason;
        if (!reason && path->differs)
            reason = path->differs(product);
        plan->path = path;
        return reason ? hc_fail(error, HC_VALUE, "path '%s' refuses this product: %s", name, reason) : HC_OK;
    }
    return hc_fail(error, HC_VALUE, "path '%s' is none of this product's, which are %s", name, known);
}

hc_status hc_plan_product(const hc_product *product, bool all, hc_plan *plan, hc_error *error) {
    const hc_status status = check_sums(product, error);
    *plan = (hc_plan){0};
    if (status != HC_OK)
        return status;
    for (int i = 0; i < HC_N_PATHS; i++) {
        if (PATHS[i].order != product->order)
            continue;
        plan->candidate[plan->n].path = PATHS + i;
        plan->candidate[plan->n].reason = PATHS[i].refuses(product);
        if (!plan->candidate[plan->n].reason) {
            plan->candidate[plan->n].work = PATHS[i].work(product);
            plan->candidate[plan->n].seconds =
                hc_estimate(product->run, (hc_path_number)i, &plan->candidate[plan->n].work);
        }
        plan->n++;
    }
    double gemm, nonzeros;
    if (!product->run->path && product->order == HC_ORDER_CHAIN && product->w->sparse &&
        hc_measure_nm(product, &gemm, &nonzeros)) {
        for (int i = 0; i < plan->n; i++) {
            const int number = (int)(plan->candidate[i].path - PATHS);
            if (number == HC_PATH_CHAIN_gemm_chain)
                plan->candidate[i].seconds = gemm;
            else if (number == HC_PATH_CHAIN_gemm_nm_chain)
                plan->candidate[i].seconds = nonzeros;
        }
    }
    if (product->run->path)
        return forced(product, hc_path_name(product->run->path - 1), plan, error);
    while (!plan->path) { /* one at least never refuses */
        int best = -1;
        for (int i = 0; i < plan->n; i++)
            if (!plan->candidate[i].reason && (best < 0 || plan->candidate[i].seconds < plan->candidate[best].seconds))
                best = i;
        HC_ASSERT(best >= 0);
        const hc_path *path = plan->candidate[best].path;
        if (!path->differs || !(plan->candidate[best].reason = path->differs(product)))
            plan->path = path;
    }
    for (int i = 0; all && i < plan->n; i++) {
        const hc_path *path = plan->candidate[i].path;
        if (path != plan->path && path->differs && !plan->candidate[i].reason)
            plan->candidate[i].reason = path->differs(product);
    }
    return HC_OK;
}

static void fill_zeros(const hc_rows *out, int64_t columns) {
    const float zero = 0.0f;
    for (int64_t i = 0; i < out->rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(hc_row(out, i) + j * out->column_stride, &zero, sizeof zero);
}

hc_status hc_multiply(const hc_product *product, hc_error *error) {
    HC_ASSUME(product->x->columns == product->w->columns && product->out.rows == product->x->rows);
    if (product->x->rows == 0 || product->w->rows == 0)
        return HC_OK;
    if (product->x->columns == 0) {
        fill_zeros(&product->out, product->w->rows);
        return HC_OK;
    }
    hc_plan plan;
    const hc_status status = hc_plan_product(product, false, &plan, error);
    if (status != HC_OK)
        return status;
    const hc_status multiplied = plan.path->run(product, error);
    return multiplied == HC_OK ? hc_add_minima(product, error) : multiplied;
}

static bool is_between(int64_t least, int64_t value, int64_t most) { return least <= value && value <= most; }

/* Dense float32 matrices, here or in a BLAS: by shapes, measured in one thread against OpenBLAS 0.3.34
 * on an AMD EPYC of family 26 (Zen 5), 2026-11, weights in rows and transposed. A BLAS packs all of the weights for a few
 * rows as we do, but then uses kernels for many:
 *
 *   AVX-512 against AVX-512   2 to 12 rows and 2^18 weights or more: 1.0 to 1.9 of its speed, to 30 rows from 2^19 on;
 *                             below 10^6 products it has kernels that pack nothing, but few for transposed weights
 *   AVX2 against AVX2         2 to 6 rows, transposed: 1.1 to 1.7
 *   AVX-512 against AVX2      from 5 rows, 24 columns and 2^18 products on 1.0 to 2.1 of its speed, below that less
 */
bool hc_keeps_dense(const hc_run *run, hc_blas_speed speed, int64_t m, int64_t n, int64_t k, bool transposed) {
    const double weights = (double)n * (double)k, products = weights * (double)m;
    const bool has_weights = n >= 256 && k >= 256;
    if (speed == HC_BLAS_NEVER)
        return true;
    if (speed == HC_BLAS_SLOWER)
        return (m >= 5 && n >= 24 && k >= 16 && products >= 1 << 18) ||
               (has_weights && transposed && is_between(2, m, 4) && weights <= 1 << 20);
    if (speed != HC_BLAS_EQUAL || !has_weights)
        return false;
    if (run->isa & HC_ISA_AVX512)
        return (transposed && is_between(5, m, 15)) ||
               (products > 1e6 && weights >= 1 << 18 && is_between(2, m, weights >= 1 << 19 ? 30 : 12));
    return (run->isa & HC_ISA_AVX2) && transposed && is_between(2, m, 6) && weights >= 1 << 18;
}
