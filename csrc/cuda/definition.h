/* The scalar definitions of csrc/formats/ as code of the device: the very sources, so that no format is defined twice.
 *
 * Every function and table between HC_DEFINITION and HC_DEFINITION_END that is `static` becomes one of the device. C++ asks
 * for a cast where C converts a void pointer: hc_part answers a pointer that converts.
 */
#ifndef HC_CUDA_DEFINITION_H
#define HC_CUDA_DEFINITION_H

#include "cuda/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

struct hc_any_pointer {
    void *pointer;
    template <typename type> HC_DEVICE operator type *() const { return (type *)pointer; }
};

#define _Alignas alignas
#define HC_STATIC static HC_DEVICE
#ifdef __CUDACC__
#pragma nv_diag_suppress 128, 177, 550, 1675 /* what a kernel does not use or reach, pragmas for other compilers */
#else
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* unroll */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wextra" /* enumerations among integers, as C has them */
#pragma GCC diagnostic ignored "-Wdeprecated-enum-enum-conversion"
#endif

#define static HC_STATIC
#include "cuda/params.h"
#define hc_part(...)                                                                                                   \
    hc_any_pointer { hc_part(__VA_ARGS__) }

#include "base/form.h"
#include "cuda/formats/quick.h"
#include "formats/bits.h"
#include "formats/format.h"
#include "formats/levels.h"
#include "formats/minifloat.h"
#undef static
#undef HC_FORMAT_OPS
#define HC_FORMAT_OPS(...) static_assert(true) /* the device has no table of functions */

static inline HC_DEVICE uint32_t hc_larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
/* The largest of 32 lanes, all of which call. */
static inline HC_DEVICE uint32_t hc_largest_of_warp(uint32_t value) {
#pragma unroll
    for (int mask = HC_WARP / 2; mask > 0; mask /= 2)
        value = hc_larger(value, hc_shuffle_xor(value, mask));
    return value;
}

#endif
