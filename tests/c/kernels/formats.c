/* The kernels of formats against the scalar definitions, for parameters that the format's own check accepts, so a new
 * format or option is tested without a change here. A kernel may decline a case if it writes nothing; one that always
 * declines fails. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define D PRId64

enum { N_CASES = 600, EACH = 4, TRIES = 500, MAX_ROWS = 4 };

static const hc_format_ops *ops;
static hc_error error;

static const int BITS[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32}, GROUPS[] = {0, 1, 5, 8, 16, 32, 48, 64, 128, 1040};
static const int OPTIONS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 32};
enum { N_BITS = sizeof BITS / sizeof *BITS, N_GROUPS = sizeof GROUPS / sizeof *GROUPS };
enum { N_OPTIONS = sizeof OPTIONS / sizeof *OPTIONS, MAX_FORMATS = N_BITS * N_OPTIONS * EACH };

/* Legal parameters: EACH for every bits and first option, if TRIES draws find them; the other options are small. */
static int draw_formats(int32_t family, hc_format *formats) {
    int n = 0;
    hostile_begin((uint64_t)family, false);
    for (int i = 0; i < N_BITS * N_OPTIONS; i++)
        for (int found = 0, tries = 0; found < EACH && tries < TRIES; tries++) {
            hc_format *format = formats + n;
            *format = (hc_format){.family = family, .bits = BITS[i % N_BITS], .group = GROUPS[draw_below(N_GROUPS)]};
            format->option[0] = OPTIONS[i / N_BITS];
            for (int j = 1; j < HC_N_OPTIONS; j++)
                format->option[j] = (int32_t)draw_below(4);
            const int is_legal = hc_format_legal(format, &error) == HC_OK;
            found += is_legal;
            n += is_legal;
        }
    return n;
}

/* An array of one case: rows of values, and the state before they are encoded. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_float_rows x;
    const float *thresholds;
    hc_encode_state state;
    float_kind kind;
    bool is_legal; /* according to the passes */
} array;

/* Thresholds as clip= computes them: finite magnitudes, 0 included. */
static const float *draw_thresholds(const array *a) {
    if (draw_below(3) || hc_clip_domain_of(&a->format) == HC_CLIP_NONE)
        return NULL;
    const bool is_whole = hc_clip_domain_of(&a->format) == HC_CLIP_WHOLE;
    float *thresholds = items(a->x.rows * a->geometry.groups, 4);
    for (int64_t i = 0; i < a->x.rows * a->geometry.groups; i++) {
        thresholds[i] = is_whole && i > 0 ? thresholds[0] : fabsf(draw_float(a->kind));
        thresholds[i] = thresholds[i] < INFINITY ? thresholds[i] : 1;
    }
    return thresholds;
}

/* Multiples of 1/2 over a range as wide as the integers of `bits` bits, so that a group's scale can be 1 and its codes
 * and zero points are halfway between two integers. `at`: the index in the group. */
static float draw_half(int bits, int64_t at) {
    static float low, high;
    const float n = (float)((1 << (bits < 16 ? bits : 16)) - 1);
    if (at == 0) {
        const bool is_symmetric = draw_below(2);
        low = is_symmetric ? -(n - 1) / 2 : -(float)draw_below((int64_t)n * 2) / 2;
        high = is_symmetric ? -low : low + n;
    }
    return at == 0 ? low : at == 1 ? high : low + (float)draw_below((int64_t)(2 * (high - low)) + 1) / 2;
}

/* A float64 at a float32, within the error of one, or halfway between two of them; some are beyond its range. */
static double draw_near(float_kind kind, float value) {
    static const double APART[] = {0, 0, 0, 0x1p-30, -0x1p-30, 0x1p-52, -0x1p-53, 0x1p-25, -0x1p-24, 0x1.8p-24};
    enum { N_APART = sizeof APART / sizeof *APART };
    const double near = (double)value * (1 + APART[draw_below(N_APART)]);
    if (kind == TINY && draw_below(4) == 0)
        return near * (draw_below(2) ? 0x1p-30 : 0x1p-940);
    if (kind == HUGE_ONES && draw_below(64) == 0)
        return near * (draw_below(2) ? 2 : 0x1p600);
    return near;
}

/* Rows with padded columns: the padding of groups is zero. */
static void draw_rows(array *a) {
    const hc_geometry *g = &a->geometry;
    const bool is_double = a->x.dtype == HC_F64;
    const int64_t gap = draw_below(2) * 3, rows = a->x.rows, n = rows ? (rows - 1) * (g->padded + gap) + g->padded : 0;
    float *single = is_double ? NULL : items(n, 4);
    double *wide = is_double ? items(n, 8) : NULL;
    a->x.row_stride = g->padded + gap;
    a->x.data = is_double ? (const void *)wide : single;
    const int64_t run = g->groups_per_run * g->group;
    for (int64_t i = 0; i < rows * g->padded; i++) {
        const int64_t c = i % g->padded, at = i / g->padded * a->x.row_stride + c;
        const float drawn = a->kind == TIES ? draw_half(a->format.bits, c % g->group) : draw_float(a->kind);
        const float value = g->padded != g->columns && c % run >= g->run_length ? 0.0f : drawn;
        if (is_double)
            wide[at] = draw_near(a->kind, value);
        else
            single[at] = value;
    }
}

static float *copy_of_shared(const array *a) {
    const int64_t n = ops->shared ? ops->shared(&a->format, &a->geometry) : 0;
    return n > 0 ? copy_of(a->state.shared, n, 4) : NULL;
}

/* All passes of the scalar definition. */
static void observe_all(array *a) {
    a->is_legal = true;
    for (int pass = 0; pass < hc_passes(&a->format) && a->is_legal; pass++) {
        a->is_legal = ops->observe(&a->format, &a->geometry, pass, &a->x, a->thresholds, &a->state) == HC_DONE;
        ops->finish(&a->format, pass, &a->state);
    }
}

static hc_learning learning(const array *a) { return ops->learns ? ops->learns(&a->format) : HC_LEARN_NONE; }

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* An ascending codebook, as learning makes it. */
static void draw_codebook(const array *a, float *codebook, int64_t n) {
    draw_floats(codebook, n, a->kind);
    qsort(codebook, (size_t)n, sizeof *codebook, by_value);
}

typedef hc_component_layout layouts[HC_N_COMPONENTS];

static int64_t bytes_of(const array *a, const hc_component_layout *layout) {
    return layout->present ? hc_component_bytes(layout) * (layout->per_row ? a->geometry.rows : 1) : 0;
}

static hc_components alloc_components(const array *a, const hc_components *like) {
    layouts layout = {{0}};
    hc_components components = {.first_row = 0};
    hc_format_layout(&a->format, &a->geometry, layout);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const int64_t size = layout[i].present ? hc_dtype_size(layout[i].dtype) : 1, n = bytes_of(a, layout + i) / size;
        components.part[i].data = like ? copy_of(like->part[i].data, n, size) : items(n, size);
        components.part[i].row_stride = layout[i].present && layout[i].per_row ? hc_component_bytes(layout + i) : 0;
    }
    return components;
}

static void same_components(const char *when, const array *a, const hc_components *got, const hc_components *wanted) {
    static const char *const NAMES[] = {"codes",       "scales",   "coarse", "codebook",
                                        "zero points", "metadata", "mean",   "minima"};
    _Static_assert(sizeof NAMES / sizeof *NAMES == HC_N_COMPONENTS, "a name for each component");
    layouts layout = {{0}};
    char what[64] = "";
    hc_format_layout(&a->format, &a->geometry, layout);
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        strcat(strcpy(what, NAMES[i]), when);
        same(what, U8, got->part[i].data, wanted->part[i].data, bytes_of(a, layout + i));
    }
}

/* The components that encoding needs but does not write. */
static hc_components prepare(const array *a) {
    hc_components out = alloc_components(a, NULL);
    if (learning(a) == HC_LEARN_ROW)
        for (int64_t i = 0; i < a->x.rows; i++) {
            const int64_t bytes = out.part[HC_CODEBOOK].row_stride;
            float *codebook = items(bytes / 4, 4);
            draw_codebook(a, codebook, bytes / 4);
            memcpy(hc_part(&out, HC_CODEBOOK, a->x.first_row + i), codebook, (size_t)bytes);
        }
    if (ops->share)
        ops->share(&a->format, &a->geometry, &a->state, &out);
    return out;
}

/* Returns false if the kernel declined the case. */
typedef bool test_fn(const hc_format_simd *set, array *a);

static bool test_observe(const hc_format_simd *set, array *a) {
    bool serves = false, goes_on = true;
    for (int pass = 0; pass < hc_passes(&a->format) && goes_on; pass++) {
        hc_encode_state state = a->state;
        state.shared = copy_of_shared(a);
        const int64_t done = set->observe(&a->format, &a->geometry, pass, &a->x, a->thresholds, &state);
        if (done == HC_DECLINED)
            same("maximum of what it declined", F32, &state.maximum, &a->state.maximum, 1);
        const int64_t wanted = ops->observe(&a->format, &a->geometry, pass, &a->x, a->thresholds, &a->state);
        goes_on = wanted == HC_DONE;
        if (done != HC_DECLINED) {
            serves = true;
            same("the row", I64, &done, &wanted, 1);
        }
        if (done == HC_DONE) {
            same("maximum", F32, &state.maximum, &a->state.maximum, 1);
            if (state.shared)
                same("shared", F32, state.shared, a->state.shared, ops->shared(&a->format, &a->geometry));
        }
        if (pass == 0 && done == HC_DONE)
            BENCH(ops->observe(&a->format, &a->geometry, pass, &a->x, a->thresholds, &a->state),
                  set->observe(&a->format, &a->geometry, pass, &a->x, a->thresholds, &state));
        ops->finish(&a->format, pass, &a->state);
    }
    return serves;
}

static bool test_encode(const hc_format_simd *set, array *a) {
    if (!a->is_legal)
        return false;
    hc_components wanted = prepare(a), got = alloc_components(a, &wanted);
    const int64_t done = set->encode(&a->format, &a->geometry, &a->state, &a->x, a->thresholds, &got);
    if (done == HC_DECLINED) {
        same_components(" of what it declined", a, &got, &wanted);
        return false;
    }
    const int64_t row = ops->encode(&a->format, &a->geometry, &a->state, &a->x, a->thresholds, &wanted);
    same("the row", I64, &done, &row, 1);
    if (done == HC_DONE)
        same_components("", a, &got, &wanted);
    BENCH(ops->encode(&a->format, &a->geometry, &a->state, &a->x, a->thresholds, &wanted),
          set->encode(&a->format, &a->geometry, &a->state, &a->x, a->thresholds, &got));
    return true;
}

static bool test_learn(const hc_format_simd *set, array *a) {
    const int64_t n = ops->learn_count(&a->format, &a->geometry), size = (2 << a->format.bits) * 8;
    for (int64_t i = 0; i < a->x.rows; i++) {
        float *values = items(n, 4), *wanted = items(size, 4), *got = items(size, 4);
        double *weights = draw_below(2) ? items(n, 8) : NULL;
        const int64_t count = ops->learn_values(&a->format, &a->geometry, &a->x, NULL, i, values, NULL);
        for (int64_t j = 0; weights && j < n; j++)
            weights[j] = (double)draw_below(5);
        float *again = copy_of(values, n, 4);
        double *weights_again = weights ? copy_of(weights, n, 8) : NULL;
        const int64_t lines = hc_ceil_div(ops->learn_bytes(&a->format, n, weights != NULL), HC_CACHE_LINE);
        ops->learn(&a->format, values, weights, count, items(lines, HC_CACHE_LINE), wanted);
        set->learn(&a->format, again, weights_again, count, items(lines, HC_CACHE_LINE), got);
        same("codebook", F32, got, wanted, (1 << a->format.bits) * (ops->unit ? ops->unit(&a->format) : 1));
    }
    return true;
}

/* Encoded rows, or rows of random codes, and a tile of them that starts at a multiple of 8 columns. */
static hc_components encoded(const array *a, hc_tile *tile) {
    hc_components out = prepare(a);
    ops->encode(&a->format, &a->geometry, &a->state, &a->x, a->thresholds, &out);
    if (draw_below(2))
        for (int64_t i = 0; i < out.part[HC_CODES].row_stride * a->geometry.rows; i++)
            out.part[HC_CODES].data[i] = (uint8_t)draw();
    const int64_t padded = a->geometry.padded, unit = ops->unit ? ops->unit(&a->format) : 1;
    *tile = (hc_tile){.first_row = a->x.first_row, .rows = a->x.rows, .columns = padded};
    if (draw_below(3) && padded > 0) { /* at least one unit, which can exceed 8 columns */
        tile->first_column = draw_below(padded - unit + 1) & ~(int64_t)7;
        tile->columns = (padded - tile->first_column) / unit;
        tile->columns = (draw_below(2) ? tile->columns : 1 + draw_below(tile->columns)) * unit;
    }
    return out;
}

static int64_t groups_of(const array *a, const hc_tile *tile) {
    const int64_t group = a->geometry.group, last = tile->first_column + tile->columns - 1;
    return tile->columns ? last / group - tile->first_column / group + 1 : 0;
}

static bool test_values(const hc_format_simd *set, array *a) {
    hc_tile tile;
    if (!a->is_legal)
        return false;
    const hc_components components = encoded(a, &tile);
    const int64_t ld = tile.columns + draw_below(3), n = tile.rows ? (tile.rows - 1) * ld + tile.columns : 0;
    float *wanted = items(n, 4), *got = items(n, 4);
    const bool serves = set->values(&a->format, &a->geometry, &components, &tile, got, ld) == HC_DONE;
    if (serves)
        ops->decode(&a->format, &a->geometry, &components, &tile, wanted, ld);
    same(serves ? "values" : "values of what it declined", F32, got, wanted, n);
    if (serves)
        BENCH(ops->decode(&a->format, &a->geometry, &components, &tile, wanted, ld),
              set->values(&a->format, &a->geometry, &components, &tile, got, ld));
    return serves;
}

static bool test_doubles(const hc_format_simd *set, array *a) {
    hc_tile tile;
    if (!a->is_legal)
        return false;
    const hc_components components = encoded(a, &tile);
    const int64_t ld = tile.columns + draw_below(3), n = tile.rows ? (tile.rows - 1) * ld + tile.columns : 0;
    double *wanted = items(n, 8), *got = items(n, 8);
    if (set->doubles(&a->format, &a->geometry, &components, &tile, got, ld) != HC_DONE)
        return false;
    ops->decode_f64(&a->format, &a->geometry, &components, &tile, wanted, ld);
    same("values as float64", F64, got, wanted, n);
    BENCH(ops->decode_f64(&a->format, &a->geometry, &components, &tile, wanted, ld),
          set->doubles(&a->format, &a->geometry, &components, &tile, got, ld));
    return true;
}

/* A tile of integers with space after the columns and after the groups of a row. */
typedef struct {
    hc_int_tile tile;
    int64_t n, n_scales;
} int_tile;

static int_tile alloc_integers(const hc_tile *tile, int64_t ld, int64_t groups, int64_t groups_ld, hc_int_mode mode) {
    const int64_t before = tile->rows ? tile->rows - 1 : 0, any = tile->rows > 0;
    int_tile out = {.tile = {.ld = ld, .groups_ld = groups_ld},
                    .n = any * (before * ld + tile->columns),
                    .n_scales = any * (before * groups_ld + groups)};
    for (int i = 0; i < 3; i++)
        out.tile.limb[i] = items(out.n, 1);
    if (mode == HC_INT_GROUPED)
        out.tile.group_scale = items(out.n_scales, 4);
    else
        out.tile.row_scale = items(tile->rows, 4);
    return out;
}

static bool test_integers(const hc_format_simd *set, array *a) {
    hc_tile tile;
    bool serves = false;
    if (!a->is_legal || !ops->decode_int)
        return false;
    const hc_components components = encoded(a, &tile);
    for (int m = 0; m < 2; m++) {
        const hc_int_mode mode = m ? HC_INT_GROUPED : HC_INT_FOLDED;
        hc_int_form form;
        ops->int_form(&a->format, mode, &form);
        if (!form.available)
            continue;
        const int64_t ld = tile.columns + draw_below(3), groups = groups_of(a, &tile), groups_ld = groups + 2;
        const int_tile wanted = alloc_integers(&tile, ld, groups, groups_ld, mode);
        const int_tile got = alloc_integers(&tile, ld, groups, groups_ld, mode);
        const int64_t done = set->integers(&a->format, &a->geometry, &components, &tile, mode, &got.tile);
        serves = serves || done == HC_DONE;
        if (done == HC_DONE)
            ops->decode_int(&a->format, &a->geometry, &components, &tile, mode, &wanted.tile);
        for (int i = 0; i < 3; i++)
            same("limb", I8, got.tile.limb[i], wanted.tile.limb[i], wanted.n);
        if (mode == HC_INT_GROUPED)
            same("scales of groups", F32, got.tile.group_scale, wanted.tile.group_scale, wanted.n_scales);
        else
            same("scales of rows", F32, got.tile.row_scale, wanted.tile.row_scale, tile.rows);
        if (done == HC_DONE)
            BENCH(ops->decode_int(&a->format, &a->geometry, &components, &tile, mode, &wanted.tile),
                  set->integers(&a->format, &a->geometry, &components, &tile, mode, &got.tile));
    }
    return serves;
}

static hc_code_tile alloc_codes(const hc_tile *tile, int64_t ld, int64_t scales_ld) {
    return (hc_code_tile){.codes = items(tile->rows * ld, 4),
                          .codes_ld = ld,
                          .scales = items(tile->rows * scales_ld, 4),
                          .scales_ld = scales_ld,
                          .row_scale = items(tile->rows, 4)};
}

static bool test_codes(const hc_format_simd *set, array *a) {
    hc_tile tile;
    if (!a->is_legal)
        return false;
    const hc_components components = encoded(a, &tile);
    const int64_t ld = tile.columns + draw_below(3), scales_ld = groups_of(a, &tile) + draw_below(3);
    const hc_code_tile wanted = alloc_codes(&tile, ld, scales_ld), got = alloc_codes(&tile, ld, scales_ld);
    const bool serves = set->codes(&a->format, &a->geometry, &components, &tile, &got) == HC_DONE;
    if (serves)
        ops->decode_codes(&a->format, &a->geometry, &components, &tile, &wanted);
    same("codes", F32, got.codes, wanted.codes, tile.rows * ld);
    same("scales", F32, got.scales, wanted.scales, tile.rows * scales_ld);
    same("scales of rows", F32, got.row_scale, wanted.row_scale, tile.rows);
    if (serves)
        BENCH(ops->decode_codes(&a->format, &a->geometry, &components, &tile, &wanted),
              set->codes(&a->format, &a->geometry, &components, &tile, &got));
    return serves;
}

/* One float for each group of a row. */
static bool test_floats(hc_row_floats_fn *fn, hc_row_floats_fn *definition, const array *a) {
    hc_tile tile;
    if (!a->is_legal || !definition)
        return false;
    const hc_components components = encoded(a, &tile);
    for (int64_t i = 0; i < tile.rows; i++) {
        float *wanted = items(a->geometry.groups, 4), *got = items(a->geometry.groups, 4);
        definition(&a->format, &a->geometry, &components, tile.first_row + i, wanted);
        fn(&a->format, &a->geometry, &components, tile.first_row + i, got);
        same("floats of groups", F32, got, wanted, a->geometry.groups);
        BENCH(definition(&a->format, &a->geometry, &components, tile.first_row + i, wanted),
              fn(&a->format, &a->geometry, &components, tile.first_row + i, got));
    }
    return tile.rows > 0;
}

static bool test_scales(const hc_format_simd *set, array *a) {
    const hc_stored_form form = hc_form_of(&a->format);
    return test_floats(set->scales, hc_form_has_row_scales(&form) ? form.row_scales : NULL, a);
}

static bool test_minima(const hc_format_simd *set, array *a) {
    hc_int_form form;
    ops->int_form(&a->format, HC_INT_GROUPED, &form);
    return test_floats(set->minima, form.has_minima ? ops->minima : NULL, a);
}

static float_kind kind_of(uint64_t any) { return (float_kind)((any >> 40) % N_FLOAT_KINDS); }

/* Returns how many values the kernel computed. */
static int64_t run_case(test_fn *test, const hc_format_simd *set, const hc_format *format, uint64_t any) {
    static const int64_t LENGTHS[] = {16, 64, 1, 128, 31, 200, 256, 7, 130, 1088, 17, 48, 15, 96, 2304, 65, 0};
    enum { N_LENGTHS = sizeof LENGTHS / sizeof *LENGTHS };
    const int64_t runs = any % 5 == 4 ? 3 : 1, length = LENGTHS[any / 5 % N_LENGTHS];
    const int64_t first = any >> 20 & 1, rows = (int64_t)(any >> 22) % MAX_ROWS + (any >> 24 & 1);
    const int64_t shape[3] = {first + rows, runs, length};
    const bool is_double = (any >> 30) % 2 == 1;
    const int axes[2] = {1, 2};
    array a = {.format = *format, .kind = kind_of(any)};
    const int32_t *o = format->option;
    begin("%d bits, group %d, options %d %d %d %d %d %d, %" D " rows of %" D " x %" D " %s, %s", format->bits,
          format->group, o[0], o[1], o[2], o[3], o[4], o[5], rows, runs, length, is_double ? "float64" : "float32",
          float_kind_name(a.kind));
    if (hc_format_geometry(format, 3, shape, 2, axes, &a.geometry, &error) != HC_OK)
        return 0;
    if (a.kind == SPECIAL && learning(&a) != HC_LEARN_NONE) /* illegal values are refused before learning */
        a.kind = PLAIN;
    if (a.geometry.padded == 0)
        return 0;
    const int64_t shared = ops->shared ? ops->shared(format, &a.geometry) : 0;
    a.state.geometry = &a.geometry;
    a.state.shared = shared > 0 ? memset(items(shared, 4), 0, (size_t)shared * 4) : NULL;
    a.x = (hc_float_rows){.dtype = is_double ? HC_F64 : HC_F32, .first_row = first, .rows = rows};
    draw_rows(&a);
    a.thresholds = draw_thresholds(&a);
    if (test != test_observe)
        observe_all(&a);
    if (learning(&a) == HC_LEARN_TENSOR)
        draw_codebook(&a, a.state.shared, shared);
    return test(set, &a) ? a.x.rows * a.geometry.padded : 0;
}

bool check_format_kernel(const char *kind, const char *name, const hc_format_simd *set) {
    static const struct {
        const char *kind;
        test_fn *test;
    } TESTS[] = {{"observe", test_observe}, {"encode", test_encode},     {"values", test_values},
                 {"doubles", test_doubles}, {"integers", test_integers}, {"codes", test_codes},
                 {"learn", test_learn},     {"scales", test_scales},     {"minima", test_minima}};
    int32_t family = 0;
    int64_t most = 0, most_usual = 0;
    int i = 0, largest = 0;
    while ((ops = hc_format_find(family)) && strcmp(ops->name, name) != 0)
        family++;
    while (i < (int)(sizeof TESTS / sizeof *TESTS) && strcmp(TESTS[i].kind, kind) != 0)
        i++;
    if (!ops || i == (int)(sizeof TESTS / sizeof *TESTS))
        return false;
    static hc_format formats[MAX_FORMATS + 1];
    const int n_formats = draw_formats(family, formats);
    for (int j = 0; j <= N_CASES && n_formats > 0; j++) { /* the last case repeats the largest, for the times */
        if (j == N_CASES)
            usual();
        hostile_begin((uint64_t)(j == N_CASES ? largest : j), false);
        const uint64_t any = draw() >> 1;
        const int64_t n = run_case(TESTS[i].test, set, &formats[draw_below(n_formats)], any);
        most = hc_max(most, n);
        if (n > most_usual && kind_of(any) == PLAIN) {
            most_usual = n;
            largest = j;
        }
    }
    if (most == 0)
        fail("it declines whatever it is given");
    return true;
}
