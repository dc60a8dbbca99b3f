/* The order of a matmul, and its rows and number of threads in the form that paths use. */
#include "ops/product/product.h"

enum { THREAD_PRODUCTS = 1 << 20 }; /* multiply-adds that are worth waking a thread: 5 to 20 us */

hc_order hc_order_of(const hc_source *x, const hc_source *w) {
    if (x->form[HC_INT_FOLDED].available && w->form[HC_INT_FOLDED].available)
        return HC_ORDER_FOLDED;
    const hc_int_form *a = &x->form[HC_INT_GROUPED], *b = &w->form[HC_INT_GROUPED];
    if (a->available && b->available && !(a->has_minima && b->has_minima))
        return HC_ORDER_GROUPED;
    return HC_ORDER_CHAIN;
}

hc_rows hc_merged_rows(const hc_rows *rows) {
    hc_rows merged; /* without the unused dimensions: to copy them takes longer than a small product */
    merged.data = rows->data;
    merged.rows = rows->rows;
    merged.first = rows->first;
    merged.column_stride = rows->column_stride;
    merged.n_dims = 0;
    for (int i = 0; i < rows->n_dims; i++) {
        const int last = merged.n_dims - 1;
        if (rows->shape[i] == 1)
            continue;
        if (last >= 0 && merged.stride[last] == rows->shape[i] * rows->stride[i]) {
            merged.shape[last] *= rows->shape[i];
            merged.stride[last] = rows->stride[i];
        } else {
            merged.shape[merged.n_dims] = rows->shape[i];
            merged.stride[merged.n_dims++] = rows->stride[i];
        }
    }
    return merged;
}

hc_run hc_run_for(const hc_product *product) {
    /* weights as floats are read or decoded once, which takes as long as the products of three rows */
    const bool has_floats = product->order != HC_ORDER_FOLDED && product->order != HC_ORDER_GROUPED;
    const double rows = (double)product->x->rows + (has_floats ? 3 : 0);
    const double products = rows * (double)product->w->rows * (double)product->x->columns / THREAD_PRODUCTS;
    const int n_threads = product->run->n_threads;
    return (hc_run){.isa = product->run->isa, .n_threads = products < n_threads ? (int)products + 1 : n_threads};
}
