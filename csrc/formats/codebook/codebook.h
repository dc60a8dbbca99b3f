/* The options of learned codebooks by name. */
#ifndef HC_CODEBOOK_H
#define HC_CODEBOOK_H

#include "formats/format.h"

static inline bool codebook_is_tensor(const hc_format *format) { return format->option[0] != 0; }
static inline int codebook_dim(const hc_format *format) { return format->option[1]; }

#endif
