/* Thresholds that take the place of absmax (formats.h: clip_domain): one float32 T for the values of each group. */
#ifndef HC_CLIP_H
#define HC_CLIP_H

#include "ops/codec/encoding.h"

/* NULL where the clip is legal for the format, else the reason with what was wanted. */
hc_status hc_clip_check(const hc_clip *clip, const hc_format *format, const char *name, hc_error *error);

/* Thresholds of x->rows rows, (rows, groups). scratch: doubles for one group, HC_OCTAV_SCRATCH at least. Returns the first row with a value
 * that is not legal (its thresholds are then 0), else HC_DONE. */
int64_t hc_clip_thresholds(const hc_clip *clip, const hc_format *format, const hc_geometry *geometry, uint32_t isa,
                           const hc_float_rows *x, double *scratch, float *thresholds);

/* Finds encoder->threshold, if one is for all values. Memory: 12 bytes a value, 16 of float64. An illegal value is left to
 * the passes, which meet it again. */
hc_status hc_clip_whole(hc_encoder *encoder, uint32_t isa, hc_error *error);

#endif
