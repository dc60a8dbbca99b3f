/* Prepacked filters; prepacked.h. Memory: all panels of all groups, with filters rounded up to the kernel's nr; for
 * integers also one float per filter. */
#include "ops/conv/prepacked.h"

#include <string.h>

struct hc_prepacked_filters {
    hc_conv_shape shape; /* filters, group_channels, r, s */
    hc_filter_form form;
    int64_t bytes;
    float *panels, *scales;
};

hc_status hc_prepacked_filters_new(const hc_convolution *conv, const hc_filter_form *form,
                                   hc_prepacked_filters **prepacked, hc_error *error) {
    const int64_t size = sizeof(float);
    const int64_t scales = conv->activations ? conv->shape.filters : 0;
    int64_t floats, bytes;
    const bool countable = hc_mul_size(form->groups * form->panels, form->panel_floats, &floats) &&
                           hc_mul_size(floats + scales, size, &bytes);
    hc_prepacked_filters *p = hc_alloc_aligned(sizeof *p);
    if (p)
        *p = (hc_prepacked_filters){.shape = conv->shape, .form = *form, .bytes = countable ? bytes : 0};
    if (p && countable)
        p->panels = hc_alloc_aligned(bytes);
    *prepacked = p;
    if (!p || !p->panels)
        return hc_fail(error, HC_MEMORY, "prepack: not enough memory for panels of filters");
    p->scales = p->panels + floats;
    return HC_OK;
}

float *hc_prepacked_panels_to(hc_prepacked_filters *prepacked) { return prepacked->panels; }

float *hc_prepacked_scales_to(hc_prepacked_filters *prepacked) { return prepacked->scales; }

int64_t hc_prepacked_filters_bytes(const hc_prepacked_filters *prepacked) { return prepacked->bytes; }

void hc_prepacked_filters_free(hc_prepacked_filters *prepacked) {
    if (prepacked)
        hc_free_aligned(prepacked->panels);
    hc_free_aligned(prepacked);
}

const float *hc_prepacked_panels_of(const hc_convolution *conv, const hc_filter_form *form, int64_t group) {
    const hc_prepacked_filters *p = conv->filters;
    const hc_conv_shape *s = &conv->shape;
    if (!p || memcmp(&p->form, form, sizeof *form) != 0 || p->shape.filters != s->filters ||
        p->shape.group_channels != s->group_channels || p->shape.r != s->r || p->shape.s != s->s)
        return NULL;
    return p->panels + group * form->panels * form->panel_floats;
}

const float *hc_prepacked_filter_scales(const hc_convolution *conv) { return conv->filters->scales; }
