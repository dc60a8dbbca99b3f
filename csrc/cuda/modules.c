/* The kernels as they were built: a fatbin a .cu file, in the extension, for whoever opens a driver. setup.py names the files;
 * a build without nvcc has none.
 */
#include "cuda/hc_cuda.h"

#ifdef HC_CUDA_MODULES

#define HC_MODULE(name, path)                                                                                          \
    __asm__(".section .rodata\n"                                                                                       \
            ".balign 16\n"                                                                                             \
            "hc_cuda_begin_" #name ":\n"                                                                               \
            ".incbin \"" path "\"\n"                                                                                   \
            "hc_cuda_end_" #name ":\n"                                                                                 \
            ".text\n");                                                                                                \
    extern const unsigned char hc_cuda_begin_##name[] __attribute__((visibility("hidden")));                           \
    extern const unsigned char hc_cuda_end_##name[] __attribute__((visibility("hidden")));
#include HC_CUDA_MODULES
#undef HC_MODULE

static const struct {
    const char *name;
    const unsigned char *begin, *end;
} MODULES[] = {
#define HC_MODULE(name, path) {#name, hc_cuda_begin_##name, hc_cuda_end_##name},
#include HC_CUDA_MODULES
#undef HC_MODULE
};

bool hc_cuda_module(int number, hc_cuda_image *image) {
    if (number < 0 || number >= (int)(sizeof MODULES / sizeof *MODULES))
        return false;
    *image = (hc_cuda_image){MODULES[number].name, MODULES[number].begin, MODULES[number].end - MODULES[number].begin};
    return true;
}

#else

bool hc_cuda_module(int number, hc_cuda_image *image) {
    (void)number, (void)image;
    return false;
}

#endif
