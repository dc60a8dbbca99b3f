/* Steps of operations: which kernels, how many threads, what memory (cuda/hc_cuda.h). No step depends on a value. */
#include "cuda/hc_cuda.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/rows.h"

#include <math.h>
#include <string.h>

enum { MAX_THREADS = 128, SHARED_BYTES = 48 << 10, ROW_CHUNK = 32, ALIGNMENT = 256, CLEAR_BLOCKS = 1024 };
enum { NIBBLES_MOST = 64, NIBBLES_STEP = 256 /* codes of a stage */ };
enum { GEMV_MOST = 8, SGEMM_TILE = 64 };
enum { STEP_BYTES = 64, PITCH = 80, K_BYTES = 32 /* of an mma */ };

typedef enum { MAXIMUM, ENCODE, DECODE, GEMV, INTEGERS, CHANCE, N_KERNELS } hc_cuda_kernel;
/* The module of a family and its kernels; NULL: there is none. */
static const struct {
    const char *module, *kernel[N_KERNELS];
} FAMILIES[] = {
#define FAMILY(name, integers)                                                                                         \
    {                                                                                                                  \
        #name, {                                                                                                       \
            "hc_maximum_" #name, "hc_encode_" #name, "hc_decode_" #name, "hc_gemv_" #name, integers,                   \
                "hc_chance_" #name                                                                                     \
        }                                                                                                              \
    }
    FAMILY(int, "hc_integers_int"),
    FAMILY(vsq, "hc_integers_vsq"),
    FAMILY(log, NULL),
    FAMILY(float, NULL),
    FAMILY(mx, "hc_integers_mx"),
    FAMILY(nvfp4, "hc_integers_nvfp4"),
    FAMILY(nf4, NULL),
    {NULL, {NULL, NULL, NULL, NULL, NULL}},
    FAMILY(ggml, "hc_integers_ggml"),
#undef FAMILY
};

static hc_cuda_step *add_step(hc_cuda_plan *plan, const char *module, const char *kernel, int64_t x, int64_t y,
                              int threads, int64_t shared_bytes, int64_t params_bytes) {
    HC_ASSERT(plan->n < HC_CUDA_MAX_STEPS);
    hc_cuda_step *step = &plan->step[plan->n++];
    memset(step, 0, sizeof *step);
    step->module = module;
    step->kernel = kernel;
    step->grid[0] = (uint32_t)x;
    step->grid[1] = (uint32_t)y;
    step->block[0] = (uint32_t)threads;
    step->grid[2] = step->block[1] = step->block[2] = 1;
    step->shared_bytes = (uint32_t)shared_bytes;
    step->params_bytes = (uint32_t)params_bytes;
    return step;
}

/* The next `bytes` of the workspace; an address of the device, or NULL where there is no workspace yet. */
static void *reserve(void *workspace, hc_cuda_plan *plan, int64_t bytes) {
    const int64_t at = plan->workspace_bytes;
    plan->workspace_bytes += hc_round_up(bytes, ALIGNMENT);
    return workspace ? (char *)workspace + at : NULL;
}

static void add_clear(hc_cuda_plan *plan, void *data, int64_t bytes) {
    hc_cuda_step *step = add_step(plan, "gemm", "hc_clear", hc_min(hc_ceil_div(bytes, 16 * 256), CLEAR_BLOCKS), 1, 256,
                                  0, sizeof step->params.clear);
    step->params.clear = (hc_cuda_clear){data, bytes};
}

/* Bytes of each component of a row with so many columns or groups. */
static void component_bytes(const hc_format *format, int64_t group, int64_t columns, int32_t bytes[HC_N_COMPONENTS]) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const int64_t groups = group ? columns / group : 1;
    const hc_geometry row = {.rows = 1,
                             .runs = 1,
                             .run_length = columns,
                             .group = group ? group : columns,
                             .groups_per_run = groups,
                             .groups = groups,
                             .columns = columns,
                             .padded = columns,
                             .whole_length = columns,
                             .whole_columns = columns};
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    ops->layout(format, &row, layout);
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        bytes[i] = layout[i].present ? (int32_t)hc_component_bytes(&layout[i]) : -1;
}

/* The smallest number of groups whose components begin and end on bytes; shared memory for `size` bytes a value. */
static hc_status plan_chunks(const hc_format *format, const hc_geometry *geometry, int size, bool has_components,
                             hc_cuda_chunks *chunks, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const int64_t unit = ops->unit ? ops->unit(format) : 1;
    memset(chunks, 0, sizeof *chunks);
    const bool is_row = geometry->groups == 1 && format->group == 0;
    int32_t bytes[HC_N_COMPONENTS], twice[HC_N_COMPONENTS];
    if (is_row) {
        chunks->columns = ROW_CHUNK;
        component_bytes(format, 0, ROW_CHUNK, bytes);
        component_bytes(format, 0, 2 * ROW_CHUNK, twice);
    } else {
        int64_t groups = hc_max(1, unit / geometry->group);
        for (;; groups *= 2) {
            int32_t eight[HC_N_COMPONENTS];
            component_bytes(format, geometry->group, groups * geometry->group, bytes);
            component_bytes(format, geometry->group, 8 * groups * geometry->group, eight);
            bool is_even = groups * geometry->group % 8 == 0 || groups >= geometry->groups;
            for (int i = 0; i < HC_N_COMPONENTS; i++)
                is_even = is_even && (eight[i] == bytes[i] || eight[i] == 8 * bytes[i]);
            if (is_even || groups * geometry->group > SHARED_BYTES)
                break;
        }
        if (groups * geometry->group > SHARED_BYTES / size)
            return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not encode groups of %lld values",
                           (long long)geometry->group);
        chunks->groups = (int32_t)groups;
        chunks->columns = (int32_t)(groups * geometry->group);
        component_bytes(format, geometry->group, 2 * chunks->columns, twice);
    }
    chunks->per_row = hc_ceil_div(geometry->padded, chunks->columns);
    chunks->all = chunks->per_row * geometry->rows;
    const int64_t last_columns = geometry->padded - (chunks->per_row - 1) * chunks->columns;
    component_bytes(format, is_row ? 0 : geometry->group, last_columns, chunks->last);
    chunks->ld = chunks->columns | 1; /* odd, so that threads touch all banks */
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        chunks->place[i] = -1;
        if (bytes[i] < 0 || !has_components)
            continue;
        chunks->step[i] = twice[i] == bytes[i] ? 0 : bytes[i];
        chunks->place[i] = chunks->own_bytes;
        chunks->own_bytes += bytes[i];
    }
    chunks->own_bytes = has_components ? (int32_t)hc_round_up(chunks->own_bytes, 4) | 4 : 0;
    const int64_t each = (int64_t)chunks->ld * size + chunks->own_bytes;
    chunks->threads = (int32_t)hc_min(MAX_THREADS, (SHARED_BYTES - 16) / each);
    if (chunks->threads >= 32)
        chunks->threads -= chunks->threads % 32;
    if (chunks->threads < 1 || hc_ceil_div(chunks->all, chunks->threads) > INT32_MAX)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not take %lld rows with groups of %lld values",
                       (long long)geometry->rows, (long long)geometry->group);
    return HC_OK;
}

static int64_t shared_bytes(const hc_cuda_chunks *chunks, int size) {
    return hc_round_up((int64_t)chunks->threads * chunks->ld * size, 16) + (int64_t)chunks->threads * chunks->own_bytes;
}

static void add_codec(hc_cuda_plan *plan, hc_cuda_kernel kernel, const hc_cuda_codec *codec, int size) {
    const hc_cuda_chunks *chunks = &codec->chunks;
    hc_cuda_step *step = add_step(
        plan, FAMILIES[codec->format.family].module, FAMILIES[codec->format.family].kernel[kernel],
        hc_ceil_div(chunks->all, chunks->threads), 1, chunks->threads, shared_bytes(chunks, size), sizeof *codec);
    step->params.codec = *codec;
}

static const char *lacks(const hc_format *format, const hc_geometry *geometry, bool encodes) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const hc_stored_form form = hc_form_of(format);
    if (format->family >= (int32_t)(sizeof FAMILIES / sizeof *FAMILIES) || !FAMILIES[format->family].module)
        return "learned codebooks";
    if (format->m > 0)
        return "patterns";
    if (geometry->rows == 0 || geometry->padded == 0)
        return "arrays without a value";
    if (!encodes)
        return NULL;
    if (ops->shared && ops->shared(format, geometry) > 0)
        return "scales that are quantized twice";
    if (ops->weighs && ops->weighs(format))
        return "blocks whose scales are searched";
    if (form.has_zero_points && format->group == 0)
        return "zero points of whole rows";
    return NULL;
}

static hc_status refuse(const hc_format *format, const hc_geometry *geometry, bool encodes, hc_error *error) {
    const char *what = lacks(format, geometry, encodes);
    return what ? hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not %s %s: use the CPU",
                          encodes ? "encode" : "decode", what)
                : HC_OK;
}

/* What the whole row or array must give before a chunk of it is encoded. */
typedef enum { NOTHING, ROW_MAXIMA, ARRAY_MAXIMUM } hc_cuda_need;
static hc_cuda_need need_of(const hc_format *format, bool has_thresholds) {
    const hc_stored_form form = hc_form_of(format);
    if (hc_format_find(format->family)->passes(format) > 0)
        return ARRAY_MAXIMUM;
    if (form.second == HC_SECOND_ROW)
        return ROW_MAXIMA;
    return format->group == 0 && form.scale != HC_SCALE_NONE && !has_thresholds ? ROW_MAXIMA : NOTHING;
}

static int size_of(const hc_view *view) { return view->dtype == HC_F64 ? 8 : 4; }

/* Steps that quantize x to parts, or, where y is given, to values. The state lies at the start of what is cleared. */
static hc_status add_quantize(const hc_view *x, const float *thresholds, const hc_format *format,
                              const hc_geometry *geometry, int n_axes, const int *axes, const hc_components *parts,
                              const hc_view *y, hc_cuda_state *state, uint32_t *row_maxima, hc_cuda_plan *plan,
                              hc_error *error) {
    hc_cuda_codec codec = {.format = *format, .geometry = *geometry, .thresholds = thresholds, .state = state};
    hc_status status = refuse(format, geometry, true, error);
    if (status == HC_OK)
        status = plan_chunks(format, geometry, size_of(x), true, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&codec.x, x, geometry, n_axes, axes);
    if (y)
        hc_rows_init(&codec.y, y, geometry, n_axes, axes);
    if (parts)
        codec.parts = *parts;
    const hc_cuda_need need = need_of(format, thresholds != NULL);
    if (need != NOTHING) {
        codec.row_maxima = need == ROW_MAXIMA ? row_maxima : NULL;
        add_codec(plan, MAXIMUM, &codec, size_of(x));
    }
    add_codec(plan, ENCODE, &codec, size_of(x));
    return HC_OK;
}

static hc_status plan_rounding(const hc_view *x, const float *thresholds, const hc_format *format, int n_axes,
                               const int *axes, const hc_components *parts, const hc_view *y, void *workspace,
                               hc_cuda_plan *plan, hc_error *error) {
    hc_geometry geometry;
    const hc_status status = hc_format_geometry(format, x->ndim, x->shape, n_axes, axes, &geometry, error);
    if (status != HC_OK)
        return status;
    plan->n = 0;
    plan->workspace_bytes = 0;
    hc_cuda_state *state = reserve(workspace, plan, sizeof *state);
    uint32_t *row_maxima = reserve(workspace, plan, geometry.rows * (int64_t)sizeof *row_maxima);
    add_clear(plan, state, plan->workspace_bytes);
    return add_quantize(x, thresholds, format, &geometry, n_axes, axes, parts, y, state, row_maxima, plan, error);
}

hc_status hc_cuda_plan_quantize(const hc_view *x, const float *thresholds, const hc_packed *packed, void *workspace,
                                hc_cuda_plan *plan, hc_error *error) {
    return plan_rounding(x, thresholds, &packed->format, packed->n_axes, packed->axes, &packed->components, NULL,
                         workspace, plan, error);
}

hc_status hc_cuda_plan_fake_quantize(const hc_view *x, const float *thresholds, const hc_format *format, int n_axes,
                                     const int *axes, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                                     hc_error *error) {
    return plan_rounding(x, thresholds, format, n_axes, axes, NULL, out, workspace, plan, error);
}

static hc_status packed_geometry(const hc_packed *packed, hc_geometry *geometry, hc_error *error) {
    return hc_format_geometry(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes, geometry,
                              error);
}

hc_status hc_cuda_plan_dequantize(const hc_packed *packed, const hc_view *out, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_codec codec = {.format = packed->format, .parts = packed->components};
    plan->n = 0;
    plan->workspace_bytes = 0;
    hc_status status = packed_geometry(packed, &codec.geometry, error);
    if (status == HC_OK)
        status = refuse(&packed->format, &codec.geometry, false, error);
    if (status == HC_OK)
        status = plan_chunks(&packed->format, &codec.geometry, size_of(out), false, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&codec.x, out, &codec.geometry, packed->n_axes, packed->axes);
    add_codec(plan, DECODE, &codec, size_of(out));
    return HC_OK;
}

hc_status hc_cuda_plan_chance(const hc_view *x, const hc_packed *q, const hc_levels *levels, uint64_t seed,
                              const hc_view *out, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_chance p = {.format = q->format, .parts = q->components, .seed = seed};
    plan->n = 0;
    plan->workspace_bytes = 0;
    hc_status status = packed_geometry(q, &p.geometry, error);
    if (status == HC_OK)
        status = refuse(&q->format, &p.geometry, false, error);
    if (status == HC_OK && (hc_form_of(&q->format).has_minima || levels->n > HC_CUDA_LEVELS))
        status = hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not round to %d levels by chance: use the CPU",
                         levels->n);
    if (status == HC_OK)
        status = plan_chunks(&q->format, &p.geometry, sizeof(float), false, &p.chunks, error);
    if (status != HC_OK)
        return status;
    for (int i = 0; i < HC_CUDA_LEVELS; i++)
        p.table[i] = i < levels->n ? levels->table[i] : (double)INFINITY;
    p.n = levels->n;
    p.fraction = levels->fraction;
    p.least = levels->least;
    p.low = levels->low;
    p.high = levels->high;
    hc_view order = *x;
    for (int i = x->ndim - 1; i >= 0; i--)
        order.strides[i] = i == x->ndim - 1 ? 1 : order.strides[i + 1] * x->shape[i + 1];
    hc_rows_init(&p.x, x, &p.geometry, q->n_axes, q->axes);
    hc_rows_init(&p.y, out, &p.geometry, q->n_axes, q->axes);
    hc_rows_init(&p.order, &order, &p.geometry, q->n_axes, q->axes);
    const int64_t each = hc_max(p.chunks.groups, 1) * 3 * (int64_t)sizeof(double);
    const int64_t fit = SHARED_BYTES / each;
    p.chunks.threads = (int32_t)hc_min(p.chunks.threads, fit >= 32 ? fit / 32 * 32 : fit);
    hc_cuda_step *step =
        add_step(plan, FAMILIES[q->format.family].module, FAMILIES[q->format.family].kernel[CHANCE],
                 hc_ceil_div(p.chunks.all, p.chunks.threads), 1, p.chunks.threads, p.chunks.threads * each, sizeof p);
    step->params.chance = p;
    return HC_OK;
}

hc_status hc_cuda_plan_prune(const hc_view *x, int n, int m, int n_axes, const int *axes, float *values,
                             uint8_t *metadata, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_prune p = {.n = n, .m = m, .values = values, .metadata = metadata};
    plan->n = 0;
    plan->workspace_bytes = 0;
    hc_status status = hc_geometry_of_axes(NULL, 1, x->ndim, x->shape, n_axes, axes, &p.geometry, error);
    if (status != HC_OK)
        return status;
    hc_geometry *g = &p.geometry;
    g->group = m;
    g->groups_per_run = hc_ceil_div(g->run_length, m);
    g->groups = g->groups_per_run * g->runs;
    g->padded = g->groups * m;
    if (x->dtype == HC_F64 || g->rows == 0 || g->padded == 0)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not prune float64 or empty arrays: use the CPU");
    p.row_values = g->groups * n;
    p.row_bytes = hc_ceil_div(p.row_values * hc_position_bits(m), 8);
    p.chunks = (hc_cuda_chunks){.columns = 8 * m, .groups = 8, .per_row = hc_ceil_div(g->groups, 8), .ld = 8 * m + 1};
    p.chunks.all = p.chunks.per_row * g->rows;
    p.chunks.threads = (int32_t)hc_min(MAX_THREADS, SHARED_BYTES / (p.chunks.ld * (int64_t)sizeof(float)) / 32 * 32);
    p.state = reserve(workspace, plan, sizeof *p.state);
    hc_rows_init(&p.x, x, g, n_axes, axes);
    add_clear(plan, p.state, plan->workspace_bytes);
    hc_cuda_step *step = add_step(plan, "prune", "hc_prune", hc_ceil_div(p.chunks.all, p.chunks.threads), 1,
                                  p.chunks.threads, p.chunks.threads * p.chunks.ld * (int64_t)sizeof(float), sizeof p);
    step->params.prune = p;
    return HC_OK;
}

/* One side of a matmul. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_components parts;
    hc_int_form form[HC_N_INT_MODES];
} hc_cuda_side;

static hc_status load_side(hc_cuda_side *side, hc_error *error) {
    const hc_format_ops *ops = hc_format_find(side->format.family);
    const hc_status status = refuse(&side->format, &side->geometry, false, error);
    if (status != HC_OK)
        return status;
    memset(side->form, 0, sizeof side->form);
    for (int mode = 0; mode <= HC_INT_GROUPED && ops->int_form && FAMILIES[side->format.family].kernel[INTEGERS];
         mode++) {
        ops->int_form(&side->format, (hc_int_mode)mode, &side->form[mode]);
        side->form[mode].available = side->form[mode].available && !side->form[mode].has_minima;
    }
    return HC_OK;
}

/* Columns of a segment, 0 for the whole row; -1: the groups of the two sides do not nest. */
static int64_t segment_of(const hc_cuda_side *x, const hc_cuda_side *w) {
    const int64_t a = x->format.group ? x->geometry.group : 0, b = w->format.group ? w->geometry.group : 0;
    if (a == 0 || b == 0)
        return a + b;
    return a % b == 0 ? b : b % a == 0 ? a : -1;
}

static hc_status add_integers(const hc_cuda_side *side, hc_int_mode mode, int64_t group, bool for_nibbles,
                              int8_t *integers, float *scales, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_integers p = {.format = side->format,
                          .geometry = side->geometry,
                          .parts = side->parts,
                          .mode = mode,
                          .n_limbs = side->form[mode].n_limbs,
                          .for_nibbles = for_nibbles,
                          .group = group,
                          .integers = integers,
                          .scales = scales};
    const hc_status status = plan_chunks(&side->format, &side->geometry, 1, false, &p.chunks, error);
    if (status != HC_OK)
        return status;
    p.per_run = group ? hc_ceil_div(side->geometry.run_length, group) : 0;
    p.segments = group ? side->geometry.runs * p.per_run : 1;
    p.length = (int32_t)hc_round_up(group ? group : side->geometry.columns, K_BYTES);
    p.ld = hc_round_up(p.segments * p.length, for_nibbles ? NIBBLES_STEP : STEP_BYTES);
    p.chunks.own_bytes = hc_max(p.chunks.groups, 1) * (int32_t)sizeof(float);
    const int64_t each = p.chunks.ld * p.n_limbs + p.chunks.own_bytes;
    p.chunks.threads = (int32_t)hc_min(p.chunks.threads, (SHARED_BYTES - 16) / each);
    hc_cuda_step *step = add_step(
        plan, FAMILIES[side->format.family].module, FAMILIES[side->format.family].kernel[INTEGERS],
        hc_ceil_div(p.chunks.all, p.chunks.threads), 1, p.chunks.threads, shared_bytes(&p.chunks, p.n_limbs), sizeof p);
    step->params.integers = p;
    return HC_OK;
}

/* Where workspace is reserved for what a format stores of rows. */
static void reserve_parts(const hc_format *format, const hc_geometry *geometry, void *workspace, hc_cuda_plan *plan,
                          hc_components *parts) {
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    hc_format_layout(format, geometry, layout);
    memset(parts, 0, sizeof *parts);
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        if (layout[i].present) {
            const int64_t bytes = hc_component_bytes(&layout[i]);
            parts->part[i].row_stride = layout[i].per_row ? bytes : 0;
            parts->part[i].data = reserve(workspace, plan, layout[i].per_row ? bytes * geometry->rows : bytes);
        }
}

static hc_cuda_gemm gemm_of(const hc_view *out) {
    hc_cuda_gemm gemm = {.y = out->data};
    gemm.y_row = out->ndim > 1 ? out->strides[out->ndim - 2] : 0;
    gemm.y_column = out->strides[out->ndim - 1];
    return gemm;
}

/* The rows of `out` at one stride. */
static bool has_even_rows(const hc_view *out) {
    for (int i = out->ndim - 3; i >= 0; i--)
        if (out->shape[i] > 1 && out->strides[i] != out->strides[i + 1] * out->shape[i + 1])
            return false;
    return true;
}

/* x as float values, in the order that their number of rows and the format of w have. */
static hc_status plan_floats(const hc_view *x, const hc_packed *packed, const float *bias, const hc_view *out,
                             void *workspace, hc_cuda_plan *plan, hc_error *error) {
    hc_geometry geometry, rows;
    const int last = x->ndim - 1;
    hc_status status = packed_geometry(packed, &geometry, error);
    if (status == HC_OK)
        status = refuse(&packed->format, &geometry, false, error);
    if (status == HC_OK)
        status = hc_geometry_of_axes(NULL, 1, x->ndim, x->shape, 1, &last, &rows, error);
    if (status != HC_OK)
        return status;
    if (x->dtype == HC_F64 || !has_even_rows(out) || rows.columns != geometry.columns || rows.rows == 0)
        return hc_fail(error, HC_UNSUPPORTED,
                       "the CUDA kernels do not multiply arrays of these shapes or float64: use the CPU");
    const hc_cuda_gemm to = gemm_of(out);
    const hc_format_ops *ops = hc_format_find(packed->format.family);
    if (rows.rows <= GEMV_MOST) {
        const bool has_groups = ops->has_groups(&packed->format);
        hc_cuda_gemv gemv = {.format = packed->format,
                             .geometry = geometry,
                             .parts = packed->components,
                             .vectors = rows.rows,
                             .lanes = has_groups ? 16 : 8,
                             .ld = has_groups ? (int32_t)geometry.group | 1 : 9,
                             .bias = bias,
                             .y = to.y,
                             .y_row = to.y_row,
                             .y_column = to.y_column};
        hc_rows_init(&gemv.x, x, &rows, 1, &last);
        if (gemv.x.rows.n > 1 || (!has_groups && geometry.runs > 1 && geometry.padded != geometry.columns))
            return hc_fail(error, HC_UNSUPPORTED,
                           "the CUDA kernels do not multiply vectors at several strides: use the CPU");
        const int threads = (int)hc_min(MAX_THREADS, SHARED_BYTES / (gemv.ld * (int64_t)sizeof(float)) / 32 * 32);
        if (threads < 32)
            return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply groups of %lld values: use the CPU",
                           (long long)geometry.group);
        hc_cuda_step *step =
            add_step(plan, FAMILIES[packed->format.family].module, FAMILIES[packed->format.family].kernel[GEMV],
                     hc_ceil_div(geometry.rows * gemv.lanes, threads), 1, threads,
                     threads * gemv.ld * (int64_t)sizeof(float), sizeof gemv);
        step->params.gemv = gemv;
        return HC_OK;
    }
    hc_cuda_codec codec = {.format = packed->format, .geometry = geometry, .parts = packed->components};
    status = plan_chunks(&packed->format, &geometry, sizeof(float), false, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    float *decoded = reserve(workspace, plan, geometry.rows * geometry.columns * (int64_t)sizeof *decoded);
    hc_view values = {.data = decoded, .dtype = HC_F32, .ndim = 3};
    values.shape[0] = geometry.rows;
    values.shape[1] = geometry.runs;
    values.shape[2] = geometry.run_length;
    for (int i = 2, size = sizeof(float); i >= 0; i--)
        values.strides[i] = i == 2 ? size : values.strides[i + 1] * values.shape[i + 1];
    static const int axes[] = {1, 2};
    hc_rows_init(&codec.x, &values, &geometry, 2, axes);
    add_codec(plan, DECODE, &codec, sizeof(float));
    hc_cuda_sgemm sgemm = {.m = rows.rows,
                           .n = geometry.rows,
                           .k = geometry.columns,
                           .w = decoded,
                           .bias = bias,
                           .y = to.y,
                           .y_row = to.y_row,
                           .y_column = to.y_column};
    hc_rows_init(&sgemm.x, x, &rows, 1, &last);
    hc_cuda_step *step = add_step(plan, "gemm", "hc_sgemm", hc_ceil_div(sgemm.m, SGEMM_TILE),
                                  hc_ceil_div(sgemm.n, SGEMM_TILE), 256, 2 * 16 * (SGEMM_TILE + 4) * 4, sizeof sgemm);
    step->params.sgemm = sgemm;
    return HC_OK;
}

/* Rows that hc_gemm_s4 reads as they are stored: whole pieces of 16 bytes. */
static bool reads_nibbles(const hc_cuda_side *w) {
    const hc_stored_form form = hc_form_of(&w->format);
    const hc_component *codes = &w->parts.part[HC_CODES];
    const bool has_group_scales = hc_form_has_nibble_scales(&form) && w->geometry.group == 16;
    const bool has_row_scales = hc_form_has_f32_scales(&form) && w->format.group == 0;
    return hc_form_is_nibbles(&form) && (has_group_scales || has_row_scales) && w->geometry.runs == 1 &&
           w->geometry.columns % 32 == 0 && codes->row_stride % 16 == 0 && (uintptr_t)codes->data % 16 == 0;
}

static void add_nibbles(const hc_cuda_gemm *gemm, const hc_cuda_side *w, hc_cuda_plan *plan) {
    const hc_component *parts = w->parts.part, *row_scales = &parts[w->format.group ? HC_COARSE : HC_SCALES];
    const hc_cuda_gemm_s4 p = {.m = gemm->m,
                               .n = gemm->n,
                               .ld = gemm->ld,
                               .w_row_bytes = w->geometry.columns / 2,
                               .x = gemm->x,
                               .w = parts[HC_CODES].data,
                               .group_scales = w->format.group ? parts[HC_SCALES].data : NULL,
                               .w_stride = parts[HC_CODES].row_stride,
                               .group_scales_stride = parts[HC_SCALES].row_stride,
                               .w_scales_stride = row_scales->row_stride,
                               .x_scales = gemm->x_scales,
                               .bias = gemm->bias,
                               .w_scales = (const char *)row_scales->data,
                               .y = gemm->y,
                               .y_row = gemm->y_row,
                               .y_column = gemm->y_column};
    static const struct {
        const char *kernel;
        int rows, stages;
    } TILES[] = {{"hc_gemm_s4_16", 16, 4}, {"hc_gemm_s4_32", 32, 3}, {"hc_gemm_s4_64", 64, 2}};
    const int tile = p.m <= 16 ? 0 : p.m <= 32 ? 1 : 2, threads = 256, columns = 32;
    const int stage_bytes = TILES[tile].rows * (NIBBLES_STEP + 16) + threads * 16;
    hc_cuda_step *step =
        add_step(plan, "gemm_s4", TILES[tile].kernel, hc_ceil_div(p.m, TILES[tile].rows), hc_ceil_div(p.n, columns),
                 threads, hc_max(stage_bytes * TILES[tile].stages, threads * TILES[tile].rows), sizeof p);
    step->params.gemm_s4 = p;
}

hc_status hc_cuda_plan_matmul(const hc_operand *x, const hc_format *activations, const hc_packed *packed,
                              const float *bias, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                              hc_error *error) {
    plan->n = 0;
    plan->workspace_bytes = 0;
    if (x->dense && !activations)
        return plan_floats(x->dense, packed, bias, out, workspace, plan, error);
    hc_cuda_side a = {.format = x->packed ? x->packed->format : *activations}, w = {.format = packed->format};
    const int last = x->dense ? x->dense->ndim - 1 : 0;
    hc_status status = packed_geometry(packed, &w.geometry, error);
    if (status == HC_OK)
        status = x->packed
                     ? packed_geometry(x->packed, &a.geometry, error)
                     : hc_format_geometry(activations, x->dense->ndim, x->dense->shape, 1, &last, &a.geometry, error);
    if (status == HC_OK)
        status = load_side(&a, error);
    if (status == HC_OK)
        status = load_side(&w, error);
    if (status != HC_OK)
        return status;
    w.parts = packed->components;
    const hc_int_mode mode =
        a.form[HC_INT_FOLDED].available && w.form[HC_INT_FOLDED].available ? HC_INT_FOLDED : HC_INT_GROUPED;
    const int64_t group = mode == HC_INT_FOLDED ? 0 : segment_of(&a, &w);
    if (!a.form[mode].available || !w.form[mode].available)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply these two formats: use the CPU");
    if (group < 0 || a.geometry.columns != w.geometry.columns || (group && a.geometry.runs != w.geometry.runs) ||
        !has_even_rows(out))
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply arrays of these shapes: use the CPU");
    const int64_t columns = group ? group : a.geometry.columns;
    const int x_limbs = a.form[mode].n_limbs, w_limbs = w.form[mode].n_limbs;
    const int64_t most = (int64_t)a.form[mode].max_abs * w.form[mode].max_abs;
    if (columns > INT64_MAX / most)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not add %lld products in 64 bits: use the CPU",
                       (long long)columns);
    const bool is_wide = x_limbs > 1 || w_limbs > 1 || columns > INT32_MAX / most;
    const int64_t segments = group ? w.geometry.runs * hc_ceil_div(w.geometry.run_length, group) : 1;
    hc_cuda_gemm gemm = gemm_of(out);
    gemm.m = a.geometry.rows;
    gemm.n = w.geometry.rows;
    gemm.mode = mode;
    gemm.segments = segments;
    gemm.length = (int32_t)hc_round_up(columns, K_BYTES);
    const bool is_packed = mode == HC_INT_FOLDED && !is_wide && gemm.m <= NIBBLES_MOST && reads_nibbles(&w);
    gemm.ld = hc_round_up(segments * gemm.length, is_packed ? NIBBLES_STEP : STEP_BYTES);
    gemm.bias = bias;
    gemm.x_limbs = x_limbs;
    gemm.w_limbs = w_limbs;
    hc_cuda_state *state = reserve(workspace, plan, sizeof *state);
    uint32_t *row_maxima = reserve(workspace, plan, gemm.m * (int64_t)sizeof *row_maxima);
    int8_t *x_integers = reserve(workspace, plan, x_limbs * gemm.m * gemm.ld);
    int8_t *w_integers = reserve(workspace, plan, is_packed ? 0 : w_limbs * gemm.n * gemm.ld);
    add_clear(plan, state, plan->workspace_bytes);
    float *x_scales = reserve(workspace, plan, gemm.m * segments * (int64_t)sizeof(float));
    float *w_scales = reserve(workspace, plan, gemm.n * segments * (int64_t)sizeof(float));
    gemm.x = x_integers;
    gemm.w = w_integers;
    gemm.x_scales = x_scales;
    gemm.w_scales = w_scales;
    if (x->packed) {
        a.parts = x->packed->components;
    } else {
        reserve_parts(&a.format, &a.geometry, workspace, plan, &a.parts);
        status = add_quantize(x->dense, NULL, &a.format, &a.geometry, 1, &last, &a.parts, NULL, state, row_maxima, plan,
                              error);
    }
    if (status == HC_OK)
        status = add_integers(&a, mode, group, is_packed, x_integers, x_scales, plan, error);
    if (status == HC_OK && is_packed) {
        add_nibbles(&gemm, &w, plan);
        return HC_OK;
    }
    if (status == HC_OK)
        status = add_integers(&w, mode, group, false, w_integers, w_scales, plan, error);
    if (status != HC_OK)
        return status;
    static const struct {
        const char *kernel[HC_INT_GROUPED + 1];
        int rows, columns, threads, stages; /* wide: one stage of all limbs */
    } TILES[] = {{{"hc_gemm_s8_16_folded", "hc_gemm_s8_16_grouped"}, 16, 128, 128, 3},
                 {{"hc_gemm_s8_64_folded", "hc_gemm_s8_64_grouped"}, 64, 64, 128, 3},
                 {{"hc_gemm_s8_128_folded", "hc_gemm_s8_128_grouped"}, 128, 128, 256, 2},
                 {{"hc_gemm_wide_folded", "hc_gemm_wide_grouped"}, 16, 32, 128, 1}};
    const int tile = is_wide ? 3 : gemm.m <= 16 ? 0 : gemm.m < 128 ? 1 : 2;
    hc_cuda_step *step = add_step(
        plan, "gemm", TILES[tile].kernel[mode], hc_ceil_div(gemm.m, TILES[tile].rows),
        hc_ceil_div(gemm.n, TILES[tile].columns), TILES[tile].threads,
        (x_limbs * TILES[tile].rows + w_limbs * TILES[tile].columns) * PITCH * TILES[tile].stages, sizeof gemm);
    step->params.gemm = gemm;
    return HC_OK;
}
