/* Convolution as a matmul, "implicit": windows.h. Memory: the bound of the paths of matmuls. */
#include "ops/conv/windows.h"

const char *hc_conv_implicit_refuses(const hc_convolution *conv) {
    (void)conv;
    return NULL;
}

hc_conv_work hc_conv_implicit_work(const hc_convolution *conv) {
    hc_conv_work work = hc_window_work(conv);
    work.moved = hc_conv_moved(conv);
    return work;
}

hc_status hc_conv_implicit_run(const hc_convolution *conv, hc_error *error) {
    return hc_multiply_windows(conv, conv->shape.group_channels * conv->x->strides[1], error);
}
