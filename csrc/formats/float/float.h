/* The options of small floats by name. */
#ifndef HC_FLOAT_H
#define HC_FLOAT_H

#include "formats/format.h"
#include "formats/minifloat.h"

enum { FLOAT_UNSCALED = 0, FLOAT_ROW_SCALED, FLOAT_TENSOR_SCALED, FLOAT_GROUP_SCALED, FLOAT_SCALINGS };

static inline int float_type(const hc_format *format) { return format->option[0]; } /* an hc_float_name */
static inline bool float_saturates(const hc_format *format) { return format->option[1] != 0; }
static inline int float_scaling(const hc_format *format) { return format->option[2]; }
/* Whether scales are stored by row: one per row or one per group. */
static inline bool float_has_scales(const hc_format *format) {
    return float_scaling(format) == FLOAT_ROW_SCALED || float_scaling(format) == FLOAT_GROUP_SCALED;
}

#endif
