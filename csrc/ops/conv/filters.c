/* Packing of filters into panels. Float32 filters in the order (c, r, s) are transposed with the taps of a channel
 * together, and then sorted, some lines at a time. Filters that lie closer together than their channels, as those of gradients
 * do, are read channel by channel. All others are packed like operands of products (pack.c). */
#include "ops/conv/filters.h"

#include <string.h>

/* Lines that stay in L1 next to their source; values decoded at a time. */
enum { LINES_BYTES = 16 << 10, VALUES = 1024 };

void hc_filter_panels_init(hc_filter_panels *p, const hc_convolution *conv, const hc_kernel *line) {
    const hc_conv_shape *s = &conv->shape;
    *p = (hc_filter_panels){.conv = conv, .nr = line->nr, .filters = s->filters / conv->window->groups};
    p->columns = s->r * s->s * s->group_channels;
    p->panels = hc_ceil_div(p->filters, p->nr);
    hc_filter_panels_group(p, 0);
    hc_panels_init(&p->side, HC_ORDER_CHAIN, conv->run, &p->source, true);
    hc_panels_use_kernel(&p->side, line, conv->run);
    p->side.limb_bytes = hc_limb_bytes(&p->side, p->columns);
    p->end = p->columns;
    p->steps = (int32_t)p->columns;
    p->kc = (hc_kc){.columns = p->columns,
                    .steps = p->columns,
                    .n_segments = 1,
                    .end = &p->end,
                    .segment_steps = &p->steps,
                    .even = true,
                    .opens = true,
                    .closes = true};
}

void hc_filter_panels_group(hc_filter_panels *p, int64_t group) {
    p->first = group * p->filters;
    p->source = hc_filter_source(p->conv, p->first, p->filters, &p->context);
}

static bool lies_by_channels(const hc_convolution *conv) {
    const hc_view *w = conv->w->dense;
    const hc_conv_shape *s = &conv->shape;
    return w && w->dtype == HC_F32 && w->strides[3] == sizeof(float) && w->strides[2] == s->s * w->strides[3] &&
           (w->strides[1] == s->r * w->strides[2] || s->group_channels == 1);
}

int64_t hc_filters_beside(const hc_convolution *conv, int64_t *tap) {
    const hc_view *w = conv->w->dense;
    const hc_conv_shape *s = &conv->shape;
    const int64_t size = sizeof(float);
    if (!w || w->dtype != HC_F32 || s->group_channels == 1 || s->r * s->s > HC_BESIDE_UNITS || w->strides[0] < size ||
        w->strides[1] <= w->strides[0] || (uintptr_t)w->data % sizeof(float))
        return 0;
    for (int i = 0; i < 4; i++)
        if (w->strides[i] % size)
            return 0;
    const int64_t down = w->strides[2] / size, across = w->strides[3] / size;
    const int64_t low = hc_min(0, (s->r - 1) * down) + hc_min(0, (s->s - 1) * across);
    const int64_t units = hc_max(0, (s->r - 1) * down) + hc_max(0, (s->s - 1) * across) - low + 1;
    if (units > HC_BESIDE_UNITS)
        return 0;
    for (int64_t t = 0; t < s->r * s->s; t++)
        tap[t] = t / s->s * down + t % s->s * across - low;
    return units;
}

/* A panel of such filters: the units of a channel are transposed, and the lines of its taps are copied from there. */
static void pack_beside(const hc_filter_panels *p, int64_t panel, int64_t units, const int64_t *tap, float *to,
                        float *lines) {
    const hc_view *w = p->conv->w->dense;
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t taps = s->r * s->s, channels = s->group_channels, size = sizeof(float);
    const int64_t count = hc_min(p->nr, p->filters - panel * p->nr);
    const char *from = (const char *)w->data + (p->first + panel * p->nr) * w->strides[0];
    from -= tap[0] * size;
    HC_ASSERT(units * p->nr * size <= hc_pack_scratch());
    memset(lines, 0, (size_t)(units * p->nr * size));
    for (int64_t c = 0; c < channels; c++, from += w->strides[1]) {
        if (units == 1 && w->strides[0] == size)
            memcpy(lines, from, (size_t)(count * size));
        else
            for (int64_t i = 0; i < count; i += 16)
                p->side.pack_x32(from + i * w->strides[0], w->strides[0], (int)hc_min(16, count - i), units, lines + i,
                                 p->nr, 0);
        for (int64_t t = 0; t < taps; t++)
            memcpy(to + (t * channels + c) * p->nr, lines + tap[t] * p->nr, (size_t)(p->nr * size));
    }
}

/* Sorts lines (channel, tap) into lines (tap, channel). With the constant size of a part, copies become
 * instructions. */
static void sort_lines(const float *lines, int64_t taps, int64_t channels, int64_t all_channels, int nr, float *to) {
    enum { PART = 8 };
    HC_ASSUME(nr % PART == 0);
    for (int64_t t = 0; t < taps; t++, to += all_channels * nr)
        for (int64_t i = 0; i < channels; i++)
            for (int j = 0; j < nr; j += PART)
                memcpy(to + i * nr + j, lines + (i * taps + t) * nr + j, PART * sizeof(float));
}

/* Prefetches `bytes` of each filter, which are read next: hardware prefetchers do not detect such short streams. */
static void fetch(const char *from, int64_t step, int64_t filters, int64_t bytes) {
    for (int64_t i = 0; i < filters; i++, from += step)
        for (int64_t at = 0; at < bytes; at += HC_CACHE_LINE)
            __builtin_prefetch(from + at, 0, 2);
}

/* Packs channels first .. first + channels as lines (channel, tap) of adjacent filters. */
static void pack_lines(const hc_filter_panels *p, int64_t panel, int64_t first, int64_t channels, float *to) {
    const hc_view *w = p->conv->w->dense;
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t taps = s->r * s->s, size = sizeof(float), count = hc_min(p->nr, p->filters - panel * p->nr);
    const char *from = (const char *)w->data + (p->first + panel * p->nr) * w->strides[0] + first * taps * size;
    if (count < p->nr)
        memset(to, 0, (size_t)(channels * taps * p->nr * size));
    fetch(from + channels * taps * size, w->strides[0], count,
          hc_min(channels, s->group_channels - first - channels) * taps * size);
    for (int64_t i = 0; i < count; i += 16)
        p->side.pack_x32(from + i * w->strides[0], w->strides[0], (int)hc_min(16, count - i), channels * taps, to + i,
                         p->nr, 0);
}

static int64_t lines_at_once(const hc_filter_panels *p) {
    const hc_conv_shape *s = &p->conv->shape;
    HC_ASSERT(hc_pack_scratch() >= LINES_BYTES);
    return LINES_BYTES / (s->r * s->s * p->nr * (int64_t)sizeof(float));
}

bool hc_filters_have_lines(const hc_filter_panels *p) { return lies_by_channels(p->conv) && lines_at_once(p) > 0; }

void hc_filter_lines(const hc_filter_panels *p, int64_t panel, float *to) {
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t channels = s->group_channels, fit = lines_at_once(p);
    for (int64_t c = 0; c < channels; c += fit)
        pack_lines(p, panel, c, hc_min(fit, channels - c), to + c * s->r * s->s * p->nr);
}

/* The same of filters of which not even one channel fits: some taps of a channel at a time. */
static void pack_taps(const hc_filter_panels *p, int64_t panel, float *to, float *lines) {
    const hc_view *w = p->conv->w->dense;
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t taps = s->r * s->s, size = sizeof(float), fit = LINES_BYTES / (p->nr * size);
    const int64_t count = hc_min(p->nr, p->filters - panel * p->nr);
    const char *from = (const char *)w->data + (p->first + panel * p->nr) * w->strides[0];
    memset(lines, 0, (size_t)(fit * p->nr * size));
    for (int64_t c = 0; c < s->group_channels; c++)
        for (int64_t first = 0; first < taps; first += fit) {
            const int64_t some = hc_min(fit, taps - first);
            for (int64_t i = 0; i < count; i += 16)
                p->side.pack_x32(from + i * w->strides[0] + (c * taps + first) * size, w->strides[0],
                                 (int)hc_min(16, count - i), some, lines + i, p->nr, 0);
            for (int64_t t = 0; t < some; t++)
                memcpy(to + ((first + t) * s->group_channels + c) * p->nr, lines + t * p->nr, (size_t)(p->nr * size));
        }
}

void hc_filter_panel(const hc_filter_panels *p, int64_t panel, float *to, void *scratch) {
    const hc_conv_shape *s = &p->conv->shape;
    const int64_t taps = s->r * s->s, channels = s->group_channels;
    int64_t tap[HC_BESIDE_UNITS];
    const int64_t units = hc_filters_beside(p->conv, tap);
    if (units > 0) {
        pack_beside(p, panel, units, tap, to, scratch);
        return;
    }
    const bool lies = lies_by_channels(p->conv);
    if (lies && channels > 1 && lines_at_once(p) == 0) {
        pack_taps(p, panel, to, scratch);
        return;
    }
    if (!lies) {
        hc_panels one = p->side;
        one.panels = (uint8_t *)to;
        hc_pack_panel(&one, &p->kc, panel * p->nr, 0, scratch);
        return;
    }
    if (taps == 1 || channels == 1) { /* sorted as they are */
        pack_lines(p, panel, 0, channels, to);
        return;
    }
    for (int64_t c = 0, some; c < channels; c += some) {
        some = hc_min(lines_at_once(p), channels - c);
        pack_lines(p, panel, c, some, scratch);
        sort_lines(scratch, taps, some, channels, p->nr, to + c * p->nr);
    }
}

void hc_filter_taps(const hc_convolution *conv, int64_t beside, float *to) {
    const hc_conv_shape *s = &conv->shape;
    const int64_t filters = s->filters, taps = s->r * s->s, run = s->group_channels, columns = taps * run;
    if (lies_by_channels(conv) && beside <= INT32_MAX / 4 / run) {
        const hc_view *w = conv->w->dense;
        const int64_t most = hc_min(beside, 16);
        for (int64_t f = 0; f < filters; f += most)
            for (int64_t c = 0; c < run; c++)
                HC_PICK(pack_x32, conv->run)
        ((const char *)w->data + f * w->strides[0] + c * taps * (int64_t)sizeof *to, w->strides[0],
         (int)hc_min(most, filters - f), taps, to + f / beside * beside * columns + c * beside + f % beside,
         (int)(run * beside), 0);
        return;
    }
    hc_filters context;
    const hc_source source = hc_filter_source(conv, 0, filters, &context);
    float values[VALUES];
    const bool is_one_panel = beside == filters && beside <= INT32_MAX / 4;
    const int64_t wide = hc_min(columns, VALUES), at_once = VALUES / wide;
    for (int64_t f = 0; f < filters; f += at_once)
        for (int64_t first = 0; first < columns; first += wide) {
            const int64_t some = hc_min(wide, columns - first), rows = hc_min(at_once, filters - f);
            source.floats(&source, f, rows, first, some, values, some);
            for (int64_t i = 0; i < rows && is_one_panel; i += 16)
                HC_PICK(pack_x32, conv->run)
            (values + i * some, some * (int64_t)sizeof *to, (int)hc_min(16, rows - i), some,
             to + first * beside + f + i, (int)beside, 0);
            for (int64_t i = 0; i < rows && !is_one_panel; i++) {
                float *place = to + (f + i) / beside * beside * columns + first * beside + (f + i) % beside;
                for (int64_t t = 0; t < some; t++)
                    place[t * beside] = values[i * some + t];
            }
        }
}
