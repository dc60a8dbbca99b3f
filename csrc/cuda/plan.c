/* Steps of the codec: which kernels, how many threads, what memory (cuda/hc_cuda.h). No step depends on a value. */
#include "cuda/formats/families.h"
#include "cuda/steps.h"

#include "base/layout.h"
#include "formats/format.h"
#include "ops/codec/clip.h"
#include "ops/codec/rows.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 256, CLEAR_BLOCKS = 1024, CLIP_THREADS = 128 };
enum { WHOLE_ROWS_THREADS = 256 /* of the kernels that encode */ };

hc_cuda_step *hc_cuda_add_step(hc_cuda_plan *plan, const char *module, const char *kernel, int64_t x, int64_t y,
                               int threads, int64_t shared_bytes, int64_t params_bytes) {
    HC_ASSERT(plan->n < HC_CUDA_MAX_STEPS);
    hc_cuda_step *step = &plan->step[plan->n++];
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

void hc_cuda_begin(hc_cuda_plan *plan, void *workspace) {
    plan->n = 0;
    plan->workspace_bytes = 0;
    plan->workspace = workspace;
}

void *hc_cuda_reserve(hc_cuda_plan *plan, int64_t bytes) {
    const int64_t at = plan->workspace_bytes;
    plan->workspace_bytes += hc_round_up(bytes, ALIGNMENT);
    return plan->workspace ? (char *)plan->workspace + at : NULL;
}

void hc_cuda_add_clear(hc_cuda_plan *plan, void *data, int64_t bytes) {
    hc_cuda_step *step = hc_cuda_add_step(plan, "gemm", "hc_clear", hc_min(hc_ceil_div(bytes, 16 * 256), CLEAR_BLOCKS),
                                          1, 256, 0, sizeof step->params.clear);
    step->params.clear = (hc_cuda_clear){data, bytes};
}

void *hc_cuda_add_table(hc_cuda_plan *plan, const void *from, int64_t bytes) {
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "training", "hc_table", 1, 1, HC_CUDA_NUMBERS, 0, sizeof step->params.table);
    hc_cuda_table *table = &step->params.table;
    memset(table, 0, sizeof *table);
    memcpy(table->value, from, (size_t)bytes);
    table->to = hc_cuda_reserve(plan, bytes);
    table->n = bytes / (int64_t)sizeof *table->value;
    return table->to;
}

static void add_codec(hc_cuda_plan *plan, const char *module, const char *kernel, hc_cuda_codec *codec, int size) {
    hc_cuda_chunks *chunks = &codec->chunks;
    const hc_geometry *g = &codec->geometry;
    chunks->flat =
        (hc_cuda_is_flat(chunks, g, &codec->x) ? HC_FLAT_X : 0) |
        (codec->y.data && codec->x.dtype != HC_F64 && hc_cuda_is_flat(chunks, g, &codec->y) ? HC_FLAT_Y : 0) |
        (hc_cuda_has_flat_parts(chunks, &codec->geometry, &codec->parts) ? HC_FLAT_PARTS : 0);
    const int threads = chunks->rows ? (int)hc_round_up(chunks->threads, HC_WARP) : chunks->threads; /* whole teams */
    hc_cuda_step *step =
        hc_cuda_add_step(plan, module, kernel, hc_ceil_div(chunks->all, chunks->threads), 1, threads,
                         hc_cuda_shared_bytes(chunks, size) + chunks->rows * (int64_t)sizeof(uint32_t), sizeof *codec);
    step->params.codec = *codec;
}

static const char *lacks(const hc_format *format, const hc_geometry *geometry, bool encodes) {
    const hc_format_ops *ops = hc_format_find(format->family);
    const hc_stored_form form = hc_form_of(format);
    if (!hc_cuda_kernel_of(format, HC_CUDA_DECODE).name)
        return form.codes == HC_CODES_LEARNED    ? "learned codebooks"
               : format->family == FAMILY_affine ? "affine integers"
                                                 : "formats of this family";
    if (format->m > 0)
        return "patterns";
    if (geometry->rows == 0 || geometry->padded == 0)
        return "arrays without a value";
    if (geometry->padded > UINT32_MAX || geometry->whole_columns > UINT32_MAX) /* HC_ROW_QUOTIENT */
        return "rows of 2^32 values or more";
    if (!encodes)
        return NULL;
    if (!hc_cuda_kernel_of(format, HC_CUDA_ENCODE).name)
        return "formats that a sentence defines";
    if (ops->shared && ops->shared(format, geometry) > 0)
        return "scales that are quantized twice";
    if (ops->weighs && ops->weighs(format))
        return "blocks whose scales are searched";
    if (form.has_zero_points && format->group == 0)
        return "zero points of whole rows";
    return NULL;
}

hc_status hc_cuda_refuse(const hc_format *format, const hc_geometry *geometry, bool encodes, hc_error *error) {
    const char *what = lacks(format, geometry, encodes);
    return what ? hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not %s %s: use the CPU",
                          encodes ? "encode" : "decode", what)
                : HC_OK;
}

/* Values of the whole row or array that encoding a chunk needs. */
typedef enum { NOTHING, ROW_MAXIMA, ARRAY_MAXIMUM } hc_cuda_need;
static hc_cuda_need need_of(const hc_format *format, bool has_thresholds) {
    const hc_stored_form form = hc_form_of(format);
    if (hc_passes(format) > 0)
        return ARRAY_MAXIMUM;
    if (form.second == HC_SECOND_ROW)
        return ROW_MAXIMA;
    return format->group == 0 && form.scale != HC_SCALE_NONE && !has_thresholds ? ROW_MAXIMA : NOTHING;
}

/* Gives a block whole rows where they fit: as many as fit in HC_CUDA_MAX_THREADS, or one. */
static void take_whole_rows(hc_cuda_chunks *chunks, int size) {
    const int64_t each = (int64_t)chunks->ld * size + chunks->own_bytes;
    const int64_t fit = hc_min(WHOLE_ROWS_THREADS, (HC_CUDA_SHARED_BYTES - 16) / each);
    const int64_t rows = hc_max(HC_CUDA_MAX_THREADS / chunks->per_row, 1), threads = rows * chunks->per_row;
    if (threads > fit || threads * each + rows * (int64_t)sizeof(uint32_t) > HC_CUDA_SHARED_BYTES - 16)
        return;
    chunks->rows = (int32_t)rows;
    chunks->threads = (int32_t)threads;
}

static int size_of(const hc_view *view) { return view->dtype == HC_F64 ? 8 : 4; }

/* Formats whose parameters a kernel knows. */
static const struct {
    hc_format format;
    int32_t mode; /* of its integers */
    const char *encodes, *decodes;
} KNOWN[] = {
#define HC_KNOWN(name, family, bits, group, first, second, third, scale_bytes, mode)                                   \
    {{FAMILY_##family, bits, group, {first, second, third}, 0, 0},                                                     \
     mode,                                                                                                             \
     "hc_encode_known_" #name,                                                                                         \
     "hc_decode_known_" #name},
#include "cuda/formats/known.def"
#undef HC_KNOWN
};

/* True if rows of integers consist of whole pieces of the chunks of a known format, one behind the other. */
static bool has_whole_pieces(const hc_cuda_codec *codec, int32_t mode) {
    const hc_cuda_integer_rows *to = &codec->to;
    const hc_geometry *g = &codec->geometry;
    if (to->n_limbs > 1 || to->ld % 16)
        return false;
    if (to->mode == HC_INT_FOLDED)
        return mode == HC_INT_FOLDED && (to->per_run == 0 || to->length == g->whole_length);
    if (to->per_run == 0 || (g->runs > 1 && g->whole_length % to->group))
        return false;
    return mode == HC_INT_GROUPED
               ? to->group == g->group && to->length % 16 == 0
               : codec->format.group == 0 && to->group == to->length && to->group % HC_CUDA_KNOWN_COLUMNS == 0;
}

/* Gives a step to a kernel that knows the format, if one takes what is read and written; its chunks, then. */
static const char *known_kernel_of(hc_cuda_codec *codec, bool encodes, bool is_fake) {
    const hc_geometry *g = &codec->geometry;
    hc_cuda_chunks *chunks = &codec->chunks;
    const bool has_parts = !is_fake && !codec->to.n_limbs;
    const int halves =
        chunks->columns == 2 * HC_CUDA_KNOWN_COLUMNS ? 2 : 1; /* of a group that has a chunk of its own */
    if (chunks->columns != halves * HC_CUDA_KNOWN_COLUMNS || (codec->format.group > g->group) ||
        g->padded % chunks->columns || !hc_cuda_is_flat(chunks, g, &codec->x) ||
        (!encodes && codec->x.dtype != HC_F32) || (is_fake && !hc_cuda_is_flat(chunks, g, &codec->y)) ||
        (has_parts &&
         ((uintptr_t)codec->parts.part[HC_CODES].data % 16 || !hc_cuda_has_flat_parts(chunks, g, &codec->parts))))
        return NULL;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (memcmp(&codec->format, &KNOWN[i].format, sizeof codec->format) == 0 && chunks->all <= UINT32_MAX / halves &&
            (!codec->to.n_limbs || has_whole_pieces(codec, KNOWN[i].mode))) {
            chunks->columns = HC_CUDA_KNOWN_COLUMNS;
            chunks->per_row *= halves;
            chunks->all *= halves;
            chunks->threads = HC_CUDA_MAX_THREADS;
            chunks->shift = 5; /* log2 of the columns */
            chunks->ld = HC_CUDA_KNOWN_LD;
            chunks->own_bytes = halves > 1 ? 4 : 0; /* for the table of nf4 */
            return encodes ? KNOWN[i].encodes : KNOWN[i].decodes;
        }
    return NULL;
}

void hc_cuda_add_decode(hc_cuda_plan *plan, hc_cuda_codec *codec, int size) {
    codec->format = hc_cuda_stored_like(&codec->format, HC_CUDA_DECODE);
    const char *known = known_kernel_of(codec, false, false);
    const hc_cuda_entry kernel = hc_cuda_kernel_of(&codec->format, HC_CUDA_DECODE);
    codec->format = hc_cuda_add_record(&codec->format, &codec->geometry, plan);
    add_codec(plan, kernel.module, known ? known : kernel.name, codec, size);
}

/* Room for the integers of a chunk in place of its values, and for their scales. */
static void make_room(hc_cuda_codec *codec, int size) {
    hc_cuda_chunks *chunks = &codec->chunks;
    const int bytes = codec->to.n_limbs * hc_cuda_integers_ld(chunks->columns);
    chunks->ld = (int32_t)hc_max(chunks->ld, hc_ceil_div(bytes, size)) | 1;
    hc_cuda_add_own_scales(chunks, &codec->to);
    const int64_t each = (int64_t)chunks->ld * size + chunks->own_bytes;
    chunks->threads = (int32_t)hc_min(chunks->threads, (HC_CUDA_SHARED_BYTES - 16) / each);
}

hc_status hc_cuda_add_quantize(const hc_view *x, const float *thresholds, const hc_format *given,
                               const hc_geometry *geometry, int n_axes, const int *axes, const hc_cuda_result *result,
                               int64_t cleared, hc_cuda_plan *plan, hc_error *error) {
    const hc_format like = hc_cuda_stored_like(given, HC_CUDA_ENCODE), *format = &like;
    hc_cuda_codec codec = {
        .format = *format, .geometry = *geometry, .thresholds = thresholds, .illegal = plan->illegal};
    hc_status status = hc_cuda_refuse(format, geometry, true, error);
    if (status == HC_OK)
        status = hc_cuda_plan_chunks(format, geometry, size_of(x), true, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&codec.x, x, geometry, n_axes, axes);
    const hc_cuda_codec observed = codec;
    if (result->y)
        hc_rows_init(&codec.y, result->y, geometry, n_axes, axes);
    if (result->parts)
        codec.parts = *result->parts;
    if (result->to)
        codec.to = *result->to;
    const char *known = known_kernel_of(&codec, true, result->y != NULL);
    if (!known && result->to)
        make_room(&codec, size_of(x));
    const hc_cuda_need need = need_of(format, thresholds != NULL);
    if (need == ROW_MAXIMA)
        take_whole_rows(&codec.chunks, size_of(x));
    const bool has_maxima = need != NOTHING && !codec.chunks.rows;
    const int64_t begin = cleared < 0 ? plan->workspace_bytes : cleared;
    uint32_t *found = NULL;
    if (has_maxima)
        found = hc_cuda_reserve(plan, (need == ROW_MAXIMA ? geometry->rows : 1) * (int64_t)sizeof *found);
    if (plan->workspace_bytes > begin)
        hc_cuda_add_clear(plan, plan->workspace ? (char *)plan->workspace + begin : NULL,
                          plan->workspace_bytes - begin);
    if (has_maxima) {
        hc_cuda_codec maxima = observed;
        maxima.row_maxima = codec.row_maxima = need == ROW_MAXIMA ? found : NULL;
        maxima.maximum = codec.maximum = need == ROW_MAXIMA ? NULL : found;
        if (format->family != FAMILY_vsq) { /* which it is read as */
            memset(maxima.format.option, 0, sizeof maxima.format.option);
            maxima.thresholds = NULL;
        }
        add_codec(plan, "maximum", "hc_maximum", &maxima, size_of(x));
    }
    const hc_cuda_entry kernel = hc_cuda_kernel_of(format, HC_CUDA_ENCODE);
    add_codec(plan, kernel.module, known ? known : kernel.name, &codec, size_of(x));
    return HC_OK;
}

/* The step that finds the threshold of every group. */
static hc_status add_thresholds(const hc_view *x, const hc_clip *clip, const hc_format *format,
                                const hc_geometry *geometry, int n_axes, const int *axes, float *thresholds,
                                hc_cuda_plan *plan, hc_error *error) {
    const hc_clip_domain domain = hc_clip_domain_of(format);
    const int64_t teams = geometry->rows * geometry->groups,
                  blocks = hc_ceil_div(teams * HC_CUDA_CLIP_TEAM, CLIP_THREADS);
    const hc_status status = hc_clip_check(clip, format, "clip", error);
    if (status != HC_OK)
        return status;
    const bool is_whole = hc_clip_is_whole(format);
    if (is_whole || blocks > INT32_MAX)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not clip %s: use the CPU",
                       is_whole ? "a scale of the whole array" : "so many groups");
    hc_cuda_step *step = hc_cuda_add_step(plan, "thresholds", "hc_thresholds", blocks, 1, CLIP_THREADS, 0,
                                          sizeof step->params.thresholds);
    step->params.thresholds = (hc_cuda_thresholds){.geometry = *geometry,
                                                   .kind = clip->kind,
                                                   .positive = domain == HC_CLIP_POSITIVE,
                                                   .value = clip->value,
                                                   .inside = hc_clip_inside(format),
                                                   .thresholds = thresholds,
                                                   .illegal = plan->illegal};
    hc_rows_init(&step->params.thresholds.x, x, geometry, n_axes, axes);
    return HC_OK;
}

static hc_status plan_rounding(const hc_view *x, const hc_cuda_clip *clip, const hc_format *format, int n_axes,
                               const int *axes, const hc_cuda_result *result, hc_cuda_plan *plan, hc_error *error) {
    hc_geometry geometry;
    hc_status status = hc_format_geometry(format, x->ndim, x->shape, n_axes, axes, &geometry, error);
    if (status == HC_OK)
        status = hc_cuda_refuse(format, &geometry, true, error);
    if (status != HC_OK)
        return status;
    float *thresholds = NULL;
    if (clip && clip->clip.kind != HC_CLIP_ABSMAX) {
        const int64_t bytes = geometry.rows * geometry.groups * (int64_t)sizeof *thresholds;
        thresholds = hc_cuda_reserve(plan, bytes);
        status = add_thresholds(x, &clip->clip, format, &geometry, n_axes, axes, thresholds, plan, error);
        if (status != HC_OK)
            return status;
    }
    if (clip && clip->note.kind != HC_NOTE_NONE)
        status = hc_cuda_add_note(x, &clip->note, thresholds, format, &geometry, n_axes, axes, plan, error);
    if (status != HC_OK)
        return status;
    return hc_cuda_add_quantize(x, thresholds, format, &geometry, n_axes, axes, result, -1, plan, error);
}

hc_status hc_cuda_plan_quantize(const hc_view *x, const hc_cuda_clip *clip, const hc_packed *packed, void *workspace,
                                hc_cuda_plan *plan, hc_error *error) {
    const hc_cuda_result result = {.parts = &packed->components};
    hc_cuda_begin(plan, workspace);
    return plan_rounding(x, clip, &packed->format, packed->n_axes, packed->axes, &result, plan, error);
}

hc_status hc_cuda_plan_fake_quantize(const hc_view *x, const hc_cuda_clip *clip, const hc_format *format, int n_axes,
                                     const int *axes, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                                     hc_error *error) {
    const hc_cuda_result result = {.y = out};
    hc_cuda_begin(plan, workspace);
    return plan_rounding(x, clip, format, n_axes, axes, &result, plan, error);
}

hc_status hc_cuda_packed_geometry(const hc_packed *packed, hc_geometry *geometry, hc_error *error) {
    return hc_format_geometry(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes, geometry,
                              error);
}

hc_status hc_cuda_add_decode_kept(const hc_packed *packed, const hc_geometry *geometry, float between,
                                  const hc_view *out, int n_axes, const int *axes, hc_cuda_plan *plan,
                                  hc_error *error) {
    hc_format whole = packed->format; /* without its pattern */
    whole.n = whole.m = 0;
    hc_geometry all;
    const void *values = NULL;
    hc_status status = hc_cuda_refuse(&whole, geometry, false, error);
    if (status == HC_OK)
        status = hc_geometry_of_axes(NULL, 1, out->ndim, out->shape, n_axes, axes, &all, error);
    if (status == HC_OK)
        status = hc_cuda_decode_rows(packed, geometry, out->dtype, plan, &values, error);
    if (status != HC_OK)
        return status;
    const int64_t blocks = geometry->rows * geometry->runs * hc_ceil_div(all.run_length, packed->format.m);
    const int threads = HC_CUDA_MAX_THREADS;
    if (hc_ceil_div(blocks, threads) > INT32_MAX)
        return hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not decode %lld blocks: use the CPU",
                       (long long)blocks);
    hc_cuda_step *step = hc_cuda_add_step(plan, "patterns", "hc_expand", hc_ceil_div(blocks, threads), 1, threads, 0,
                                          sizeof step->params.expand);
    step->params.expand = (hc_cuda_expand){.format = packed->format,
                                           .geometry = *geometry,
                                           .metadata = packed->components.part[HC_METADATA],
                                           .values = values,
                                           .between = between};
    hc_row_view *x = &step->params.expand.x;
    hc_rows_init(x, out, &all, n_axes, axes);
    bool has_fours = packed->format.m == 4 && geometry->runs == 1 && all.run_length % 4 == 0 && x->dtype == HC_F32 &&
                     x->column_stride == sizeof(float) && (uintptr_t)x->data % 16 == 0 &&
                     blocks <= UINT32_MAX - threads;
    for (int i = 0; i < x->rows.n; i++)
        has_fours = has_fours && x->rows.stride[i] % 16 == 0;
    step->params.expand.has_fours = has_fours;
    return HC_OK;
}

hc_status hc_cuda_plan_dequantize(const hc_packed *packed, float between, const hc_view *out, void *workspace,
                                  hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_codec codec = {.format = packed->format, .parts = packed->components};
    hc_cuda_begin(plan, workspace);
    hc_status status = hc_cuda_packed_geometry(packed, &codec.geometry, error);
    if (status == HC_OK && packed->format.m > 0)
        return hc_cuda_add_decode_kept(packed, &codec.geometry, between, out, packed->n_axes, packed->axes, plan,
                                       error);
    if (status == HC_OK)
        status = hc_cuda_refuse(&packed->format, &codec.geometry, false, error);
    if (status == HC_OK)
        status = hc_cuda_plan_chunks(&packed->format, &codec.geometry, size_of(out), true, &codec.chunks, error);
    if (status != HC_OK)
        return status;
    hc_rows_init(&codec.x, out, &codec.geometry, packed->n_axes, packed->axes);
    hc_cuda_add_decode(plan, &codec, size_of(out));
    return HC_OK;
}

hc_status hc_cuda_plan_prune(const hc_view *x, int n, int m, int n_axes, const int *axes, float *values,
                             uint8_t *metadata, hc_cuda_plan *plan, hc_error *error) {
    hc_cuda_prune p = {.n = n, .m = m, .values = values, .metadata = metadata};
    hc_cuda_begin(plan, NULL);
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
    const int64_t each = hc_max(p.chunks.ld, HC_CUDA_KNOWN_LD) * (int64_t)sizeof(float);
    p.chunks.threads = (int32_t)hc_min(HC_CUDA_MAX_THREADS, HC_CUDA_SHARED_BYTES / each / HC_WARP * HC_WARP);
    p.illegal = plan->illegal;
    hc_rows_init(&p.x, x, g, n_axes, axes);
    if (g->groups % 8 == 0 && (m & (m - 1)) == 0)
        while (p.chunks.columns >> (p.chunks.shift + 1))
            p.chunks.shift++;
    const bool is_whole = n == 2 && m == 4 && hc_cuda_is_flat(&p.chunks, g, &p.x) && (uintptr_t)values % 16 == 0 &&
                          (uintptr_t)metadata % 4 == 0;
    if (is_whole)
        p.chunks.ld = HC_CUDA_KNOWN_LD;
    hc_cuda_step *step = hc_cuda_add_step(plan, "prune", is_whole ? "hc_prune_2_of_4" : "hc_prune",
                                          hc_ceil_div(p.chunks.all, p.chunks.threads), 1, p.chunks.threads,
                                          p.chunks.threads * each, sizeof p);
    step->params.prune = p;
    return HC_OK;
}
