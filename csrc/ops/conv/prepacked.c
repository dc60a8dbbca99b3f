/* Filters packed once; prepacked.h. Memory: all panels of all groups, filters rounded up to the kernel's nr: once, or 16 / 9, 4
 * or 64 / 9 times the filters. */
#include "ops/conv/prepacked.h"

#include "base/threads.h"

struct hc_prepacked_filters {
    hc_conv_shape shape; /* filters, group_channels, r, s */
    int64_t groups;
    int m;
    const hc_kernel *kernel;
    int64_t panel_floats, bytes;
    float *memory;
};

typedef struct {
    const hc_convolution *conv;
    const hc_prepacked_filters *filters;
    uint8_t *scratch;
    int64_t scratch_bytes;
} hc_packing;

static void pack_task(void *context, int64_t task, int thread) {
    const hc_packing *packing = context;
    const hc_prepacked_filters *filters = packing->filters;
    hc_filter_panels panels;
    hc_filter_panels_init(&panels, packing->conv, filters->kernel);
    hc_filter_panels_group(&panels, task / panels.panels);
    hc_any_filter_panel(&panels, filters->m, task % panels.panels, filters->memory + task * filters->panel_floats,
                        packing->scratch + thread * packing->scratch_bytes);
}

hc_status hc_prepack_filters(const hc_run *run, const hc_view *w, int64_t groups, int m,
                             hc_prepacked_filters **prepacked, hc_error *error) {
    *prepacked = NULL;
    const int64_t size = sizeof(float);
    int64_t columns, bytes;
    if (w->ndim != 4 || groups < 1 || w->shape[0] % groups != 0 || !hc_values(w))
        return hc_fail(error, HC_VALUE, "prepack: w is not filters (K, C, R, S) of %lld groups", (long long)groups);
    const hc_operand operand = {.dense = w};
    const hc_window window = {.stride = {1, 1}, .dilation = {1, 1}, .groups = groups};
    const hc_convolution conv = {
        .run = run,
        .w = &operand,
        .window = &window,
        .shape = {.filters = w->shape[0], .group_channels = w->shape[1], .r = w->shape[2], .s = w->shape[3]}};
    if (m && (hc_winograd_dims(&conv.shape) == 0 || (m != 2 && m != 4 && m != 6)))
        return hc_fail(error, HC_VALUE, "prepack: there is no F(%d x %d) of these filters", m, m);
    if (!hc_mul_size(w->shape[1], w->shape[2], &columns) || !hc_mul_size(columns, w->shape[3], &columns) ||
        columns > INT32_MAX)
        return hc_fail(error, HC_VALUE, "prepack: w has filters of more than 2^31 - 1 values");
    hc_filter_panels panels;
    hc_filter_panels_init(&panels, &conv, HC_BEST(direct_f32, run));
    hc_prepacked_filters *p = hc_alloc_aligned(sizeof *p);
    if (!p)
        return hc_fail(error, HC_MEMORY, "prepack: no memory");
    *p = (hc_prepacked_filters){.shape = conv.shape, .groups = groups, .m = m, .kernel = HC_BEST(direct_f32, run)};
    p->panel_floats = hc_any_filter_floats(&panels, m);
    const bool countable = hc_mul_size(groups * panels.panels, p->panel_floats * size, &bytes);
    hc_packing packing = {.conv = &conv, .filters = p};
    packing.scratch_bytes = hc_round_up(panels.side.limb_bytes + hc_pack_scratch(), HC_CACHE_LINE);
    p->bytes = countable ? bytes : 0;
    p->memory = countable ? hc_alloc_aligned(bytes) : NULL;
    packing.scratch = hc_alloc_aligned(run->n_threads * packing.scratch_bytes);
    const bool has_memory = p->memory && packing.scratch;
    if (has_memory)
        hc_parallel(run->n_threads, groups * panels.panels, pack_task, &packing);
    hc_free_aligned(packing.scratch);
    if (!has_memory) {
        hc_prepacked_filters_free(p);
        return hc_fail(error, HC_MEMORY, "prepack: no memory for panels of filters");
    }
    *prepacked = p;
    return HC_OK;
}

int64_t hc_prepacked_filters_bytes(const hc_prepacked_filters *prepacked) { return prepacked->bytes; }

void hc_prepacked_filters_free(hc_prepacked_filters *prepacked) {
    if (prepacked)
        hc_free_aligned(prepacked->memory);
    hc_free_aligned(prepacked);
}

const float *hc_prepacked_filter_panels(const hc_convolution *conv, const hc_kernel *kernel, int m, int64_t group) {
    const hc_prepacked_filters *p = conv->filters;
    const hc_conv_shape *s = &conv->shape;
    if (!p || !conv->w->dense || p->m != m || p->kernel != kernel || p->groups != conv->window->groups ||
        p->shape.filters != s->filters || p->shape.group_channels != s->group_channels || p->shape.r != s->r ||
        p->shape.s != s->s)
        return NULL;
    return p->memory + group * hc_ceil_div(s->filters / p->groups, kernel->nr) * p->panel_floats;
}
