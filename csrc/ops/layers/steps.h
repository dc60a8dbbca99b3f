/* Steps that the parts of a layer of a language model share, each with as many threads as its work needs. */
#ifndef HC_STEPS_H
#define HC_STEPS_H

#include "hc_layers.h"

static inline hc_run hc_step_run(const hc_run *run, double work) {
    hc_run some = *run;
    some.n_threads = hc_threads_for(run->n_threads, work);
    return some;
}

/* to (rows, n) = from (rows, k) @ weight + bias, which may be NULL */
static inline hc_status hc_step_product(const hc_run *run, int64_t rows, const hc_operand *weight, const float *bias,
                                        const hc_format *activations, int64_t k, int64_t n, const float *from,
                                        float *to, hc_error *error) {
    const hc_run some = hc_step_run(run, (double)rows * (double)k * (double)n);
    const hc_view x = {(void *)from, HC_F32, 2, {rows, k}, {4 * k, 4}, HC_HOST};
    const hc_view out = {to, HC_F32, 2, {rows, n}, {4 * n, 4}, HC_HOST};
    const hc_view added = {(void *)bias, HC_F32, 1, {n}, {4}, HC_HOST};
    const hc_operand a = {&x, NULL};
    return hc_matmul(&some, &a, weight, activations, bias ? &added : NULL, &out, error);
}

/* Rotates heads of `width` values by the positions of their tokens. */
static inline void hc_step_turn(const hc_run *run, const hc_llm_layer *layer, int64_t heads, int64_t width,
                                const float *from, float *to) {
    const int64_t rows = layer->batch * layer->n * heads;
    const hc_run some = hc_step_run(run, (double)rows * (double)width);
    hc_run_layer(&some, &(hc_layer){.kind = HC_LAYER_ROPE,
                                    .rows = rows,
                                    .n = width,
                                    .x = from,
                                    .weight = layer->cosine,
                                    .bias = layer->sine,
                                    .y = to,
                                    .half = layer->half,
                                    .repeat = heads,
                                    .turns = layer->n,
                                    .pairs = layer->pairs});
}

#endif
