/* Attention over latents: queries, the halves of keys, and values of the result. hc_layers.h has the equations.
 *
 * Memory: the values of each row between two steps, during the call.
 * DeepSeek-AI, "DeepSeek-V2", 2024 (arXiv 2405.04434), section 2.1.
 */
#include "ops/layers/latents.h"
#include "ops/layers/steps.h"

#include <string.h>

static void norm(const hc_run *run, const hc_llm_layer *layer, int64_t n, const float *weight, float *x) {
    const int64_t rows = layer->batch * layer->n;
    const hc_run some = hc_step_run(run, (double)rows * (double)n);
    hc_run_layer(&some, &(hc_layer){.kind = HC_LAYER_RMS_NORM,
                                    .rows = rows,
                                    .n = n,
                                    .x = x,
                                    .weight = weight,
                                    .y = x,
                                    .epsilon = layer->latents->epsilon});
}

/* Copies n values of each of `rows` rows. */
static void copy(int64_t rows, int64_t n, const float *from, int64_t from_ld, float *to, int64_t to_ld) {
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_ld, from + r * from_ld, (size_t)n * sizeof *to);
}

/* The first n values of each head of `to` = the first k of each head of `from`, times the map (heads, k, n) */
static hc_status map(const hc_run *run, const hc_llm_layer *layer, const float *from, int64_t from_width, int64_t k,
                     const float *maps, float *to, int64_t to_width, int64_t n, hc_error *error) {
    const int64_t rows = layer->batch * layer->n, heads = layer->heads;
    const hc_run some = hc_step_run(run, (double)(rows * heads) * (double)k * (double)n);
    const hc_view x = {(void *)from, HC_F32, 3, {heads, rows, k}, {4 * from_width, 4 * heads * from_width, 4}, HC_HOST};
    const hc_view weight = {(void *)maps, HC_F32, 3, {heads, k, n}, {4 * k * n, 4 * n, 4}, HC_HOST};
    const hc_view out = {to, HC_F32, 3, {heads, rows, n}, {4 * to_width, 4 * heads * to_width, 4}, HC_HOST};
    const hc_operand a = {&x, NULL}, b = {&weight, NULL};
    return hc_matmul(&some, &a, &b, NULL, NULL, &out, error);
}

/* first, second: the halves of rows of c and r */
static void divide(const hc_llm_layer *layer, const float *c, const float *r, float *first, float *second) {
    const int64_t rows = layer->batch * layer->n, keys = layer->latents->keys, rotary = layer->latents->rotary;
    const int64_t half = layer->head_width;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < 2 * half; i++) {
            float *to = i < half ? first + row * half + i : second + row * half + i - half;
            *to = i < keys ? c[row * keys + i] : i < keys + rotary ? r[row * rotary + i - keys] : 0;
        }
}

typedef struct {
    float *low, *q, *turned, *rotated, *both, *c, *r, *turned_r;
} latent_memory;

static hc_status project(const hc_run *run, const hc_llm_layer *layer, const float *y, const latent_memory *at,
                         float *queries, float *first, float *second, hc_error *error) {
    const hc_latents *own = layer->latents;
    const int64_t rows = layer->batch * layer->n, heads = layer->heads, width = layer->width;
    const int64_t each = own->plain + own->rotary, whole = hc_latent_width(own);
    const float *from = y;
    hc_status status = HC_OK;
    if (own->query) {
        status = hc_step_product(run, rows, &own->q_a, own->q_a_bias, layer->activations, width, own->query, y, at->low,
                                 error);
        if (status != HC_OK)
            return status;
        norm(run, layer, own->query, own->q_norm, at->low);
        from = at->low;
    }
    status = hc_step_product(run, rows, &own->q_b, own->q_b_bias, layer->activations, own->query ? own->query : width,
                             heads * each, from, at->q, error);
    if (status == HC_OK)
        status = hc_step_product(run, rows, &own->kv_a, own->kv_a_bias, layer->activations, width, whole, y, at->both,
                                 error);
    if (status == HC_OK)
        status = map(run, layer, at->q, each, own->plain, own->key_map, queries, whole, own->keys, error);
    if (status != HC_OK)
        return status;
    copy(rows, own->keys, at->both, whole, at->c, own->keys);
    norm(run, layer, own->keys, own->c_norm, at->c);
    copy(rows, own->rotary, at->both + own->keys, whole, at->r, own->rotary);
    hc_step_turn(run, layer, 1, own->rotary, at->r, at->turned_r);
    divide(layer, at->c, at->turned_r, first, second);
    copy(rows * heads, own->rotary, at->q + own->plain, each, at->turned, own->rotary);
    hc_step_turn(run, layer, heads, own->rotary, at->turned, at->rotated);
    copy(rows * heads, own->rotary, at->rotated, own->rotary, queries + own->keys, whole);
    return HC_OK;
}

hc_status hc_project_latents(const hc_run *run, const hc_llm_layer *layer, const float *y, float *q, float *first,
                             float *second, hc_error *error) {
    const hc_latents *own = layer->latents;
    const int64_t rows = layer->batch * layer->n, heads = layer->heads;
    latent_memory at;
    float **const part[] = {&at.low, &at.q, &at.turned, &at.rotated, &at.both, &at.c, &at.r, &at.turned_r};
    const int64_t size[] = {own->query,           heads * (own->plain + own->rotary),
                            heads * own->rotary,  heads * own->rotary,
                            hc_latent_width(own), own->keys,
                            own->rotary,          own->rotary};
    enum { PARTS = sizeof size / sizeof *size, LINE = 16 };
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += hc_round_up(rows * size[i], LINE);
    float *memory = hc_alloc_aligned(total * (int64_t)sizeof *memory), *next = memory;
    if (!memory)
        return hc_fail(error, HC_MEMORY, "llm_layer: not enough memory");
    for (int i = 0; i < PARTS; i++) {
        *part[i] = next;
        next += hc_round_up(rows * size[i], LINE);
    }
    const hc_status status = project(run, layer, y, &at, q, first, second, error);
    hc_free_aligned(memory);
    return status;
}

hc_status hc_map_latents(const hc_run *run, const hc_llm_layer *layer, const float *from, float *answer,
                         hc_error *error) {
    const hc_latents *own = layer->latents;
    return map(run, layer, from, hc_latent_width(own), own->keys, own->value_map, answer, own->value, own->value,
               error);
}
