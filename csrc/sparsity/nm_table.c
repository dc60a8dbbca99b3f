/* Bitmasks of the nonzeros of a pattern by a table. An index of up to 12 bits of metadata stands for several blocks, or
 * for several positions of one block, whose masks are combined.
 */
#include "sparsity/nm.h"

#include <stdatomic.h>
#include <string.h>

enum { INDEX_BITS = 12, WIDTH = 32 };

/* masks[index]: bitmask of `positions` positions in the bits of index, in blocks of m, n positions each. */
static void fill(int n, int m, int bits, int positions, uint32_t *masks) {
    masks[0] = 0;
    for (int j = 0; j < positions; j++) {
        const int64_t size = (int64_t)1 << (j * bits);
        for (int position = (1 << bits) - 1; position >= 0; position--) {
            const uint32_t bit = (uint32_t)1 << (j / n * m + (int)hc_min(position, m - 1));
            for (int64_t i = 0; i < size; i++)
                masks[position * size + i] = masks[i] | bit;
        }
    }
}

static void init(hc_nm_table *table, int n, int m) {
    const int bits = hc_position_bits(m);
    int blocks = 1;
    while (2 * blocks * n * bits <= INDEX_BITS && 2 * blocks * m <= WIDTH)
        blocks *= 2;
    table->n = n;
    table->m = m;
    table->width = blocks * m;
    table->unit_bits = blocks * n * bits;
    table->last = 0;
    table->lookups = n * bits <= INDEX_BITS ? 1 : (int)hc_ceil_div(n, INDEX_BITS / bits);
    const int positions = table->lookups == 1 ? blocks * n : (int)hc_ceil_div(n, table->lookups);
    const int last = table->lookups == 1 ? positions : n - positions * (table->lookups - 1);
    table->bits = positions * bits;
    table->last_bits = last * bits;
    fill(table->lookups == 1 ? n : HC_MAX_M, m, bits, positions, table->masks);
    if (last < positions) {
        table->last = 1 << table->bits;
        fill(HC_MAX_M, m, bits, last, table->masks + table->last);
    }
}

const hc_nm_table *hc_nm_table_of(int n, int m) {
    static _Atomic(hc_nm_table *) tables[HC_MAX_M + 1][HC_MAX_M + 1];
    hc_nm_table *table = atomic_load_explicit(&tables[n][m], memory_order_acquire), *other = NULL;
    if (table)
        return table;
    table = hc_alloc_aligned(sizeof *table);
    if (!table)
        return NULL;
    init(table, n, m);
    if (atomic_compare_exchange_strong(&tables[n][m], &other, table))
        return table;
    hc_free_aligned(table); /* another thread was first */
    return other;
}

typedef struct {
    uint64_t *to, pending;
    unsigned n_pending;
} hc_mask_writer;

static inline void append(hc_mask_writer *writer, uint64_t mask, unsigned width) {
    writer->pending |= mask << writer->n_pending;
    writer->n_pending += width;
    if (writer->n_pending >= 64) {
        writer->n_pending -= 64;
        *writer->to++ = writer->pending;
        writer->pending = mask >> (width - writer->n_pending);
    }
}

static inline uint64_t window_at(const uint8_t *metadata, uint64_t bit) {
    uint64_t window;
    memcpy(&window, metadata + bit / 8, sizeof window);
    return window >> (bit % 8);
}

/* Units of the table, the first at `bit`; 8 bytes are read from the start of the last index. */
static void add_units(const hc_nm_table *table, const uint8_t *metadata, uint64_t bit, int64_t units,
                      hc_mask_writer *writer) {
    const uint32_t *masks = table->masks, *last_masks = masks + table->last;
    const unsigned bits = (unsigned)table->bits, last_bits = (unsigned)table->last_bits, width = (unsigned)table->width;
    const uint64_t below = ((uint64_t)1 << bits) - 1, last_below = ((uint64_t)1 << last_bits) - 1;
    hc_mask_writer w = *writer;
    if (table->lookups == 1)
        for (int64_t unit = 0; unit < units; unit++, bit += bits)
            append(&w, masks[window_at(metadata, bit) & below], width);
    else if (table->lookups == 2)
        for (int64_t unit = 0; unit < units; unit++, bit += bits + last_bits) {
            const uint64_t window = window_at(metadata, bit);
            append(&w, masks[window & below] | last_masks[window >> bits & last_below], width);
        }
    else
        for (int64_t unit = 0; unit < units; unit++, bit += last_bits) {
            uint32_t mask = 0;
            for (int i = 1; i < table->lookups; i++, bit += bits)
                mask |= masks[window_at(metadata, bit) & below];
            append(&w, mask | last_masks[window_at(metadata, bit) & last_below], width);
        }
    *writer = w;
}

void hc_nm_table_masks(const hc_nm_table *table, const uint8_t *metadata, int64_t kept, int64_t first_block,
                       int64_t columns, uint64_t *masks) {
    const int bits = hc_position_bits(table->m);
    const int64_t bytes = hc_ceil_div(kept * bits, 8), units = columns / table->width;
    const int64_t first = first_block * table->n * bits, readable = hc_max((bytes - 7) * 8 - first, 0);
    const int64_t inside = table->unit_bits ? hc_min(readable / table->unit_bits, units) : 0;
    hc_mask_writer writer = {.to = masks};
    add_units(table, metadata, (uint64_t)first, inside, &writer);
    if (inside < units) { /* the last windows, from a copy followed by zeros */
        const int64_t bit = first + inside * table->unit_bits;
        uint8_t end[64] = {0};
        if (bytes > bit / 8)
            memcpy(end, metadata + bit / 8, (size_t)(bytes - bit / 8));
        add_units(table, end, (uint64_t)bit % 8, units - inside, &writer);
    }
    const int64_t rest = columns - units * table->width;
    if (rest > 0) {
        uint64_t mask;
        hc_nm_masks(metadata, kept, table->n, table->m, first_block + units * (table->width / table->m), rest, &mask);
        append(&writer, mask, (unsigned)rest);
    }
    if (writer.n_pending > 0)
        *writer.to = writer.pending;
}
