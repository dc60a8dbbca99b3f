/* Steps of the layers of transformers (cuda/hc_cuda.h). */
#include "cuda/sides.h"

enum { THREADS = 128, GATE_VALUES = 4, MOST_HEADS = 65535, FEW_QUERIES = 4 };

hc_status hc_cuda_plan_layer(const hc_layer *layer, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_begin(plan, NULL);
    const hc_cuda_layer p = {.rows = layer->rows,
                             .n = layer->n,
                             .half = layer->half,
                             .repeat = layer->repeat,
                             .turns = layer->turns,
                             .x = layer->x,
                             .weight = layer->weight,
                             .bias = layer->bias,
                             .y = layer->y,
                             .epsilon = layer->epsilon,
                             .is_centered = layer->kind == HC_LAYER_NORM,
                             .is_gelu = layer->kind == HC_LAYER_GELU,
                             .pairs = layer->pairs};
    static const char *const KERNELS[HC_N_LAYERS] = {"hc_norm", "hc_norm", "hc_softmax",
                                                     "hc_gate", "hc_gate", "hc_rope"};
    const bool is_gate = layer->kind == HC_LAYER_SILU || layer->kind == HC_LAYER_GELU;
    const bool has_row = !is_gate && layer->kind != HC_LAYER_ROPE && layer->n <= HC_CUDA_LAYER_SHARED;
    const int64_t blocks = is_gate                        ? hc_ceil_div(layer->rows * layer->n, THREADS * GATE_VALUES)
                           : layer->kind == HC_LAYER_ROPE ? hc_ceil_div(layer->rows, THREADS / HC_WARP)
                                                          : layer->rows;
    if (layer->rows <= 0 || layer->n <= 0 || blocks > INT32_MAX ||
        (!is_gate && (layer->rows > UINT32_MAX || layer->n > INT32_MAX)))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not take %lld rows of %lld values: use the CPU",
                       (long long)layer->rows, (long long)layer->n);
    hc_cuda_step *step = hc_cuda_add_step(plan, "layers", KERNELS[layer->kind], blocks, 1, THREADS,
                                          16 + (has_row ? layer->n * (int64_t)sizeof(float) : 0), sizeof p);
    step->params.layer = p;
    return HC_OK;
}

/* Keys or values as floats, and their steps. */
static hc_status add_kept(const hc_kept *kept, int64_t width, hc_cuda_plan *plan, const float **data, int64_t step[3],
                          hc_error *error) {
    hc_geometry geometry;
    const void *decoded = kept->data;
    for (int i = 0; i < 3; i++)
        step[i] = kept->step[i] * (kept->packed ? width : 1);
    *data = kept->data;
    if (!kept->packed)
        return HC_OK;
    hc_status status = hc_cuda_packed_geometry(kept->packed, &geometry, error);
    if (status == HC_OK)
        status = hc_cuda_refuse(&kept->packed->format, &geometry, false, error);
    if (status == HC_OK)
        status = hc_cuda_decode_rows(kept->packed, &geometry, HC_F32, plan, &decoded, error);
    *data = decoded;
    return status;
}

/* Rows of floats begin on 16 bytes. */
static bool has_pieces_of_16(const float *data, const int64_t step[3]) {
    return (uintptr_t)data % 16 == 0 && step[0] % 4 == 0 && step[1] % 4 == 0 && step[2] % 4 == 0;
}

hc_status hc_cuda_plan_attention(const hc_attention *given, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_begin(plan, workspace);
    hc_cuda_attend p = {.heads = given->heads,
                        .kv_heads = given->kv_heads,
                        .n = given->n,
                        .m = given->m,
                        .width = given->width,
                        .q = given->q,
                        .out = given->out,
                        .window = given->window,
                        .scale = given->scale,
                        .cap = given->cap,
                        .causal = given->causal};
    if (given->batch <= 0 || given->n <= 0 || given->width <= 0 || given->m > INT32_MAX / 2 ||
        given->heads > MOST_HEADS || given->batch > MOST_HEADS || given->n > INT32_MAX / 2)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not take attention of these shapes: use the CPU");
    hc_status status = add_kept(&given->k, given->width, plan, &p.k, p.k_step, error);
    if (status == HC_OK)
        status = add_kept(&given->v, given->width, plan, &p.v, p.v_step, error);
    if (status != HC_OK)
        return status;
    for (int i = 0; i < 3; i++) {
        p.q_step[i] = given->q_step[i];
        p.out_step[i] = given->out_step[i];
    }
    const bool has_16 = given->width % 4 == 0 && has_pieces_of_16(p.k, p.k_step) && has_pieces_of_16(p.v, p.v_step) &&
                        has_pieces_of_16(p.q, p.q_step);
    const int64_t width = hc_round_up(given->width, 16), queries = given->heads * given->n;
    hc_cuda_step *step;
    if (has_16 && given->n <= FEW_QUERIES && given->m > 0 && queries <= MOST_HEADS) {
        const int64_t tiles = hc_ceil_div(given->m, HC_CUDA_ATTEND_KEYS), all = given->batch * queries;
        p.scores = hc_cuda_reserve(plan, all * given->m * (int64_t)sizeof(float));
        p.largest = hc_cuda_reserve(plan, all * tiles * (int64_t)sizeof(float));
        step = hc_cuda_add_step(plan, "attend", "hc_attend_scores", tiles, queries, THREADS,
                                THREADS / HC_WARP * (int64_t)sizeof(float), sizeof p);
        step->grid[2] = (uint32_t)given->batch;
        step->params.attend = p;
        const int64_t floats =
            HC_CUDA_ATTEND_STAGES * HC_CUDA_ATTEND_COLUMNS * HC_CUDA_ATTEND_KEYS + 2 * (int64_t)HC_CUDA_ATTEND_LD;
        step = hc_cuda_add_step(plan, "attend", "hc_attend_columns", hc_ceil_div(given->width, HC_CUDA_ATTEND_COLUMNS),
                                queries, THREADS, floats * (int64_t)sizeof(float), sizeof p);
    } else if (has_16 && given->width <= HC_CUDA_ATTEND_WIDTH) {
        const int64_t floats = HC_CUDA_ATTEND_KEYS * (HC_CUDA_ATTEND_QUERIES + 4) + 6 * HC_CUDA_ATTEND_QUERIES +
                               (HC_CUDA_ATTEND_QUERIES + HC_CUDA_ATTEND_KEYS) * (width + 4);
        step = hc_cuda_add_step(plan, "attend", "hc_attend_tiles", hc_ceil_div(given->n, HC_CUDA_ATTEND_QUERIES),
                                given->heads, 2 * THREADS, floats * (int64_t)sizeof(float), sizeof p);
    } else {
        const int64_t shared = (HC_CUDA_ATTEND_KEYS + 2 + given->width) * (int64_t)sizeof(float);
        if (shared > HC_CUDA_SHARED_BYTES)
            return hc_fail(error, HC_UNSUPPORTED,
                           "the CUDA kernels do not take attention of these shapes: use the CPU");
        step = hc_cuda_add_step(plan, "attend", "hc_attend", given->n, given->heads, THREADS, shared, sizeof p);
    }
    step->grid[2] = (uint32_t)given->batch;
    step->params.attend = p;
    return HC_OK;
}
