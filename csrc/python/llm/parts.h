/* Arguments of a language model's layer: floats of tuples, and the records of its parts. Each function returns false for
 * arguments that are not plain or not valid, without an exception unless a tuple has other items than expected. */
#ifndef HC_PYTHON_LLM_PARTS_H
#define HC_PYTHON_LLM_PARTS_H

#include "hc_layers.h"
#include "python/call.h"

/* True for contiguous float32 with `count` values. */
bool hc_llm_is_floats(PyObject *object, int64_t count);
/* The floats of an object, NULL for None. */
bool hc_llm_floats(PyObject *object, int64_t count, const float **data);
/* The same of an item of a tuple. */
bool hc_llm_floats_of(PyObject *tuple, int i, int64_t count, const float **data);
bool hc_llm_is_gate(hc_layer_kind kind);

/* An operand (columns, rows) of a weight or None. `is_plain`: also a dense one is refused if there are activations. */
bool hc_llm_weight_of(PyObject *object, const hc_format *activations, int64_t columns, int64_t rows, hc_side *side,
                      hc_operand *operand, hc_held *held);

/* Stacks (experts, rows, columns) and their biases: gate, up, gate_up, down. */
enum { HC_LLM_STACKS = 4 };
bool hc_llm_stacks_of(PyObject *stacks, PyObject *biases, hc_experts *given, hc_held *held);

/* The experts of a layer and their router. The operands point into the sides. */
enum { HC_LLM_MIXTURE_SIDES = 5, HC_LLM_LATENT_SIDES = 3 };
bool hc_llm_mixture_of(PyObject *object, const hc_llm_layer *layer, hc_mixture *mixture,
                       hc_side side[HC_LLM_MIXTURE_SIDES], hc_held *held);
bool hc_llm_latents_of(PyObject *object, const hc_llm_layer *layer, hc_latents *latents,
                       hc_side side[HC_LLM_LATENT_SIDES], hc_held *held);

#endif
