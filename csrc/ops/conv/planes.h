/* Images whose planes lie one after the other (NCHW): which part of them is read at a time, and where. Adjacent pixels of
 * a row, or of a plane, are in lanes. A band is a rectangle of outputs of an image for one group: the pixels that it needs
 * are copied with their padding, unless none is needed and few filters read them or channels do not meet in L1. With a stride the pixels that a tap
 * reads lie next to each other in the copy: its rows and columns are phases.
 */
#ifndef HC_PLANES_H
#define HC_PLANES_H

#include "kernels/kernel.h"
#include "ops/conv/convolution.h"

/* Rows or columns. */
typedef struct {
    int64_t size, answers, taps, stride, dilation, before;
    int64_t phases;   /* of the copy, those that a tap reads */
    int64_t at_once;  /* outputs of a band */
    int64_t of_phase; /* rows or columns of a phase */
    int64_t bands;
} hc_planes_axis;

typedef struct {
    const hc_convolution *conv;
    int64_t lanes;
    hc_planes_axis axis[2];
    bool joined; /* an image is one row: 1 x 1 filters without stride */
    bool follow; /* rows of outputs are adjacent */
    bool in_place;
    int64_t channels; /* of a group */
    int64_t plane;    /* floats from a channel to the next */
    int64_t copied;   /* floats of a band */
    int64_t *tap;     /* floats from a pixel to that of each tap */
} hc_planes;

/* The rectangle at hand, and its registers of pixels: `per_row` in each of `rows`. A band of which a row is a part of a
 * register is one row, with the pixels between rows: `wide`. */
typedef struct {
    int64_t image, group, first[2], n[2];
    const float *x;
    bool wide;
    int64_t per_row, blocks;
} hc_planes_band;

/* NULL, or why planes are not read. */
const char *hc_planes_refuse(const hc_convolution *conv);
void hc_planes_init(hc_planes *planes, const hc_convolution *conv, int64_t lanes);
void hc_planes_taps(const hc_planes *planes, int64_t *tap);
/* Band `number` of all images and groups, without its pixels. */
hc_planes_band hc_planes_at(const hc_planes *planes, int64_t number);
/* Sets whether a band of this size is read as one row, and its registers. */
void hc_planes_count(const hc_planes *planes, hc_planes_band *band);
/* The same with them; `memory` has `copied` floats. */
hc_planes_band hc_planes_read(const hc_planes *planes, int64_t number, float *memory);
int64_t hc_planes_bands(const hc_planes *planes);
/* Registers of pixels of all bands. */
int64_t hc_planes_blocks(const hc_planes *planes);

/* Planes by one filter each of 3, 5 or 7 a side, by hc_plane_f32: a task is some planes, or rows of outputs of one. */
typedef struct {
    int64_t rows, together;
    int64_t converted_at, private_bytes; /* memory: the kernel's, then pixels that are converted */
} hc_plane_tasks;
/* False if the kernel does not compute these filters. converts: whether pixels are converted, or become codes. */
bool hc_plane_plan(const hc_convolution *conv, bool converts, hc_plane_tasks *tasks);
/* The work of `planes`, without conversions. */
hc_conv_work hc_plane_counts(const hc_convolution *conv, int64_t lanes);
/* The arguments for rows [row, row + down) of outputs, but for addresses and a number of planes. */
hc_plane hc_plane_of(const hc_convolution *conv, int64_t row, int64_t down);
/* The first of the n rows of the image that these rows of outputs need. */
int64_t hc_plane_rows(const hc_convolution *conv, int64_t row, int64_t down, int64_t *n);

#endif
