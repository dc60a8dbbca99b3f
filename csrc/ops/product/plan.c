/* The table of paths.def, and the choice of a path. */
#include "ops/product/plan.h"

#include "ops/gemv/minima.h"

#include <string.h>

#define HC_PATH(order, symbol, ...)                                                                                    \
    const char *hc_##symbol##_refuses(const hc_product *product);                                                      \
    hc_work hc_##symbol##_work(const hc_product *product);                                                             \
    hc_status hc_##symbol##_run(const hc_product *product, hc_error *error);                                           \
    const char *hc_##symbol##_differs(const hc_product *product); /* few paths define it */
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

/* Fails with HC_VALUE if exact integer sums may exceed int64. */
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

/* name: NULL of a path of a device. */
static hc_status forced(const hc_product *product, const char *name, hc_plan *plan, hc_error *error) {
    char known[160] = "";
    for (int i = 0; i < plan->n; i++) {
        const hc_path *path = plan->candidate[i].path;
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, path->name, sizeof known - strlen(known) - 1);
        if (!name || strcmp(path->name, name) != 0)
            continue;
        const char *reason = plan->candidate[i].reason;
        if (!reason && path->differs)
            reason = path->differs(product);
        plan->path = path;
        return reason ? hc_fail(error, HC_VALUE, "path '%s' refuses this product: %s", name, reason) : HC_OK;
    }
    if (!name)
        return hc_fail(error, HC_VALUE, "the forced path is one of a device; available paths: %s", known);
    return hc_fail(error, HC_VALUE, "path '%s' does not apply to this matmul; available paths: %s", name, known);
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
    if (product->run->path)
        return forced(product, hc_path_name(product->run->path - 1), plan, error);
    while (!plan->path) { /* ends: in every order at least one path never refuses */
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
    const bool is_dense = !product->x_packed && !product->w_packed && !product->x->sparse && !product->w->sparse;
    if (product->order == HC_ORDER_CHAIN && is_dense && !product->run->path)
        return hc_gemm_chain_run(product, error); /* the only path of two dense sides */
    hc_plan plan;
    const hc_status status = hc_plan_product(product, false, &plan, error);
    if (status != HC_OK)
        return status;
    const hc_status multiplied = plan.path->run(product, error);
    return multiplied == HC_OK ? hc_add_minima(product, error) : multiplied;
}
