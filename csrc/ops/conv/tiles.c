/* Tiles, panels of transformed filters and their sums; tiles.h. */
#include "ops/conv/tiles.h"

#include "base/threads.h"

#include <string.h>

enum {
    TILE_BYTES = 1 << 20,
    PANELS_A_THREAD = 4,
    MOST_KEPT = 16 << 20,   /* of transformed tiles, if the filters that each task would read take more */
    NEAR_PANEL = 512 << 10, /* of integers: a larger panel leaves L1 and L2 from one group of tiles to the next */
    SUM_BYTES = 128 << 10,  /* of the groups that are therefore multiplied together at each position */
    FAR_TILE_BYTES = 2 << 20,
    L2_BYTES = 1 << 20,
    NEAR_TILES = 6 << 20, /* of several bands, that are read once for each panel */
};

void hc_tiles_init(hc_tiles *t, const hc_convolution *conv, const hc_tiling *tiling) {
    const hc_conv_shape *s = &conv->shape;
    hc_codes *codes = tiling->codes;
    const hc_kernel *kernel = codes ? HC_BEST(direct_s16, conv->run) : HC_BEST(direct_f32, conv->run);
    *t = (hc_tiles){.conv = conv, .tiling = *tiling, .kernel = kernel, .at_hand = -1};
    if (codes) {
        const int64_t filters = s->filters / conv->window->groups;
        t->filters = (hc_filter_panels){
            .conv = conv, .nr = kernel->nr, .filters = filters, .panels = hc_ceil_div(filters, kernel->nr)};
    } else {
        t->tiling.units = s->group_channels * hc_max(tiling->phases, 1);
        hc_filter_panels_init(&t->filters, conv, kernel);
        if (tiling->phases != 4 || !hc_phases_init(&t->pixels, conv, tiling->rows))
            hc_pixels_init(&t->pixels, conv, false, tiling->rows);
    }
    t->n_bands = codes ? codes->n_bands : t->pixels.n_bands;
    const int64_t units = t->tiling.units, size = sizeof(float), places = tiling->places;
    const int64_t all = s->n * hc_ceil_div(s->out_height, tiling->rows) * hc_ceil_div(s->out_width, tiling->columns);
    const int n_threads = conv->run->n_threads;
    t->panel_step = units * kernel->nr + tiling->panel_gap;
    t->panel_floats = places * t->panel_step;
    t->form = (hc_filter_form){.kernel = (intptr_t)kernel,
                               .groups = conv->window->groups,
                               .m = tiling->m,
                               .height = tiling->height,
                               .width = tiling->width,
                               .down = conv->window->dilation[0],
                               .across = conv->window->dilation[1],
                               .panels = t->filters.panels,
                               .panel_floats = t->panel_floats};
    t->packed = hc_prepacked_panels_of(conv, &t->form, 0) != NULL;
    t->panels_at_once = t->filters.panels;
    if (!t->packed)
        t->panels_at_once = hc_min(t->panels_at_once, hc_max(1, tiling->filter_bytes / (t->panel_floats * size)));
    /* Rows with a length of a power of two would share a few cache sets of L1. */
    t->tile_ld = hc_round_up(units, 16) + 16;
    t->tile_floats = places * t->tile_ld;
    const int64_t group_floats = kernel->mr * t->tile_floats, sums = places * kernel->mr * kernel->nr;
    const bool far = codes && t->panel_floats * size > NEAR_PANEL;
    const int64_t fewest = far && n_threads == 1 ? 1 : 4 * n_threads; /* tasks, to end together */
    t->groups = hc_min((far ? FAR_TILE_BYTES : TILE_BYTES) / (group_floats * size), all / kernel->mr / fewest);
    t->groups = hc_max(t->groups, 1);
    t->task_floats = t->groups * group_floats;
    const int64_t tasks = hc_ceil_div(all, t->groups * kernel->mr);
    const int64_t panel_bytes = t->panel_floats * size;
    const int64_t filters = hc_min(t->filters.panels, hc_ceil_div(MOST_KEPT, panel_bytes)) * panel_bytes;
    const int64_t keeps = hc_max(tiling->all_tiles_bytes, hc_min(filters, MOST_KEPT));
    /* Tiles of several bands are kept if they, or a panel, stay in a near cache: 256 channels at 56 x 56 with panels of
     * 2 MiB are up to a third slower, 8 images at 14 x 14 twice as fast (Zen 5, 2026-12). */
    const bool keeps_bands = !codes && (panel_bytes <= L2_BYTES || tasks <= NEAR_TILES / (t->task_floats * size));
    t->by_panels = (t->n_bands == 1 || keeps_bands) && t->filters.panels >= PANELS_A_THREAD * n_threads &&
                   t->panels_at_once >= n_threads && tasks <= keeps / (t->task_floats * size);
    t->together = hc_max(1, hc_min(t->groups, (far ? SUM_BYTES : tiling->sum_bytes) / (sums * size)));
    const int64_t kept = t->by_panels ? tasks * t->task_floats : 0;
    t->panels_at_once = t->by_panels ? n_threads : t->panels_at_once;
    const int64_t packing = codes ? tiling->packing_bytes : t->filters.side.limb_bytes + hc_pack_scratch();
    t->own_at = hc_round_up(tiling->work_floats, 16);
    t->tiles_at = t->own_at + hc_round_up((int64_t)tiling->rows * tiling->columns * kernel->nr, 16);
    t->sums_at = t->tiles_at + (t->by_panels ? 0 : t->task_floats);
    t->private_floats =
        hc_round_up(hc_max(t->sums_at + t->together * sums, t->tiles_at + hc_ceil_div(packing, size)), 16);
    t->kept_at = t->packed ? 0 : hc_round_up(t->panels_at_once * t->panel_floats, 16);
    t->shared_floats = t->kept_at + kept;
    t->bytes =
        (t->shared_floats + n_threads * t->private_floats) * size + (codes ? hc_codes_bytes(codes) : t->pixels.bytes);
}

/* Prepacked panels of the current group. */
static const float *packed_panel(const hc_tiles *t, int64_t panel) {
    return hc_prepacked_panels_of(t->conv, &t->form, t->group) + panel * t->panel_floats;
}

static float *private_memory(const hc_tiles *t, int thread) { return t->private_memory + thread * t->private_floats; }

static void pack_panel(const hc_tiles *t, int64_t panel, float *to, int thread) {
    float *own = private_memory(t, thread);
    t->tiling.panel(t, panel, to, t->panel_step, own + t->tiles_at, own);
}

static void pack_task(void *context, int64_t task, int thread) {
    const hc_tiles *t = context;
    pack_panel(t, t->first_panel + task, t->panels + task * t->panel_floats, thread);
}

static hc_tile_place place_of(const hc_tiles *t, int64_t tile) {
    const int64_t row = tile / t->across;
    return (hc_tile_place){row / t->down, t->band->row + row % t->down * t->tiling.rows,
                           tile % t->across * t->tiling.columns};
}

/* Transforms the sums of one tile back and writes them to the result: in place, or through the thread's own memory. */
static void write_tile(const hc_tiles *t, int64_t tile, const float *sums, int64_t filter, int64_t columns,
                       const float *bias, float *memory) {
    const hc_convolution *conv = t->conv;
    const hc_view *out = conv->out;
    const hc_tile_place at = place_of(t, tile);
    const int nr = t->kernel->nr;
    const int64_t size = sizeof(float), *steps = out->strides;
    const bool in_place = steps[1] == size && steps[2] % size == 0 && steps[3] % size == 0;
    char *to = (char *)out->data + (t->band->image + at.image) * steps[0] + filter * steps[1] + at.p * steps[2] +
               at.q * steps[3];
    float *own = memory + t->own_at;
    const hc_tile_answers answers = {.image = at.image,
                                     .filter = filter,
                                     .to = in_place ? (float *)(void *)to : own,
                                     .row_step = in_place ? steps[2] / size : t->tiling.columns * nr,
                                     .pixel_step = in_place ? steps[3] / size : nr,
                                     .rows = hc_min(t->tiling.rows, t->band->row + t->band->n_rows - at.p),
                                     .columns = hc_min(t->tiling.columns, conv->shape.out_width - at.q)};
    t->tiling.output(t, sums, t->kernel->mr * nr, columns, bias, &answers, memory);
    if (in_place)
        return;
    const bool side_by_side = steps[3] == size && steps[1] > 0 && steps[1] % 4 == 0 && steps[1] / 4 <= INT32_MAX;
    for (int64_t p = 0; p < answers.rows; p++, to += steps[2]) {
        const float *from = own + p * answers.row_step;
        for (int64_t q = 0, some; q < answers.columns; q += some) {
            some = side_by_side ? hc_min(16, answers.columns - q) : 1;
            if (side_by_side)
                HC_PICK(pack_x32, conv->run)
            (from + q * nr, nr * 4, (int)some, columns, to + q * size, (int)(steps[1] / 4), 0);
            for (int64_t j = 0; j < columns && !side_by_side; j++)
                memcpy(to + q * steps[3] + j * steps[1], from + q * nr + j, sizeof(float));
        }
    }
}

/* The tiles of task `task`: returns their number, and the first in *first. */
static int64_t tiles_of(const hc_tiles *t, int64_t task, int64_t *first) {
    const int64_t most = t->groups * t->kernel->mr;
    *first = task * most;
    return hc_min(most, t->band->n_images * t->down * t->across - *first);
}

static void transform_tiles(const hc_tiles *t, int64_t task, float *v, int thread) {
    int64_t first;
    const int64_t tiles = tiles_of(t, task, &first);
    for (int64_t i = 0; i < tiles; i++) {
        const hc_tile_place at = place_of(t, first + i);
        t->tiling.input(t, &at, v + i * t->tile_floats, t->tile_ld, private_memory(t, thread));
    }
}

/* Number of units that are summed at a position, from *first on. With four phases (winograd.c), the last row of
 * positions has the first two, the last column the middle two, and their intersection has one. */
static int64_t units_at(const hc_tiles *t, int64_t place, int64_t *first) {
    const int64_t units = t->tiling.units, phase = units / 4;
    const bool last_row = place / t->tiling.width == t->tiling.height - 1;
    const bool last_column = place % t->tiling.width == t->tiling.width - 1;
    *first = t->tiling.phases == 4 && last_column ? phase : 0;
    if (t->tiling.phases != 4 || (!last_row && !last_column))
        return units;
    return last_row && last_column ? phase : 2 * phase;
}

/* Sums of some groups of mr tiles, the first at v, with a panel, at every position. */
static void sum_places(const hc_tiles *t, const float *v, int64_t tiles, const float *u, float *sums) {
    const int mr = t->kernel->mr, nr = t->kernel->nr;
    for (int64_t place = 0; place < t->tiling.places; place++, v += t->tile_ld, u += t->panel_step, sums += mr * nr) {
        int64_t first;
        const int64_t units = units_at(t, place, &first);
        for (int64_t i = 0; i < tiles; i += mr) {
            const int n = (int)hc_min(mr, tiles - i);
            const float *rows[16];
            for (int j = 0; j < n; j++)
                rows[j] = v + first + (i + j) * t->tile_floats;
            float *to = sums + i * t->tiling.places * nr;
            if (t->tiling.codes)
                t->kernel->fn.direct_s16(units, (const int16_t *const *)(const void *)rows,
                                         (const int16_t *)(const void *)u, n, (int32_t *)(void *)to, nr);
            else
                t->kernel->fn.direct_f32(1, units, rows, u + first * nr, 0, nr, n, nr, to, nr);
        }
    }
}

/* Multiplies the transformed tiles of a task by the panels [panel, panel + n_panels) of the group, of which the first
 * is at u. */
static void multiply(const hc_tiles *t, int64_t task, const float *v, int64_t panel, int64_t n_panels, const float *u,
                     int thread) {
    const hc_view *b = t->conv->bias;
    const int mr = t->kernel->mr, nr = t->kernel->nr;
    float *memory = private_memory(t, thread), *sums = memory + t->sums_at;
    int64_t first;
    const int64_t tiles = tiles_of(t, task, &first), at_once = t->together * mr;
    for (const int64_t end = panel + n_panels; panel < end; panel++, u += t->panel_floats) {
        const int64_t column = panel * nr, columns = hc_min(nr, t->filters.filters - column);
        const int64_t filter = t->filters.first + column;
        float bias[HC_TILE_MAX_NR];
        for (int64_t j = 0; j < columns && b; j++)
            memcpy(bias + j, (const char *)b->data + (filter + j) * b->strides[0], sizeof(float));
        for (int64_t i = 0; i < tiles; i += at_once) {
            const int64_t some = hc_min(at_once, tiles - i);
            sum_places(t, v + i * t->tile_floats, some, u, sums);
            for (int64_t j = 0; j < some; j++)
                write_tile(t, first + i + j, sums + (j / mr * t->tiling.places * mr + j % mr) * nr, filter, columns,
                           b ? bias : NULL, memory);
        }
    }
}

static void tiles_task(void *context, int64_t task, int thread) {
    const hc_tiles *t = context;
    float *v = private_memory(t, thread) + t->tiles_at;
    transform_tiles(t, task, v, thread);
    const float *u = t->packed ? packed_panel(t, t->first_panel) : t->panels;
    multiply(t, task, v, t->first_panel, t->n_panels, u, thread);
}

static void kept_task(void *context, int64_t task, int thread) {
    const hc_tiles *t = context;
    transform_tiles(t, task, t->kept + t->kept_tiles * t->tile_floats + task * t->task_floats, thread);
}

static void panel_task(void *context, int64_t task, int thread) {
    const hc_tiles *t = context;
    float *own = t->panels + thread * t->panel_floats;
    if (!t->packed)
        pack_panel(t, task, own, thread);
    const float *u = t->packed ? packed_panel(t, task) : own;
    int64_t first;
    for (int64_t i = 0; tiles_of(t, i, &first) > 0; i++)
        multiply(t, i, t->kept + i * t->task_floats, task, 1, u, thread);
}

/* Makes `band` the current one; returns its number of tasks, 0 after an error. */
static int64_t begin_band(hc_tiles *t, int64_t band, hc_status *status, hc_error *error) {
    if (t->at_hand != band && t->tiling.codes)
        *status = hc_codes_band(t->tiling.codes, band, error);
    else if (t->at_hand != band)
        hc_pixels_band(&t->pixels, band);
    if (*status != HC_OK)
        return 0;
    t->at_hand = band;
    t->down = hc_ceil_div(t->band->n_rows, t->tiling.rows);
    t->across = hc_ceil_div(t->conv->shape.out_width, t->tiling.columns);
    return hc_ceil_div(t->band->n_images * t->down * t->across, t->groups * t->kernel->mr);
}

/* Keeps the transformed tiles of all bands, one after the other, and then makes all outputs one band. */
static hc_status keep_tiles(hc_tiles *t, int n_threads, hc_error *error) {
    const hc_conv_shape *s = &t->conv->shape;
    hc_status status = HC_OK;
    t->kept_tiles = 0;
    if (t->n_bands > 1)
        t->band = &t->pixels;
    for (int64_t band = 0; status == HC_OK && band < t->n_bands; band++) {
        const int64_t tasks = begin_band(t, band, &status, error);
        hc_parallel(n_threads, tasks, kept_task, t);
        t->kept_tiles += t->band->n_images * t->down * t->across;
    }
    if (t->n_bands > 1) {
        t->all = (hc_pixels){.conv = t->conv, .n_images = s->n, .n_rows = s->out_height};
        t->band = &t->all;
        t->down = hc_ceil_div(s->out_height, t->tiling.rows);
    }
    return status;
}

/* All panels of a group, as many at a time as there is memory for. */
static hc_status tiles_by_panels(hc_tiles *t, int n_threads, hc_error *error) {
    hc_status status = HC_OK;
    for (t->first_panel = 0; t->first_panel < t->filters.panels; t->first_panel += t->panels_at_once) {
        t->n_panels = hc_min(t->panels_at_once, t->filters.panels - t->first_panel);
        if (!t->packed)
            hc_parallel(n_threads, t->n_panels, pack_task, t);
        for (int64_t band = 0; status == HC_OK && band < t->n_bands; band++) {
            const int64_t tasks = begin_band(t, band, &status, error);
            hc_parallel(n_threads, tasks, tiles_task, t);
        }
    }
    return status;
}

hc_status hc_tiles_run(hc_tiles *t, hc_error *error) {
    const int n_threads = t->conv->run->n_threads;
    hc_codes *codes = t->tiling.codes;
    hc_status status = codes ? hc_codes_begin(codes, error) : HC_OK;
    t->memory = hc_alloc_aligned((t->shared_floats + n_threads * t->private_floats) * (int64_t)sizeof(float));
    if (status == HC_OK && ((!codes && !hc_pixels_alloc(&t->pixels)) || !t->memory))
        status = hc_fail(error, HC_MEMORY, "conv2d: not enough memory for transformed filters");
    t->band = codes ? &codes->answers : &t->pixels;
    t->panels = t->memory;
    t->kept = t->memory + t->kept_at;
    t->private_memory = t->memory + t->shared_floats;
    for (t->group = 0; status == HC_OK && t->group < t->conv->window->groups; t->group++) {
        hc_filter_panels_group(&t->filters, t->group);
        if (t->by_panels) {
            status = keep_tiles(t, n_threads, error);
            if (status == HC_OK)
                hc_parallel(n_threads, t->filters.panels, panel_task, t);
        } else {
            status = tiles_by_panels(t, n_threads, error);
        }
    }
    if (codes)
        hc_codes_free(codes);
    else
        hc_pixels_free(&t->pixels);
    hc_free_aligned(t->memory);
    return status;
}

hc_status hc_tiles_prepack(hc_tiles *t, hc_prepacked_filters *to, hc_error *error) {
    const int n_threads = t->conv->run->n_threads;
    t->memory = hc_alloc_aligned(n_threads * t->private_floats * (int64_t)sizeof(float));
    if (!t->memory)
        return hc_fail(error, HC_MEMORY, "prepack: not enough memory for transformed filters");
    t->private_memory = t->memory;
    t->panels = hc_prepacked_panels_to(to);
    t->first_panel = 0;
    for (int64_t group = 0; group < t->form.groups; group++, t->panels += t->form.panels * t->panel_floats) {
        hc_filter_panels_group(&t->filters, group);
        hc_parallel(n_threads, t->form.panels, pack_task, t);
    }
    hc_free_aligned(t->memory);
    return HC_OK;
}
