/* The record of a format. */
#ifndef HC_OWN_H
#define HC_OWN_H

#include "formats/own/record.h"

static inline int32_t own_number(const hc_format *format) { return format->option[0]; }
#ifndef HC_SENTENCE_OF /* kernels of a device have their own, cuda/formats/own.cu */
static inline const hc_sentence *hc_sentence_of(const hc_format *format) {
    return hc_sentence_find(own_number(format));
}
#endif

#endif
