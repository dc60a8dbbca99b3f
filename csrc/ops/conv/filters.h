/* Filters as panels: k is (r, s, c), with nr filters next to each other. As many panels of one group as fit into
 * FILTER_BYTES are packed at a time, once, and read by all threads. */
#ifndef HC_FILTERS_H
#define HC_FILTERS_H

#include "ops/conv/windows.h"
#include "ops/product/pack.h"

typedef struct {
    const hc_convolution *conv;
    int nr;
    int64_t filters, columns; /* of a group */
    int64_t panels;           /* of a group */
    int64_t first;            /* of the group at hand */
    hc_filters context;
    hc_source source;
    hc_panels side; /* a panel's bytes: side.limb_bytes */
    hc_kc kc;
    int64_t end;
    int32_t steps;
} hc_filter_panels;

/* `line`: the kernel that reads the panels. Afterwards `group` is the current group. */
void hc_filter_panels_init(hc_filter_panels *panels, const hc_convolution *conv, const hc_kernel *line);
void hc_filter_panels_group(hc_filter_panels *panels, int64_t group);
/* Packs panel `panel` of the group into `to`; scratch has hc_pack_scratch bytes. Thread-safe. */
void hc_filter_panel(const hc_filter_panels *panels, int64_t panel, float *to, void *scratch);
/* The same without sorting, as lines (channel, tap) of adjacent filters; and whether the order of filters allows
 * lines. */
bool hc_filters_have_lines(const hc_filter_panels *panels);
void hc_filter_lines(const hc_filter_panels *panels, int64_t panel, float *to);
/* Packs filters of few channels, (r, s, c), with `beside` filters next to each other: blocks (r, s, c, filter), the
 * last one not filled. */
void hc_filter_taps(const hc_convolution *conv, int64_t beside, float *to);

/* Float32 filters of several channels that lie closer together than their channels: the number of units from the first to the
 * last of the taps of a channel, and the unit of each tap; at most HC_BESIDE_UNITS. 0 for all others. */
enum { HC_BESIDE_UNITS = 64 };
int64_t hc_filters_beside(const hc_convolution *conv, int64_t *tap);

#endif
