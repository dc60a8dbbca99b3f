/* The kernels of a format, and the format as they take it. */
#ifndef HC_CUDA_FAMILIES_H
#define HC_CUDA_FAMILIES_H

#include "cuda/hc_cuda.h"

enum {
#define HC_FORMAT(name) FAMILY_##name,
#define HC_SIMD(name)
#include "formats/formats.def"
#undef HC_FORMAT
#undef HC_SIMD
    N_FAMILIES
};

typedef enum {
    HC_CUDA_ENCODE,
    HC_CUDA_DECODE,
    HC_CUDA_GEMV_PLAIN,
    HC_CUDA_INTEGERS,
    HC_CUDA_CHANCE,
    HC_CUDA_GEMV_KEPT,
    HC_CUDA_N_KERNELS
} hc_cuda_kernel;
typedef enum { HC_CUDA_ONE_VECTOR, HC_CUDA_VECTORS, HC_CUDA_KEPT_WORDS, HC_CUDA_N_WORDS_KERNELS } hc_cuda_words_kernel;
/* A kernel and its module; NULL: there is none. */
typedef struct {
    const char *module, *name;
} hc_cuda_entry;
hc_cuda_entry hc_cuda_kernel_of(const hc_format *format, hc_cuda_kernel kernel);
hc_cuda_entry hc_cuda_words_kernel_of(const hc_format *format, int bits, hc_cuda_words_kernel kernel);

/* The format itself, or for a sentence the format of the catalogue whose kernels give the same results. */
hc_format hc_cuda_stored_like(const hc_format *format, hc_cuda_kernel kernel);
/* The same for kernels of words of codes, which ask for the same scales: the table is an argument of theirs. */
hc_format hc_cuda_stored_like_in_words(const hc_format *format);

/* The format as kernels that decode take it. A step before them writes the record of the formats that they read by one (base/sentence.h)
 * to the workspace. */
hc_format hc_cuda_add_record(const hc_format *format, const hc_geometry *geometry, hc_cuda_plan *plan);

#endif
