/* heterocompute: layers between products, and whole layers of language models: a part of the public C API like hc.h. */
#ifndef HC_LAYERS_H
#define HC_LAYERS_H

#include "hc.h"

/* The layers of transformers between products, rows x n contiguous float32 (kernels/layers/layers.h has the equations):
 * norms with weight and bias (n) or NULL, gates with weight = what they are multiplied by (rows x n) or NULL, rope with
 * weight and bias = cosine and sine (turns x half) of row (r / repeat) % turns. y may be x, except for rope. */
typedef enum {
    HC_LAYER_RMS_NORM,
    HC_LAYER_NORM,
    HC_LAYER_SOFTMAX,
    HC_LAYER_SILU,
    HC_LAYER_GELU,
    HC_LAYER_ROPE,
    HC_LAYER_GELU_ERF, /* this gate and those that follow are for the CPU alone */
    HC_LAYER_RELU,
    HC_LAYER_RELU2,
    HC_N_LAYERS
} hc_layer_kind;
typedef struct {
    hc_layer_kind kind;
    int64_t rows, n;
    const float *x, *weight, *bias;
    float *y;
    float epsilon;
    int64_t half, repeat, turns;
    bool pairs;
} hc_layer;
void hc_run_layer(const hc_run *run, const hc_layer *layer);

/* out = softmax(scale q k^T) v: n queries, the last of m keys, each of `heads` with the keys of its kv head. Keys and
 * values of batch b, head h, token t are row b step[0] + h step[1] + t step[2] of the packed array, or the `width`
 * floats there. causal: a query sees no later token; window > 0: it sees only the last `window` tokens up to its own;
 * cap > 0: scores are cap tanh(s / cap). sinks: a further score of each head, without a value, or NULL. bias: a number
 * that joins the score of each head and key, or NULL: it is a further value of the key, times 1 / scale in the query.
 * Steps of q and out (batch, head, token) in floats. halves: a key is its row of k, of width / 2 values, rounded up, and
 * then that of v, up to `width` values; the value is the same. Such halves are in blocks of `turned` values after
 * hc_rotate_heads, unless it is 0. */
typedef struct {
    const hc_packed *packed; /* NULL: the values are at `data` */
    const float *data;
    int64_t step[3];
} hc_kept;
typedef struct {
    int64_t batch, heads, kv_heads, n, m, width;
    const float *q;
    float *out;
    int64_t q_step[3], out_step[3];
    hc_kept k, v;
    bool causal;
    int64_t window;
    float scale, cap;
    const float *sinks; /* (heads), on the host */
    const float *bias;  /* (heads, m), rows bias_step apart, on the host */
    int64_t bias_step;
    bool halves; /* on the host, without a bias */
    int64_t turned;
} hc_attention;
hc_status hc_attend_all(const hc_run *run, const hc_attention *given, hc_error *error);

/* Maxima, or means, of windows of x (planes, H, W) to out (planes, P, Q), contiguous float32 both. Maxima are down the rows
 * of a window first, then across, and a NaN is larger than all numbers; padding does not count, and a window of padding
 * alone gives -infinity. Means are sums in float64 over r and s ascending, divided and rounded once; padding counts as
 * 0. */
typedef struct {
    int64_t planes, height, width, out_height, out_width;
    int64_t size[2], stride[2], pad_before[2];
    const float *x;
    float *out;
    bool means;
} hc_pool;
hc_status hc_pool2d(const hc_run *run, const hc_pool *pool, hc_error *error);

/* Operations of one value each on rows x columns of float32 (kernels/pointwise/pointwise.h has the equations), rounded
 * one after the other. Values are numbered: the inputs first, then the result of each step. Value (i, j) of an input is
 * values[(i % rows) row_step + j step], step 0 or 1. `out` of a step: rows x columns, contiguous, no memory of an input;
 * or NULL. */
enum { HC_POINTWISE_INPUTS = 64, HC_POINTWISE_STEPS = 64 };
typedef struct {
    const float *values;
    int64_t rows, row_step, step;
} hc_pointwise_input;
typedef struct {
    int operation, a, b; /* hc_pointwise_operation; b -1: none */
    float low, high, scale, shift;
    float *out;
} hc_pointwise_step;
typedef struct {
    int64_t rows, columns;
    int n_inputs, n_steps;
    const hc_pointwise_input *inputs;
    const hc_pointwise_step *steps;
} hc_pointwise;
hc_status hc_pointwise_call(const hc_run *run, const hc_pointwise *call, hc_error *error);

/* A stack (experts, rows, columns): packed over the columns, or floats. NULL both: there is none. */
typedef struct {
    const hc_packed *packed;
    const float *data;
    int64_t rows, columns;
    const float *bias; /* (experts, rows), or NULL */
} hc_stack;

/* out[t] = sum of share[t][j] * down(act(gate(x[t]), up(x[t]))) over the experts picked[t][j], in ascending order of the
 * experts. gate_up replaces gate and up: first all rows of gate, then of up, or `interleaved` rows.
 *
 *   act(g, u) = kind(g) * u                                                   limit = 0
 *   act(g, u) = (clip(u) + 1) * (min(g) * sigmoid(alpha * min(g)))            otherwise, with bounds of +-limit
 *
 * Each step is rounded by itself. A product that refuses a value of x returns HC_VALUE; out is then unspecified. */
typedef struct {
    int64_t tokens, width, hidden, experts, used;
    const float *x;        /* (tokens, width) */
    const int64_t *picked; /* (tokens, used), from 0 to experts - 1, each once in a row */
    const float *shares;
    float *out;
    hc_stack gate, up, gate_up, down;
    hc_layer_kind kind;
    bool interleaved;
    float alpha, limit;
    const hc_format *activations; /* or NULL */
} hc_experts;
hc_status hc_run_experts(const hc_run *run, const hc_experts *given, hc_error *error);

/* The choice of experts: router = from (rows, width) @ router + bias; x is rounded to `activations` if there are any.
 *
 *   HC_ROUTE_SOFTMAX   scores = softmax(router)
 *   HC_ROUTE_SIGMOID   scores = softmax(router, 0) of each one
 *   HC_ROUTE_MIXER     two experts: the largest of the router, and the largest of the rest. The share of each is that in
 *                      a softmax of the router, without the first one for the second one, and without scores that are
 *                      further below than 2 noise times the larger magnitude
 *
 * Each row has the `used` largest values of scores + correction, a NaN last, of equal ones the first, of the experts in
 * the groups_used best of `groups` groups. The score of a group is its largest value, or with sums_two the sum of its two
 * largest ones. Shares are the scores of the experts. With sums_to_one they are divided by their sum, one after the other,
 * plus 1e-20; of HC_ROUTE_SOFTMAX without groups and correction they are a softmax of the router instead. Then they are
 * multiplied by factor, if it is not 1.
 *
 * Every token has the shared experts, too, if their `hidden` is not 0: down(kind(gate(x)) * up(x)), times the sigmoid of
 * x @ scale. */
typedef enum { HC_ROUTE_SOFTMAX, HC_ROUTE_SIGMOID, HC_ROUTE_MIXER, HC_N_ROUTES_OF_EXPERTS } hc_expert_route;
typedef struct {
    int64_t hidden;
    hc_operand gate, up, down, scale; /* (columns, rows); scale (width, 1), or nothing */
    const float *gate_bias, *up_bias, *down_bias;
} hc_shared_experts;
typedef struct {
    hc_experts experts;             /* without tokens, x, picked, shares and out */
    hc_operand router;              /* (width, experts) */
    const float *bias, *correction; /* (experts), or NULL */
    hc_expert_route route;
    int64_t groups, groups_used;
    bool sums_two, sums_to_one;
    float factor, noise;
    hc_shared_experts shared;
} hc_mixture;
/* The experts of norm(x), whose sum is `to` (rows, width). */
hc_status hc_run_mixture(const hc_run *run, const hc_mixture *mixture, int64_t rows, const float *from, float *to,
                         hc_error *error);

/* Attention over latents (DeepSeek): keys and values of all heads come from one vector per token, which alone is kept.
 *
 *   c, r = rms_norm(x kv_a), rope(x kv_a)     kv_a has `keys` columns of c, then `rotary` of r
 *   q    = rms_norm(x q_a) q_b                x q_b if `query` is 0; of each head `plain` values, then `rotary`
 *   s    = (q key_map) c + rope(q) r          answer of a head: (softmax(scale s) c) value_map
 *
 * k of the layer keeps the first half of (c, r), v the second half, of one head of keys whose width is the half, rounded
 * up; a value that is missing is 0. */
typedef struct {
    int64_t query, keys, plain, rotary, value;
    float epsilon;
    hc_operand q_a, q_b, kv_a;
    const float *q_a_bias, *q_b_bias, *kv_a_bias; /* or NULL */
    const float *q_norm, *c_norm;
    const float *key_map, *value_map; /* (heads, plain, keys), (heads, keys, value) */
} hc_latents;

/* A whole layer of a language model (docs/llm.md), by the functions above and with their order of sums:
 *
 *   x = after(x + post(out(attention(rope(norm(q, k)), v))));  q, k, v = norm(x) Q, K, V, which join those of `held`
 *   x = after(x + post(down(gate(G) U)));                      tokens before; G, U = norm(x) gate, up
 *
 * Options: each sum adds residual times its part. Without GATE the second line is down(gate(U)). `parallel`: the second
 * line reads the x of the first, by the first norm if it has none of its own. `centered`: norms are layer norms.
 * `head_norm`: how q and k are normalized. Without cosine nothing is rotated. `turned`: k and v contain heads after
 * hc_rotate_heads in blocks of so many values, which q and the result of attention then are, too. With `mixture` the
 * second line is post(mixture(norm(x))). Without it and without DOWN there is no second line: experts follow.
 *
 * `both_sides`: a layer of an encoder. Each token sees all tokens of its sequence. held and window are 0, k and v NULL.
 *
 * Weights are (columns, rows) operands, as hc_matmul takes its right side. QKV and GATE_UP replace three or two weights
 * that have no operand of their own. Norms: NULL if there is none. k and v have room for all tokens: row (token, batch,
 * head). A product that refuses a value of x also returns HC_VALUE; `out` and the new rows of k and v are then
 * unspecified. */
typedef enum {
    HC_LLM_Q,
    HC_LLM_K,
    HC_LLM_V,
    HC_LLM_QKV,
    HC_LLM_OUT,
    HC_LLM_GATE,
    HC_LLM_UP,
    HC_LLM_GATE_UP,
    HC_LLM_DOWN,
    HC_N_LLM_WEIGHTS
} hc_llm_weight;
typedef enum {
    HC_LLM_NORM,
    HC_LLM_Q_NORM,
    HC_LLM_K_NORM,
    HC_LLM_POST,
    HC_LLM_FEED_NORM,
    HC_LLM_FEED_POST,
    HC_LLM_AFTER, /* of the sums */
    HC_LLM_FEED_AFTER,
    HC_N_LLM_NORMS
} hc_llm_norm;
/* Norms of queries and keys: each head by the same weights, all heads together, or each head by weights of its own. */
typedef enum { HC_LLM_HEADS_ALIKE, HC_LLM_HEADS_TOGETHER, HC_LLM_HEADS_APART } hc_llm_head_norm;
typedef struct {
    int64_t batch, n, width, heads, kv_heads, head_width, hidden, held;
    const float *x; /* (batch, n, width) */
    float *out;
    hc_operand weight[HC_N_LLM_WEIGHTS];
    const float *bias[HC_N_LLM_WEIGHTS];                           /* or NULL */
    const float *norm[HC_N_LLM_NORMS], *norm_bias[HC_N_LLM_NORMS]; /* or NULL */
    const float *cosine, *sine;                                    /* (n, half), or NULL */
    const float *q_factor; /* (n): multiplies the queries of each token, or NULL */
    const float *sinks;    /* of hc_attention */
    const float *key_bias; /* of hc_attention, (heads, held + n), or NULL */
    int64_t key_bias_step;
    int64_t half, window;
    hc_layer_kind gate;
    hc_llm_head_norm head_norm;
    bool pairs, centered, parallel, both_sides;
    int64_t turned; /* a power of two that divides head_width, or 0 */
    float epsilon, scale, cap, residual;
    const hc_format *activations;
    const hc_mixture *mixture; /* or NULL */
    const hc_latents *latents; /* or NULL. They replace Q, K, V and the norms of queries and keys */
    const hc_packed *k, *v;    /* (tokens, batch, kv_heads, head_width), or NULL: */
    float *k_floats, *v_floats;
} hc_llm_layer;
/* With run->n_threads = 0 each step chooses its number of threads. */
hc_status hc_run_llm_layer(const hc_run *run, const hc_llm_layer *layer, hc_error *error);

/* Multiplies rows (rows, n) of x in place by Sylvester's matrix of n, a power of two, times 1 / sqrt(n): log2(n) stages of
 * sums and differences of values whose distance is 1, 2, 4 ..., then the factor, each step rounded to float32. A second
 * call gives x again, except for rounding. */
void hc_rotate_heads(const hc_run *run, int64_t rows, int64_t n, float *x);

#endif
