/* What the encoding lines of every ISA agree on (kernels/encode_rows.h). */
#ifndef HC_ENCODE_H
#define HC_ENCODE_H

#include "base/convert.h"
#include "base/packed.h"

#include <math.h>

/* Which magnitudes: |x|, max(x, 0), max(-x, 0). */
enum { HC_ABSOLUTE, HC_POSITIVE, HC_NEGATIVE };

/* Codes that cannot leave their range; signed ones that can; unsigned ones; unsigned ones with a zero point. */
typedef enum { HC_CODES_PLAIN, HC_CODES_SIGNED, HC_CODES_UNSIGNED, HC_CODES_SHIFTED } hc_code_mode;

typedef struct {
    float near;        /* a quotient this far from its integer may lie beyond the midpoint */
    int32_t low, high; /* of codes */
} hc_code_range;

#endif
