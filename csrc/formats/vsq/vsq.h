/* Names of the options of VS-Quant, and functions that the definition and the kernels share. */
#ifndef HC_VSQ_H
#define HC_VSQ_H

#include "formats/bits.h"
#include "formats/format.h"

static inline int vsq_scale_bits(const hc_format *format) { return format->option[0]; }
static inline bool vsq_has_two_levels(const hc_format *format) { return vsq_scale_bits(format) != 0; }
static inline bool vsq_is_unsigned(const hc_format *format) { return format->option[1] != 0; }
static inline bool vsq_has_tensor_coarse(const hc_format *format) { return format->option[2] != 0; }
static inline bool vsq_is_refit(const hc_format *format) { return format->option[3] != 0; }
/* The same format with one coarse scale for the whole array. */
static inline hc_format vsq_with_tensor_coarse(const hc_format *format) {
    hc_format shared = *format;
    shared.option[2] = 1;
    return shared;
}

static inline int32_t vsq_largest_code(const hc_format *format) {
    return hc_largest_code(format->bits, vsq_is_unsigned(format));
}
static inline int32_t vsq_largest_scale(const hc_format *format) {
    return hc_largest_code(vsq_scale_bits(format), true);
}

/* Largest of the integers in products: codes, for FOLDED times their integer scales. */
static inline int32_t vsq_largest_integer(const hc_format *format, hc_int_mode mode) {
    const bool folds = mode == HC_INT_FOLDED && vsq_has_two_levels(format);
    return vsq_largest_code(format) * (folds ? vsq_largest_scale(format) : 1);
}

#endif
