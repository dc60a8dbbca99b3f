/* The tables of formats and kernels, for those who only see hc.h. */
#include "formats/format.h"
#include "hc.h"
#include "kernels/kernel.h"

bool hc_family(int32_t number, const char **name, const char **description) {
    const hc_format_ops *ops = hc_format_find(number);
    if (!ops)
        return false;
    *name = ops->name;
    *description = ops->description;
    return true;
}

bool hc_format_fits_any_axis(const hc_format *format) {
    const hc_format_ops *ops = hc_format_find(format->family);
    return ops && format->m == 0 && ops->fits_any_axis && ops->fits_any_axis(format);
}

bool hc_kernel_line(int number, const char **family, const char **isa, uint32_t *needs) {
    int count;
    const hc_kernel *table = hc_kernels(&count);
    if (number < 0 || number >= count)
        return false;
    *family = table[number].name;
    *isa = table[number].isa;
    *needs = table[number].needs | table[number].also;
    return true;
}
