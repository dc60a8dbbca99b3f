/* cvt between integers, to floats, to integers that saturate, and to whole numbers. */
#include "ptx.h"

#include <cmath>

namespace ptx {
namespace {

/* The value of an integer register as the 64 bits of its type. */
uint64_t widened(uint64_t bits, type what) {
    const int shift = 64 - 8 * bytes_of(what);
    return is_signed(what) ? (uint64_t)((int64_t)(bits << shift) >> shift) : bits << shift >> shift;
}

/* A result is widened by its type to the width of the register. */
void put_integer(thread &t, const instruction &i, uint64_t value) {
    const int shift = 64 - 8 * i.width;
    write(t, i, 0, widened(value, i.what) << shift >> shift);
}

double rounded(double x, uint8_t how) {
    switch (how) {
    case 'n':
        return std::nearbyint(x); /* to even: the mode of the host */
    case 'z':
        return std::trunc(x);
    case 'm':
        return std::floor(x);
    default:
        return std::ceil(x);
    }
}

} // namespace

void convert_integer(thread &t, const instruction &i) { put_integer(t, i, widened(read(t, i, 1), i.from)); }

void convert_to_float(thread &t, const instruction &i) {
    const uint64_t value = widened(read(t, i, 1), i.from);
    if (i.what == F32)
        put<float>(t, i, 0, is_signed(i.from) ? (float)(int64_t)value : (float)value);
    else
        put<double>(t, i, 0, is_signed(i.from) ? (double)(int64_t)value : (double)value);
}

/* Beyond the range is its end; NaN is 0 of single precision to at most 32 bits, and otherwise the highest bit alone. */
void convert_to_integer(thread &t, const instruction &i) {
    const double x = i.from == F32 ? get<float>(t, i, 1) : get<double>(t, i, 1);
    const int bits = 8 * bytes_of(i.what);
    if (x != x)
        return put_integer(t, i, i.from == F32 && bits <= 32 ? 0 : (uint64_t)1 << (bits - 1));
    const double value = rounded(x, i.rounding), end = std::ldexp(1, is_signed(i.what) ? bits - 1 : bits);
    if (is_signed(i.what)) {
        const uint64_t most = ((uint64_t)1 << (bits - 1)) - 1;
        put_integer(t, i, value >= end ? most : value < -end ? ~most : (uint64_t)(int64_t)value);
    } else
        put_integer(t, i, value >= end ? ~(uint64_t)0 >> (64 - bits) : value <= 0 ? 0 : (uint64_t)value);
}

void convert_half(thread &t, const instruction &i) {
    float x = hc_half_value(get<uint16_t>(t, i, 1));
    if (x != x) {
        const uint32_t bits = nan_differs() ? 0xffc12345 : 0x7fffffff;
        memcpy(&x, &bits, 4);
    }
    put<float>(t, i, 0, x);
}

void convert_float(thread &t, const instruction &i) {
    if (i.rounding)
        return put<double>(t, i, 0, rounded(get<double>(t, i, 1), i.rounding));
    if (i.what == F64)
        return put<double>(t, i, 0, get<float>(t, i, 1));
    float x = (float)get<double>(t, i, 1);
    if (x != x) {
        const uint32_t bits = nan_differs() ? 0xffc12345 : 0x7fffffff;
        memcpy(&x, &bits, 4);
    }
    put<float>(t, i, 0, x);
}

} // namespace ptx
