/* The option of NVFP4 by name, and its fixed sizes. */
#ifndef HC_NVFP4_H
#define HC_NVFP4_H

#include "formats/format.h"
#include "formats/minifloat.h"

enum { NVFP4_GROUP = 16, NVFP4_BITS = 4, NVFP4_FRACTION_BITS = 1 /* of an element */ };

static inline bool nvfp4_is_four_over_six(const hc_format *format) { return format->option[0] != 0; }

/* The absmax of the array divided by p: the largest element times the largest scale. */
static inline float nvfp4_most(const hc_format *format) { return nvfp4_is_four_over_six(format) ? 1536.0f : 2688.0f; }

#endif
