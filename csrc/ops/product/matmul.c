/* The CPU's route: out = a @ b, either side dense or packed. Both sides become rows over k (product.h): the dense or
 * left side gives the rows of the result, the packed or right side its columns. Leading dimensions that only one side
 * has are further rows. Leading dimensions that both sides or a packed side have are walked one matrix at a time.
 *
 * Memory: activations are quantized in blocks of ACTIVATION_BYTES; each path bounds its own memory.
 */
#include "ops/check.h"
#include "ops/codec/encoder.h"
#include "ops/product/operand.h"
#include "ops/product/sparse.h"
#include "ops/route/route.h"

#include <string.h>

enum { ACTIVATION_BYTES = 8 << 20, NEAR_BYTES = 512 << 10 };
_Static_assert((int)HC_N_PATHS <= (int)HC_MAX_CANDIDATES, "hc_explain has room for every path");

/* One side of the product of two matrices. */
typedef struct {
    const hc_view *dense;
    const hc_packed *packed;
    const hc_geometry *geometry;
    int64_t first_row, rows; /* packed: in packed rows; dense: in rows of the view's own C order */
    hc_rows view_rows;       /* dense: addresses of these rows */
    int64_t columns, column_stride;
} hc_matrix;

static hc_rows rows_from(const hc_rows *rows, int64_t first, int64_t count) {
    hc_rows part = *rows;
    part.first += first;
    part.rows = count;
    return part;
}

static void packed_context(const hc_run *run, const hc_matrix *side, hc_packed_context *context) {
    *context = (hc_packed_context){.run = run,
                                   .format = &side->packed->format,
                                   .geometry = side->geometry,
                                   .components = &side->packed->components,
                                   .first_row = side->first_row};
}

static hc_dense_context dense_context(const hc_matrix *side) {
    return (hc_dense_context){.rows = side->view_rows,
                              .dtype = side->dense->dtype,
                              .n_column_dims = 1,
                              .column_shape = {side->columns},
                              .column_stride = {side->column_stride}};
}

/* Computes the product. If a plan is asked for, returns the plan of the first product that is not empty instead. */
static hc_status multiply(const hc_product *product, hc_plan *asked, hc_error *error) {
    if (!asked)
        return hc_multiply(product, error);
    const bool is_empty = product->x->rows == 0 || product->w->rows == 0 || product->x->columns == 0;
    return is_empty || asked->path ? HC_OK : hc_plan_product(product, true, asked, error);
}

/* Whether rows of floats are multiplied in the order of few vectors. No other function decides this by the number of
 * rows. */
static bool sums_as_few(const hc_run *run, int64_t rows, const hc_matrix *w) {
    return (run->one_order || rows <= HC_GEMV_MOST) && !hc_sums_of_codes_overflow(&w->packed->format);
}

/* The number of rows of floats that are multiplied together: as many as stay in the near caches. */
static int64_t rows_at_once(const hc_product *floats, int64_t ld) {
    if (floats->w->sparse)
        return HC_GEMV_MOST;
    return hc_max(HC_GEMV_MOST, hc_min(HC_GEMV_BLOCK, NEAR_BYTES / (ld * (int64_t)sizeof(float)) / 4 * 4));
}

/* Rows of floats in the order of few vectors, a block of them at a time. */
static hc_status few_times_packed(const hc_product *floats, hc_plan *asked, hc_error *error) {
    hc_product product = *floats;
    const hc_source *x = floats->x;
    const int64_t ld = hc_round_up(hc_max(x->columns, 1), 16), most = hc_min(x->rows, rows_at_once(floats, ld));
    float *values = hc_alloc_aligned(most * ld * (int64_t)sizeof *values);
    if (!values)
        return hc_fail(error, HC_MEMORY, "matmul: not enough memory for %lld vectors", (long long)most);
    product.order = HC_ORDER_GEMV;
    product.vectors = values;
    product.ld_vectors = ld;
    hc_status status = HC_OK;
    for (int64_t row = 0; status == HC_OK && row < x->rows; row += most) {
        const int64_t rows = hc_min(most, x->rows - row);
        const hc_dense_context block = {.rows = {.data = (char *)values,
                                                 .n_dims = 1,
                                                 .shape = {rows},
                                                 .stride = {ld * (int64_t)sizeof *values},
                                                 .rows = rows},
                                        .dtype = HC_F32,
                                        .n_column_dims = 1,
                                        .column_shape = {x->columns},
                                        .column_stride = {sizeof *values}};
        hc_source some;
        hc_dense_source(&some, &block);
        product.x = &some;
        product.out = rows_from(&floats->out, row, rows);
        x->floats(x, row, rows, 0, x->columns, values, ld);
        status = multiply(&product, asked, error);
    }
    hc_free_aligned(values);
    return status;
}

static hc_status dense_times_packed(const hc_run *run, const hc_matrix *x, const hc_matrix *w, const hc_rows *out,
                                    hc_plan *asked, hc_error *error) {
    const hc_dense_context dense = dense_context(x);
    hc_packed_context packed;
    hc_source x_source, w_source;
    hc_dense_source(&x_source, &dense);
    packed_context(run, w, &packed);
    hc_packed_source(&w_source, &packed, w->rows);
    hc_product product = {.run = run, .order = HC_ORDER_CHAIN, .x = &x_source, .w = &w_source, .w_packed = &packed};
    product.out = *out;
    return sums_as_few(run, x->rows, w) ? few_times_packed(&product, asked, error) : multiply(&product, asked, error);
}

/* few: x was rows of floats, which are multiplied as few vectors unless both sides have integers. */
static hc_status packed_times_packed(const hc_run *run, const hc_matrix *x, bool few, const hc_matrix *w,
                                     const hc_rows *out, hc_plan *asked, hc_error *error) {
    hc_packed_context x_context, w_context;
    hc_source x_source, w_source;
    packed_context(run, x, &x_context);
    packed_context(run, w, &w_context);
    hc_packed_source(&x_source, &x_context, x->rows);
    hc_packed_source(&w_source, &w_context, w->rows);
    if (w->first_row == 0 && w->rows == w->geometry->rows)
        w_source.prepacked = w->packed->prepacked;
    hc_product product = {.run = run,
                          .order = hc_order_of(&x_source, &w_source),
                          .x = &x_source,
                          .w = &w_source,
                          .w_packed = &w_context,
                          .out = *out};
    if (few && product.order == HC_ORDER_CHAIN)
        return few_times_packed(&product, asked, error);
    product.x_packed = &x_context;
    return multiply(&product, asked, error);
}

/* Quantizes x a block of rows at a time. Block `first` of x is row first of the encoder. */
static hc_status quantized_times_packed(const hc_run *run, const hc_encoder *encoder, const hc_matrix *x,
                                        const hc_matrix *w, const hc_rows *out, hc_plan *asked, hc_error *error) {
    const int64_t row_bytes = hc_max(encoder->geometry.padded * hc_ceil_div(encoder->format.bits, 8), 1);
    const int64_t block = hc_min(hc_max(ACTIVATION_BYTES / row_bytes, HC_GEMV_MOST + 1), hc_max(x->rows, 1));
    hc_packed packed = {.format = encoder->format};
    hc_geometry geometry = encoder->geometry;
    hc_status status = hc_components_alloc(&packed.format, &geometry, block, &packed.components, error);
    for (int64_t row = 0; status == HC_OK && row < x->rows; row += block) {
        const int64_t rows = hc_min(block, x->rows - row);
        geometry.rows = rows;
        status = hc_encoder_rows(encoder, run, x->first_row + row, rows, &packed.components, error);
        const hc_matrix part = {.packed = &packed, .geometry = &geometry, .rows = rows, .columns = x->columns};
        const hc_rows target = rows_from(out, row, rows);
        if (status == HC_OK)
            status = packed_times_packed(run, &part, sums_as_few(run, x->rows, w), w, &target, asked, error);
    }
    hc_components_free(&packed.components);
    return status;
}

static void add_bias(const hc_view *bias, const hc_rows *rows, int64_t columns) {
    for (int64_t r = 0; r < rows->rows; r++) {
        char *row = hc_row(rows, r);
        float *restrict values = (float *)(void *)row;
        const float *restrict added = bias->data;
        const bool is_dense = rows->column_stride == sizeof(float) && bias->strides[0] == sizeof(float);
        for (int64_t c = 0; is_dense && c < columns; c++)
            values[c] += added[c];
        for (int64_t c = 0; !is_dense && c < columns; c++) {
            float *value = (float *)(row + c * rows->column_stride);
            *value += *(const float *)((const char *)bias->data + c * bias->strides[0]);
        }
    }
}

/* Dimensions of a side: those that are rows (leading ones first, then `inner`), and their strides in the dense view or
 * in out. */
static void add_dim(hc_rows *rows, int64_t shape, int64_t stride) {
    rows->shape[rows->n_dims] = shape;
    rows->stride[rows->n_dims++] = stride;
    rows->rows *= shape;
}

typedef struct {
    const hc_operand *operand;
    const hc_side *side;
    bool is_b;
    int lead; /* leading dimensions */
    int64_t inner, inner_axis, k_axis;
} hc_half;

static hc_half make_half(const hc_operand *operand, const hc_side *side, bool is_b) {
    hc_half half = {.operand = operand, .side = side, .is_b = is_b, .lead = side->ndim - 2};
    half.inner_axis = is_b ? side->ndim - 1 : side->ndim - 2;
    half.k_axis = is_b ? side->ndim - 2 : side->ndim - 1;
    half.inner = side->shape[half.inner_axis];
    return half;
}

/* The part of a side that one matrix product sees: `batch` counts over its own leading dimensions. */
static hc_matrix matrix_of(const hc_half *half, bool all_leads, int64_t batch) {
    const hc_side *side = half->side;
    hc_matrix matrix = {.dense = half->operand->dense,
                        .packed = half->operand->packed,
                        .geometry = &side->geometry,
                        .columns = side->shape[half->k_axis]};
    int64_t leads = 1;
    for (int i = 0; i < half->lead; i++)
        leads *= side->shape[i];
    matrix.rows = half->inner * (all_leads ? leads : 1);
    matrix.first_row = batch * half->inner;
    if (matrix.dense) {
        hc_rows *rows = &matrix.view_rows;
        *rows = (hc_rows){.data = matrix.dense->data, .rows = 1};
        matrix.column_stride = rows->column_stride = matrix.dense->strides[half->k_axis];
        if (all_leads) {
            for (int i = 0; i < half->lead; i++)
                add_dim(rows, side->shape[i], matrix.dense->strides[i]);
        } else {
            for (int i = half->lead - 1; i >= 0; i--) {
                rows->data += batch % side->shape[i] * matrix.dense->strides[i];
                batch /= side->shape[i];
            }
        }
        add_dim(rows, half->inner, matrix.dense->strides[half->inner_axis]);
    }
    return matrix;
}

static hc_rows rows_of(const hc_view *out) {
    const int last = out->ndim - 1;
    hc_rows rows = {.data = out->data, .rows = 1, .column_stride = out->strides[last]};
    for (int i = 0; i < last; i++)
        add_dim(&rows, out->shape[i], out->strides[i]);
    return rows;
}

void hc_add_bias(const hc_view *bias, const hc_view *out) {
    const hc_rows rows = rows_of(out);
    add_bias(bias, &rows, out->shape[out->ndim - 1]);
}

/* The result of a product over no columns: zeros plus the bias. */
static void fill_empty_product(const hc_view *bias, const hc_view *out) {
    const int last = out->ndim - 1;
    int64_t bytes = sizeof(float);
    bool is_dense = true;
    for (int i = last; i >= 0; bytes *= out->shape[i--])
        is_dense = is_dense && (out->strides[i] == bytes || out->shape[i] == 1);
    if (is_dense)
        memset(out->data, 0, (size_t)bytes);
    const hc_rows rows = rows_of(out);
    for (int64_t r = 0; !is_dense && r < rows.rows; r++)
        for (int64_t c = 0; c < out->shape[last]; c++)
            *(float *)(hc_row(&rows, r) + c * rows.column_stride) = 0;
    if (bias)
        add_bias(bias, &rows, out->shape[last]);
}

/* One of so many products of a call. */
static hc_status one_product(const hc_run *run, int64_t batches, const hc_encoder *encoder, const hc_matrix *x,
                             const hc_matrix *w, const hc_rows *out, hc_plan *asked, hc_error *error) {
    if (x->dense && w->dense) {
        const hc_dense_context a = dense_context(x), b = dense_context(w);
        hc_source a_source, b_source;
        hc_dense_source(&a_source, &a);
        hc_dense_source(&b_source, &b);
        const hc_product product = {
            .run = run, .order = HC_ORDER_CHAIN, .x = &a_source, .w = &b_source, .matrices = batches, .out = *out};
        return multiply(&product, asked, error);
    }
    if (!x->dense)
        return packed_times_packed(run, x, false, w, out, asked, error);
    return encoder ? quantized_times_packed(run, encoder, x, w, out, asked, error)
                   : dense_times_packed(run, x, w, out, asked, error);
}

static hc_status matmul(const hc_call *call, hc_plan *asked, hc_error *error) {
    const hc_run *run = call->run;
    const hc_operand *a = call->a, *b = call->b;
    const hc_format *activations = call->activations;
    const hc_view *bias = call->bias, *out = call->out;
    hc_status status = HC_OK;
    /* x gives the rows of the result: it is the dense side. If both sides are of one kind, it is a, unless only b has
     * leading dimensions. */
    const hc_half left = make_half(a, &call->sides[0], false), right = make_half(b, &call->sides[1], true);
    if (hc_values(out) == 0)
        return HC_OK; /* of any number of matrices */
    if (left.side->shape[left.k_axis] == 0) {
        if (!asked)
            fill_empty_product(bias, out);
        return HC_OK;
    }
    const bool alike = (a->packed == NULL) == (b->packed == NULL);
    const bool swap = alike ? left.lead == 0 && right.lead > 0 : b->dense != NULL;
    const hc_half *x = swap ? &right : &left, *w = swap ? &left : &right;
    const int lead = out->ndim - 2;
    int64_t batches = 1;
    for (int i = 0; i < lead; i++)
        batches *= out->shape[i];
    const bool all_leads = w->lead == 0;
    if (all_leads && batches > 0)
        batches = 1;

    hc_encoder encoder = {0};
    if (activations) {
        const int axis = (int)x->k_axis;
        hc_encoder_init(&encoder, run, "matmul: activations", "x", x->operand->dense, activations, &x->side->geometry,
                        1, &axis);
        status = hc_encoder_check_rows(&encoder, run, error);
        if (status == HC_OK)
            status = hc_encoder_observe(&encoder, run, error);
    }
    const int x_axis = swap ? lead + 1 : lead, w_axis = swap ? lead : lead + 1;
    for (int64_t batch = 0; status == HC_OK && batch < batches; batch++) {
        hc_rows target = {.data = out->data, .rows = 1, .column_stride = out->strides[w_axis]};
        int64_t x_batch = 0, w_batch = 0;
        if (all_leads) {
            for (int i = 0; i < lead; i++)
                add_dim(&target, out->shape[i], out->strides[i]);
        } else {
            int64_t rest = batch, x_step = 1, w_step = 1;
            for (int i = lead - 1; i >= 0; i--) {
                const int64_t index = rest % out->shape[i];
                rest /= out->shape[i];
                target.data += index * out->strides[i];
                const int xi = i - (lead - x->lead), wi = i - (lead - w->lead);
                if (xi >= 0) {
                    x_batch += (x->side->shape[xi] == 1 ? 0 : index) * x_step;
                    x_step *= x->side->shape[xi];
                }
                if (wi >= 0) {
                    w_batch += (w->side->shape[wi] == 1 ? 0 : index) * w_step;
                    w_step *= w->side->shape[wi];
                }
            }
        }
        add_dim(&target, out->shape[x_axis], out->strides[x_axis]);
        const hc_matrix x_matrix = matrix_of(x, all_leads, x_batch), w_matrix = matrix_of(w, false, w_batch);
        status = one_product(run, batches, activations ? &encoder : NULL, &x_matrix, &w_matrix, &target, asked, error);
    }
    if (status == HC_OK && bias)
        hc_add_bias(bias, out); /* along the columns of out, whichever side they come from */
    hc_encoder_free(&encoder);
    return status;
}

const char *hc_cpu_refuses(const hc_call *call) { return hc_elsewhere(call, HC_HOST); }

hc_status hc_cpu_run(const hc_call *call, hc_error *error) { return matmul(call, NULL, error); }

hc_status hc_cpu_plan(const hc_call *call, hc_plan *plan, hc_error *error) {
    hc_call planned = *call;
    planned.bias = NULL;
    *plan = (hc_plan){0};
    return matmul(&planned, plan, error);
}

double hc_cpu_share(const hc_call *call) {
    (void)call;
    return 1;
}

double hc_cpu_seconds(const hc_call *call) {
    if (hc_cpu_refuses(call))
        return 1;
    hc_plan plan;
    hc_error error;
    if (hc_cpu_plan(call, &plan, &error) != HC_OK || !plan.path)
        return 0;
    for (int i = 0; i < plan.n; i++)
        if (plan.candidate[i].path == plan.path)
            return plan.candidate[i].seconds;
    return 0;
}
