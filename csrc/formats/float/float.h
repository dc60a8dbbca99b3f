/* The options of small floats by name. */
#ifndef HC_FLOAT_H
#define HC_FLOAT_H

#include "formats/format.h"
#include "formats/minifloat.h"

enum { FLOAT_UNSCALED = 0, FLOAT_ROW_SCALED, FLOAT_TENSOR_SCALED };

static inline int float_type(const hc_format *format) { return format->option[0]; } /* an hc_float_name */
static inline bool float_saturates(const hc_format *format) { return format->option[1] != 0; }
static inline int float_scaling(const hc_format *format) { return format->option[2]; }

#endif
