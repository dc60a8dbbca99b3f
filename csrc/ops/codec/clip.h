/* Thresholds that replace absmax (formats/format.h: clip_domain): one float32 T for the values of each group. */
#ifndef HC_CLIP_H
#define HC_CLIP_H

#include "ops/codec/encoding.h"

/* NULL if the clip is valid for the format, otherwise the reason with the expected value. */
hc_status hc_clip_check(const hc_clip *clip, const hc_format *format, const char *name, hc_error *error);

/* `inside` of hc_octav_fn. */
double hc_clip_inside(const hc_format *format);

/* True if all groups have one threshold, that of the whole array: HC_CLIP_WHOLE, or one scale for all values. */
bool hc_clip_is_whole(const hc_format *format);

/* Thresholds of x->rows rows, (rows, groups). scratch: doubles for one group, at least HC_OCTAV_SCRATCH. Returns the
 * first row with an invalid value (its thresholds are then 0), or HC_DONE. */
int64_t hc_clip_thresholds(const hc_clip *clip, const hc_format *format, const hc_geometry *geometry, uint32_t isa,
                           const hc_float_rows *x, double *scratch, float *thresholds);

/* Finds encoder->threshold if one threshold is for all values. Memory: 12 bytes per value, 16 for float64. An invalid
 * value is not reported here: the later passes find it again. */
hc_status hc_clip_whole(hc_encoder *encoder, uint32_t isa, hc_error *error);

#endif
