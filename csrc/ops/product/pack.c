/* Decoding sources into panels. Portions of rows go through scratch memory that stays in L1; they begin and end where
 * the source's groups do, or at multiples of 8 columns inside a group longer than a portion. Values of such a portion
 * beyond the KC block are dropped.
 */
#include "ops/product/pack.h"

#include "ops/product/sparse.h"

#include <string.h>

/* 16 rows fill one AVX-512 register of 32-bit units; 512 columns of one byte or 256 floats by 16 rows are 8 and
 * 16 KiB: with the panel's end they stay in 32 KiB. */
enum { PORTION_ROWS = 16, INT_COLUMNS = 512, FLOAT_COLUMNS = 256, ROW_PADDING = 64 };
enum { LIMB_LD = INT_COLUMNS + ROW_PADDING, FLOAT_LD = FLOAT_COLUMNS + ROW_PADDING / 4 };
enum { MAX_KEPT_TILE = 32 }; /* nr of any kernel of gemm_nm_s8 */
enum { LEAST_SPLIT_GROUP = 16, LEAST_SPLIT_COLUMNS = 256, MOST_SPLIT_ROWS = 32 };

typedef union {
    float values[PORTION_ROWS * FLOAT_LD];
    struct {
        int8_t limb[HC_MAX_SIGNED_LIMBS][PORTION_ROWS * LIMB_LD];
        float group_scale[PORTION_ROWS * (INT_COLUMNS + 1)];
        float row_scale[PORTION_ROWS];
    } integers;
} hc_portion;

int64_t hc_pack_scratch(void) { return hc_round_up((int64_t)sizeof(hc_portion), HC_CACHE_LINE); }

/* Group boundaries in columns. */

static int64_t group_end(const hc_source *source, int64_t k) {
    if (source->group == 0)
        return source->columns;
    const int64_t in_run = k % source->run_length;
    return k - in_run + hc_min((in_run / source->group + 1) * source->group, source->run_length);
}

static int64_t group_start(const hc_source *source, int64_t k) {
    return source->group == 0 ? 0 : k - k % source->run_length % source->group;
}

static int64_t group_index(const hc_source *source, int64_t k) {
    if (source->group == 0)
        return 0;
    return k / source->run_length * hc_ceil_div(source->run_length, source->group) +
           k % source->run_length / source->group;
}

/* The last index at or before k at which a portion may begin. */
static int64_t portion_start(const hc_source *source, int64_t k, int64_t limit) {
    const int64_t start = group_start(source, k);
    return group_end(source, k) - start > limit ? start + (k - start) / 8 * 8 : start;
}

static int64_t portion_end(const hc_source *source, int64_t start, int64_t limit) {
    const int64_t end = group_end(source, start);
    if (end - start > limit)
        return start + limit;
    if (start > group_start(source, start))
        return end; /* the rest of a long group */
    return start + limit >= source->columns ? source->columns : group_start(source, start + limit);
}

bool hc_kc_fill(hc_kc *kc, hc_order kind, const hc_source *a, const hc_source *b, int64_t first, int64_t limit,
                int kr) {
    const int64_t stop = hc_min(first + limit, a->columns);
    bool cut = false;
    kc->first = first;
    kc->n_segments = kc->steps = 0;
    kc->even = kc->opens = kc->closes = true;
    int64_t k = first;
    if (kind == HC_ORDER_GROUPED)
        kc->opens = group_start(a, first) == first || group_start(b, first) == first;
    while (k < stop) {
        int64_t end = stop;
        if (kind == HC_ORDER_GROUPED)
            end = hc_min(group_end(a, k), group_end(b, k));
        if (end > stop) {
            if (k > first)
                break; /* the next KC block contains this segment */
            kc->closes = false;
            cut = true;
            end = stop;
        }
        kc->even = kc->even && (k - first) % kr == 0;
        kc->end[kc->n_segments] = end;
        kc->segment_steps[kc->n_segments] = (int32_t)hc_ceil_div(end - k, kr);
        kc->steps += kc->segment_steps[kc->n_segments++];
        k = end;
    }
    kc->columns = k - first;
    return cut || !kc->opens;
}

int64_t hc_most_of(const hc_source *side, hc_int_mode mode) {
    const int64_t most = side->form[mode].max_abs;
    const hc_int_form *codes = &side->form[HC_INT_SPLIT];
    return mode == HC_INT_FOLDED && codes->available ? most + most / hc_max(codes->max_abs, 1) : most + 1;
}

int hc_signed_limbs(const hc_int_form *form) {
    if (form->n_limbs == 1)
        return 1; /* the one limb is signed already */
    int limbs = 1;
    for (int64_t largest = 127; largest < form->max_abs; largest = largest * 256 + 127)
        limbs++;
    return (int)hc_max(limbs, form->n_limbs);
}

void hc_panels_init(hc_panels *side, hc_order kind, const hc_run *run, const hc_source *source, bool is_b) {
    *side = (hc_panels){.source = source, .kind = kind, .is_b = is_b, .limbs = 1};
    if (kind != HC_ORDER_CHAIN) {
        const hc_int_form *form = &source->form[kind == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED];
        side->limbs = is_b ? hc_signed_limbs(form) : form->n_limbs;
    }
    side->pack_x32 = HC_PICK(pack_x32, run);
}

void hc_panels_use_kernel(hc_panels *side, const hc_kernel *kernel, const hc_run *run) {
    side->tile = side->is_b ? kernel->nr : kernel->mr;
    side->kr = kernel->kr;
    side->kept = side->is_b && kernel->nonzeros > 0;
    if (side->kept)
        hc_nm_form_init(&side->nm_form, ((const hc_packed_context *)side->source->sparse)->format, side->kr, run);
    side->init_factor = kernel->form == HC_PANEL_U8 ? -128 : 128;
    side->form = side->is_b && kernel->form != HC_PANEL_F32 ? HC_PANEL_S8 : kernel->form;
    if (side->is_b && (kernel->form == HC_PANEL_U8 || kernel->form == HC_PANEL_S8))
        side->compensation_s8 = HC_PICK(compensation_s8, run);
}

const hc_kernel *hc_product_line(hc_order order, bool exact_groups, bool kept, const hc_source *b, const hc_run *run) {
    if (order == HC_ORDER_CHAIN)
        return HC_BEST(gemm_f32, run);
    if (order == HC_ORDER_GROUPED && !exact_groups) {
        const hc_kernel *any = HC_BEST(gemm_s8_scaled, run), *small = HC_BEST(gemm_small_scaled, run);
        return any->needs == small->needs && b->form[HC_INT_GROUPED].max_abs <= small->small ? small : any;
    }
    if (kept)
        return hc_nm_kernel(b, run);
    const hc_kernel *kernel = HC_BEST(gemm_s8, run);
    /* Groups would end inside long steps, which would then consist mostly of padding. */
    while (order == HC_ORDER_GROUPED && kernel->kr > 4)
        kernel = hc_kernel_below(kernel, run->isa);
    return kernel;
}

const hc_kernel *hc_split_line(const hc_source *b, const hc_run *run) {
    const hc_kernel *small = HC_BEST(gemm_small_split, run), *words = HC_BEST(gemm_split_words, run);
    return b->form[HC_INT_SPLIT].max_abs > small->small && words->fn.gemm_small_split ? words : small;
}

int64_t hc_split_columns(const hc_source *a, const hc_source *b, const hc_run *run) {
    const hc_kernel *kernel = hc_split_line(b, run);
    const hc_int_form *split = &b->form[HC_INT_SPLIT], *folded = &b->form[HC_INT_FOLDED];
    /* Of many rows, products of int16 that contain the scales take less time (Zen 5, AVX2). */
    if (kernel->form == HC_PANEL_S16 && !b->prepacked && hc_min(b->group, b->run_length) < 32 &&
        a->rows > MOST_SPLIT_ROWS)
        return 0;
    if (!split->available || split->max_abs > kernel->small || kernel->needs != HC_BEST(gemm_s8, run)->needs ||
        hc_min(b->group, b->run_length) < LEAST_SPLIT_GROUP || hc_signed_limbs(folded) == 1 || a->group ||
        a->form[HC_INT_FOLDED].n_limbs != 1)
        return 0;
    const int64_t columns = INT32_MAX / (128 * hc_most_of(b, HC_INT_FOLDED)) / 64 * 64;
    return columns < hc_max(LEAST_SPLIT_COLUMNS, hc_min(b->group, b->run_length)) ? 0 : columns;
}

void hc_panels_split(hc_panels *b) {
    b->split = true;
    b->limbs = 1;
}

int64_t hc_wide_columns(hc_order order, const hc_source *a, const hc_source *b, const hc_run *run) {
    const hc_int_mode mode = order == HC_ORDER_FOLDED ? HC_INT_FOLDED : HC_INT_GROUPED;
    const hc_int_form *wide = &a->form[mode], *other = &b->form[mode];
    if (order == HC_ORDER_CHAIN || wide->n_limbs == 1 || HC_BEST(gemm_s8, run)->form != HC_PANEL_S16 ||
        HC_BEST(gemm_s8_scaled, run)->form != HC_PANEL_S16)
        return 0;
    const int64_t most = wide->n_limbs == 2 ? hc_most_of(a, mode) : 1 << 15;
    const int64_t of_other = hc_signed_limbs(other) == 1 ? hc_most_of(b, mode) : 128;
    return most > 1 << 15 ? 0 : INT32_MAX / hc_max(most * of_other, 1) / 64 * 64;
}

void hc_panels_widen(hc_panels *a) {
    a->wide = true;
    a->limbs = (a->limbs + 1) / 2;
}

int64_t hc_limb_bytes(const hc_panels *side, int64_t steps) {
    const int size = side->form == HC_PANEL_F32 ? 4 : side->form == HC_PANEL_S16 ? 2 : 1;
    return hc_round_up(steps * (side->kept ? 8 : side->kr * size) * side->tile, HC_CACHE_LINE);
}

int64_t hc_panel_bytes(const hc_panels *side, int64_t steps, int64_t n_segments) {
    const int64_t words = (side->kind == HC_ORDER_GROUPED || side->split) + (side->compensation_s8 ? side->limbs : 0);
    return side->limbs * hc_limb_bytes(side, steps) + words * n_segments * side->tile * 4;
}

void hc_balance_limbs(int8_t *const limbs[HC_MAX_SIGNED_LIMBS], int64_t ld, int n_limbs, int n_signed_limbs,
                      int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t first = 0; first < columns; first += INT_COLUMNS) {
            const int64_t count = hc_min(INT_COLUMNS, columns - first);
            uint8_t carry[INT_COLUMNS] = {0};
            for (int d = 0; d < n_signed_limbs; d++) {
                uint8_t *bytes = (uint8_t *)limbs[d] + row * ld + first;
                if (d >= n_limbs)
                    memset(bytes, 0, (size_t)count);
                /* A byte of 128 or more stands for itself minus 256. In the top limb this is only the value 127 + 1. */
                const uint8_t was = d < n_limbs - 1 ? 0xff : 0;
                for (int64_t i = 0; i < count; i++) {
                    const uint8_t limb = bytes[i], sum = (uint8_t)(limb + carry[i]);
                    bytes[i] = sum;
                    carry[i] = (uint8_t)((limb & was) | (sum & (uint8_t)~limb)) >> 7;
                }
            }
        }
}

void hc_order_nibbles(int8_t *x, int64_t n) {
    for (int8_t copy[HC_NIBBLES_STEP], *block = x; block < x + n; block += sizeof copy) {
        memcpy(copy, block, sizeof copy);
        for (int i = 0; i < HC_NIBBLES_STEP / 2; i++) {
            block[i] = copy[2 * i];
            block[HC_NIBBLES_STEP / 2 + i] = copy[2 * i + 1];
        }
    }
}

/* Bytes of `rows` rows, `columns` of them from k on, into a panel of kr = 4. The rest of the last step is filled with
 * 0. */
static void place_bytes(const hc_panels *side, const int8_t *from, int64_t rows, int64_t columns, int64_t k,
                        uint8_t *panel, uint8_t flip) {
    const int64_t head = hc_min(columns, (4 - k % 4) % 4), units = (columns - head) / 4;
    const int64_t tail = columns - head - units * 4;
    for (int64_t row = 0; row < rows && head; row++)
        for (int64_t c = 0; c < head; c++)
            panel[(k / 4 * side->tile + row) * 4 + k % 4 + c] = (uint8_t)from[row * LIMB_LD + c] ^ flip;
    k += head;
    from += head;
    uint8_t *to = panel + k * side->tile;
    side->pack_x32(from, LIMB_LD, (int)rows, units, to, side->tile, flip * 0x01010101u);
    to += units * 4 * side->tile;
    for (int64_t row = 0; row < rows && tail; row++)
        for (int64_t c = 0; c < 4; c++)
            to[row * 4 + c] = c < tail ? (uint8_t)from[row * LIMB_LD + units * 4 + c] ^ flip : 0;
}

/* The same into a panel of longer steps, in which kr bytes of a row are contiguous. */
static void place_rows(const hc_panels *side, const int8_t *from, int64_t rows, int64_t columns, int64_t k,
                       uint8_t *panel, uint8_t flip) {
    const int64_t kr = side->kr, step = kr * side->tile, whole = k % kr ? 0 : columns / kr * kr;
    for (int64_t row = 0; row < rows; row++, from += LIMB_LD) {
        uint8_t *next = panel + k * side->tile + row * kr;
        int64_t c = 0;
        for (; c < whole; c += kr, next += step)
            for (int64_t i = 0; i < kr; i += 8) {
                uint64_t eight;
                memcpy(&eight, from + c + i, 8);
                eight ^= flip * 0x0101010101010101u;
                memcpy(next + i, &eight, 8);
            }
        while (c < columns) {
            const int64_t inside = (k + c) % side->kr, count = hc_min(side->kr - inside, columns - c);
            uint8_t *to = panel + ((k + c) / side->kr * side->tile + row) * side->kr + inside;
            for (int64_t i = 0; i < count; i++)
                to[i] = (uint8_t)from[c + i] ^ flip;
            c += count;
        }
    }
}

/* The same, widened to int16, into a panel of kr = 4. */
static void place_words(const hc_panels *side, const int16_t *words, int64_t columns, int64_t k, int16_t *to) {
    const int64_t head = hc_min(columns, (4 - k % 4) % 4), tail = k + columns, tile = side->tile;
    for (int64_t c = 0; c < head; c++)
        to[(k + c) / 4 * 4 * tile + (k + c) % 4] = words[c];
    int64_t c = head;
    for (; c + 4 <= columns; c += 4)
        memcpy(to + (k + c) * tile, words + c, 4 * sizeof *words);
    for (; c < columns; c++)
        to[(k + c) / 4 * 4 * tile + (k + c) % 4] = words[c];
    for (int64_t pad = tail; pad % 4; pad++)
        to[pad / 4 * 4 * tile + pad % 4] = 0;
}

/* Limb d of rows as int16: a byte, or the upper two bytes if `wide`. */
static void place_int16(const hc_panels *side, const hc_portion *portion, int64_t skip, int d, int64_t rows,
                        int64_t columns, int64_t k, int16_t *panel) {
    const bool is_top = d == side->limbs - 1, is_pair = side->wide && is_top;
    for (int64_t row = 0; row < rows; row++) {
        const int8_t *restrict low = portion->integers.limb[d] + row * LIMB_LD + skip;
        const int8_t *restrict high = portion->integers.limb[d + is_pair] + row * LIMB_LD + skip;
        int16_t words[INT_COLUMNS];
        HC_ASSUME(side->kr == 4 && columns <= INT_COLUMNS);
        if (is_pair)
            for (int64_t c = 0; c < columns; c++)
                words[c] = (int16_t)(high[c] * 256 + (uint8_t)low[c]);
        else if (is_top || side->is_b)
            for (int64_t c = 0; c < columns; c++)
                words[c] = low[c];
        else
            for (int64_t c = 0; c < columns; c++)
                words[c] = (uint8_t)low[c];
        place_words(side, words, columns, k, panel + row * 4);
    }
}

static void place_limbs(const hc_panels *side, const hc_portion *portion, int64_t skip, int64_t rows, int64_t columns,
                        int64_t k, uint8_t *panel) {
    for (int i = 0; side->kept && i < 2; i++) /* kept values, then their places */
        side->pack_x32(portion->integers.limb[i] + skip / side->kr * 4, LIMB_LD, (int)rows,
                       hc_ceil_div(columns, side->kr), panel + (k / side->kr * 8 + 4 * i) * side->tile, 2 * side->tile,
                       i ? side->nm_form.base : 0);
    if (side->kept)
        return;
    for (int d = 0; d < side->limbs; d++) {
        const int8_t *from = portion->integers.limb[d] + skip;
        uint8_t *to = panel + d * side->limb_bytes;
        const bool is_signed = side->is_b || d == side->limbs - 1;
        const uint8_t flip = (side->form == HC_PANEL_U8) == is_signed ? 0x80 : 0;
        if (side->form == HC_PANEL_S16)
            place_int16(side, portion, skip, d, rows, columns, k, (int16_t *)(void *)to);
        else if (side->kr > 4 && !side->is_b)
            place_rows(side, from, rows, columns, k, to, flip);
        else
            place_bytes(side, from, rows, columns, k, to, flip);
    }
}

/* Contiguous rows are a panel already, except for its width. */
static void pack_side(const hc_panels *side, const hc_kc *kc, int64_t first_row, int64_t rows, float *panel) {
    const char *from = side->source->side + first_row * (int64_t)sizeof(float) + kc->first * side->source->side_stride;
    const int64_t tile = side->tile, step = side->source->side_stride;
    if (rows == tile && tile == 16)
        for (int64_t c = 0; c < kc->columns; c++)
            memcpy(panel + c * 16, from + c * step, 64);
    else if (rows == tile && tile == 32)
        for (int64_t c = 0; c < kc->columns; c++)
            memcpy(panel + c * 32, from + c * step, 128);
    else
        for (int64_t c = 0; c < kc->columns; c++)
            memcpy(panel + c * tile, from + c * step, (size_t)rows * sizeof(float));
}

static void pack_floats(const hc_panels *side, const hc_kc *kc, int64_t first_row, int64_t rows, float *panel,
                        hc_portion *portion) {
    const hc_source *source = side->source;
    const int64_t stop = kc->first + kc->columns;
    int64_t end;
    if (source->along) {
        side->pack_x32(source->along + first_row * source->along_stride + kc->first * 4, source->along_stride,
                       (int)rows, kc->columns, panel, side->tile, 0);
        return;
    }
    for (int64_t start = portion_start(source, kc->first, FLOAT_COLUMNS); start < stop; start = end) {
        end = portion_end(source, start, FLOAT_COLUMNS);
        source->floats(source, first_row, rows, start, end - start, portion->values, FLOAT_LD);
        const int64_t from = hc_max(start, kc->first), to = hc_min(end, stop);
        side->pack_x32(portion->values + (from - start), FLOAT_LD * 4, (int)rows, to - from,
                       panel + (from - kc->first) * side->tile, side->tile, 0);
    }
}

static void pack_integers(const hc_panels *side, const hc_kc *kc, int64_t first_row, int64_t rows, int64_t panel,
                          int64_t row_in_panel, hc_portion *portion) {
    const hc_source *source = side->source;
    const hc_int_mode mode = side->split                     ? HC_INT_SPLIT
                             : side->kind == HC_ORDER_FOLDED ? HC_INT_FOLDED
                                                             : HC_INT_GROUPED;
    const int n_limbs = source->form[mode].n_limbs;
    /* Bytes of a row that are contiguous: */
    const int64_t row_bytes = side->form == HC_PANEL_S16 ? 2 * side->kr : side->is_b ? 4 : side->kr;
    uint8_t *bytes = side->panels + panel * side->limbs * side->limb_bytes + row_in_panel * row_bytes;
    float *scales = mode == HC_INT_FOLDED ? NULL : side->scales + panel * kc->n_segments * side->tile + row_in_panel;
    const hc_int_tile tile = {
        .limb = {portion->integers.limb[0], portion->integers.limb[1], portion->integers.limb[2]},
        .ld = LIMB_LD,
        .group_scale = portion->integers.group_scale,
        .groups_ld = INT_COLUMNS + 1,
        .row_scale = portion->integers.row_scale,
    };
    const int64_t stop = kc->first + kc->columns;
    int64_t segment = 0, step = 0, segment_first = kc->first, end;
    for (int64_t start = portion_start(source, kc->first, INT_COLUMNS); start < stop; start = end) {
        end = portion_end(source, start, INT_COLUMNS);
        if (side->kept)
            hc_nm_integers(source, &side->nm_form, first_row, rows, start, end - start, &tile);
        else
            source->integers(source, mode, first_row, rows, start, end - start, &tile);
        if (side->is_b && n_limbs > 1) {
            int8_t *const limbs[] = {tile.limb[0], tile.limb[1], tile.limb[2], portion->integers.limb[3]};
            hc_balance_limbs(limbs, LIMB_LD, n_limbs, side->limbs, rows, end - start);
        }
        int64_t from = hc_max(start, kc->first);
        const int64_t to = hc_min(end, stop);
        if (kc->even)
            place_limbs(side, portion, from - start, rows, to - from, from - kc->first, bytes);
        while (from < to) { /* the part of one segment that this portion holds */
            const int64_t part_end = hc_min(to, kc->end[segment]);
            if (!kc->even)
                place_limbs(side, portion, from - start, rows, part_end - from, step * side->kr + from - segment_first,
                            bytes);
            if (mode != HC_INT_FOLDED) {
                const int64_t group = group_index(source, from) - group_index(source, start);
                for (int64_t row = 0; row < rows; row++)
                    scales[segment * side->tile + row] = tile.group_scale[row * tile.groups_ld + group];
            }
            if (part_end == kc->end[segment]) {
                step += kc->segment_steps[segment++];
                segment_first = part_end;
            }
            from = part_end;
        }
    }
    if (mode != HC_INT_GROUPED)
        memcpy(side->row_scales + panel * side->tile + row_in_panel, tile.row_scale, (size_t)rows * 4);
}

void hc_pack_panel(const hc_panels *side, const hc_kc *kc, int64_t first_row, int64_t panel, void *scratch) {
    const int64_t rows = hc_min(side->tile, side->source->rows - first_row);
    const int64_t panel_bytes = side->limbs * side->limb_bytes;
    uint8_t *memory = side->panels + panel * panel_bytes;
    if (rows < side->tile || !kc->even || (side->kr > 4 && kc->columns % side->kr))
        memset(memory, 0, (size_t)panel_bytes);
    if (rows < side->tile && (side->kind == HC_ORDER_GROUPED || side->split))
        memset(side->scales + panel * kc->n_segments * side->tile, 0, (size_t)(kc->n_segments * side->tile * 4));
    if (side->kind == HC_ORDER_CHAIN && side->source->side) {
        pack_side(side, kc, first_row, rows, (float *)(void *)memory);
        return;
    }
    for (int64_t row = 0; row < rows; row += PORTION_ROWS) {
        const int64_t count = hc_min(PORTION_ROWS, rows - row);
        if (side->kind == HC_ORDER_CHAIN)
            pack_floats(side, kc, first_row + row, count, (float *)(void *)memory + row, scratch);
        else
            pack_integers(side, kc, first_row + row, count, panel, row, scratch);
    }
    if (side->kept && side->compensation_s8) { /* of the places too */
        int32_t sums[2 * MAX_KEPT_TILE];
        side->compensation_s8(1, kc->segment_steps, 1, (int8_t *)memory, 2 * side->tile, side->init_factor, sums);
        memcpy(side->init + panel * side->tile, sums, (size_t)side->tile * sizeof *sums);
        return;
    }
    for (int d = 0; d < side->limbs && side->compensation_s8; d++)
        side->compensation_s8(kc->n_segments, kc->segment_steps, side->kr / 4, (int8_t *)memory + d * side->limb_bytes,
                              side->tile, side->init_factor,
                              side->init + (panel * side->limbs + d) * kc->n_segments * side->tile);
}
