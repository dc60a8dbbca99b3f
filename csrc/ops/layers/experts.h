/* The experts of a layer of a language model in one call. */
#ifndef HC_OPS_LAYERS_EXPERTS_H
#define HC_OPS_LAYERS_EXPERTS_H

#include "hc.h"

/* Stacks (experts, rows, columns): packed over the columns, or floats. NULL both: there is none. */
typedef enum {
    HC_EXPERTS_GATE,
    HC_EXPERTS_UP,
    HC_EXPERTS_GATE_UP,
    HC_EXPERTS_DOWN,
    HC_N_EXPERTS_WEIGHTS
} hc_stack_kind;
typedef struct {
    const hc_packed *packed;
    const float *data;
    int64_t rows, columns;
    const float *bias; /* (experts, rows), or NULL */
} hc_stack;

/* out[t] = sum of share[t][j] * down(act(gate(x[t]), up(x[t]))) over the experts picked[t][j], in ascending order of the
 * experts. GATE_UP replaces GATE and UP: first all rows of gate, then of up, or `interleaved` rows.
 *
 *   act(g, u) = gate(g) * u                                                   limit = 0
 *   act(g, u) = (clip(u) + 1) * (min(g) * sigmoid(alpha * min(g)))            otherwise, with bounds of +-limit
 *
 * Each step is rounded by itself. A product that refuses a value of x returns HC_VALUE; out is then unspecified. */
typedef struct {
    int64_t tokens, width, hidden, experts, used;
    const float *x;        /* (tokens, width) */
    const int64_t *picked; /* (tokens, used), from 0 to experts - 1, each once in a row */
    const float *shares;
    float *out;
    hc_stack stack[HC_N_EXPERTS_WEIGHTS];
    hc_layer_kind gate;
    bool interleaved;
    float alpha, limit;
    const hc_format *activations; /* or NULL */
} hc_experts;
hc_status hc_run_experts(const hc_run *run, const hc_experts *given, hc_error *error);

#endif
