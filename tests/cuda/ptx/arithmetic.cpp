/* Integers, floats, comparisons: instructions whose operands are registers alone. */
#include "ptx.h"

#include <algorithm>
#include <math.h>
#include <type_traits>

namespace ptx {
namespace {

template <typename T> using plain = std::make_unsigned_t<T>;
template <typename T>
using twice =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>>;

template <typename T> T add(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }
template <typename T> T subtract(T a, T b) { return (T)((uint64_t)a - (uint64_t)b); }
template <typename T> T multiply(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }
template <typename T> T multiply_high(T a, T b) { return (T)((twice<T>)a * (twice<T>)b >> 8 * sizeof(T)); }
template <typename T> T minimum(T a, T b) { return a < b ? a : b; }
template <typename T> T maximum(T a, T b) { return a > b ? a : b; }
template <typename T> T bits_and(T a, T b) { return a & b; }
template <typename T> T bits_or(T a, T b) { return a | b; }
template <typename T> T bits_xor(T a, T b) { return a ^ b; }

/* Of single precision, the ISA says that an instruction gives "an unspecified NaN": it has other bits in every other order. */
template <typename F> F result(F x) {
    if (x == x)
        return x;
    if constexpr (sizeof(F) == 4) {
        const uint32_t bits = nan_differs() ? 0xffc12345 : 0x7fffffff;
        memcpy(&x, &bits, 4);
    }
    return x;
}
template <typename F> F add_floats(F a, F b) { return result(a + b); }
template <typename F> F subtract_floats(F a, F b) { return result(a - b); }
template <typename F> F multiply_floats(F a, F b) { return result(a * b); }
template <typename F> F divide_floats(F a, F b) { return result(a / b); }
/* A NaN beside a number is that number; -0 < 0. */
template <typename F> F minimum_of_floats(F a, F b) {
    if (a != a || b != b)
        return a != a && b != b ? result(a) : a != a ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}
template <typename F> F maximum_of_floats(F a, F b) {
    if (a != a || b != b)
        return a != a && b != b ? result(a) : a != a ? b : a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}
float fused(float a, float b, float c) { return result(fmaf(a, b, c)); }
double fused(double a, double b, double c) { return fma(a, b, c); }

template <typename T, T f(T, T)> void binary(thread &t, const instruction &i) {
    put<T>(t, i, 0, f(get<T>(t, i, 1), get<T>(t, i, 2)));
}
template <typename T> void divide(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
    if (b == 0)
        stop(i, "divides by zero");
    if (std::is_signed_v<T> && b == (T)-1)
        put<T>(t, i, 0, subtract<T>(0, a));
    else
        put<T>(t, i, 0, (T)(a / b));
}
template <typename T> void remainder(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
    if (b == 0)
        stop(i, "divides by zero");
    put<T>(t, i, 0, std::is_signed_v<T> && b == (T)-1 ? (T)0 : (T)(a % b));
}
template <typename T> void negate(thread &t, const instruction &i) { put<T>(t, i, 0, subtract<T>(0, get<T>(t, i, 1))); }
template <typename T> void multiply_add(thread &t, const instruction &i) {
    put<T>(t, i, 0, add<T>(multiply<T>(get<T>(t, i, 1), get<T>(t, i, 2)), get<T>(t, i, 3)));
}
template <typename T> void multiply_wide(thread &t, const instruction &i) {
    put<twice<T>>(t, i, 0, (twice<T>)get<T>(t, i, 1) * (twice<T>)get<T>(t, i, 2));
}
template <typename T> void invert(thread &t, const instruction &i) { put<T>(t, i, 0, (T)~get<T>(t, i, 1)); }
void invert_predicate(thread &t, const instruction &i) { put<bool>(t, i, 0, !read(t, i, 1)); }
/* Counts beyond the width are the width. */
template <typename T> void shift_left(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1);
    const uint32_t by = get<uint32_t>(t, i, 2);
    put<T>(t, i, 0, by >= 8 * sizeof(T) ? (T)0 : (T)(a << by));
}
template <typename T> void shift_right(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1);
    const uint32_t by = get<uint32_t>(t, i, 2), most = 8 * sizeof(T) - 1;
    put<T>(t, i, 0, by > most ? (T)(std::is_signed_v<T> ? a >> most : 0) : (T)(a >> by));
}
template <typename T> void insert_bits(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
    const uint32_t first = get<uint32_t>(t, i, 3) & 255, n = get<uint32_t>(t, i, 4) & 255, width = 8 * sizeof(T);
    if (first >= width || n == 0)
        return put<T>(t, i, 0, b);
    const T mask = (T)((n >= width ? (T) ~(T)0 : (T)(((T)1 << n) - 1)) << first);
    put<T>(t, i, 0, (T)((b & (T)~mask) | ((T)(a << first) & mask)));
}
template <typename T> void extract_bits(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1);
    const uint32_t first = get<uint32_t>(t, i, 2) & 255, n = get<uint32_t>(t, i, 3) & 255, last = 8 * sizeof(T) - 1;
    const uint32_t sign = std::is_signed_v<T> && n ? (uint32_t)(a >> std::min(first + n - 1, last) & 1) : 0;
    plain<T> found = 0;
    for (uint32_t bit = 0; bit <= last; bit++) {
        const plain<T> one = bit < n && first + bit <= last ? (plain<T>)a >> (first + bit) & 1 : sign;
        found |= (plain<T>)(one << bit);
    }
    put<plain<T>>(t, i, 0, found);
}
/* Byte i of the result is the one that 3 bits of a nibble name; its fourth bit asks for copies of the sign. */
void permute_bytes(thread &t, const instruction &i) {
    const uint64_t all = get<uint32_t>(t, i, 1) | (uint64_t)get<uint32_t>(t, i, 2) << 32;
    const uint32_t which = get<uint32_t>(t, i, 3);
    uint32_t found = 0;
    for (int byte = 0; byte < 4; byte++) {
        const uint32_t nibble = which >> 4 * byte & 15, value = (uint32_t)(all >> 8 * (nibble & 7)) & 255;
        found |= (nibble & 8 ? (value & 128 ? 255u : 0u) : value) << 8 * byte;
    }
    put<uint32_t>(t, i, 0, found);
}
/* Bit 4 a + 2 b + c of the table. */
void look_up_logic(thread &t, const instruction &i) {
    const uint32_t a = get<uint32_t>(t, i, 1), b = get<uint32_t>(t, i, 2), c = get<uint32_t>(t, i, 3);
    const uint32_t table = get<uint32_t>(t, i, 4);
    uint32_t found = 0;
    for (int bit = 0; bit < 32; bit++)
        found |= (table >> ((a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)) & 1) << bit;
    put<uint32_t>(t, i, 0, found);
}

template <typename F> void fused_multiply_add(thread &t, const instruction &i) {
    put<F>(t, i, 0, fused(get<F>(t, i, 1), get<F>(t, i, 2), get<F>(t, i, 3)));
}
template <typename F> void root(thread &t, const instruction &i) { put<F>(t, i, 0, result((F)sqrt(get<F>(t, i, 1)))); }
template <typename F> void invert_float(thread &t, const instruction &i) {
    put<F>(t, i, 0, result(1 / get<F>(t, i, 1)));
}
template <typename F> void magnitude(thread &t, const instruction &i) {
    put<F>(t, i, 0, result((F)fabs(get<F>(t, i, 1))));
}
template <typename F> void negate_float(thread &t, const instruction &i) { put<F>(t, i, 0, result(-get<F>(t, i, 1))); }

/* The letters of a comparison: true if less, equal, greater, unordered. */
template <typename T, bool less, bool equal, bool greater, bool unordered>
void compare(thread &t, const instruction &i) {
    const T a = get<T>(t, i, 1), b = get<T>(t, i, 2);
    put<bool>(t, i, 0, a < b ? less : a == b ? equal : a > b ? greater : unordered);
}
template <typename T> void add_comparisons(opcodes &all, const std::string &type, bool is_float) {
    const auto add = [&](const char *name, handler *ordered, handler *also_unordered) {
        all["setp." + std::string(name) + "." + type] = {ordered, 3, NONE};
        if (is_float)
            all["setp." + std::string(name) + "u." + type] = {also_unordered, 3, NONE};
    };
    add("eq", compare<T, false, true, false, false>, compare<T, false, true, false, true>);
    add("ne", compare<T, true, false, true, false>, compare<T, true, false, true, true>);
    add("lt", compare<T, true, false, false, false>, compare<T, true, false, false, true>);
    add("le", compare<T, true, true, false, false>, compare<T, true, true, false, true>);
    add("gt", compare<T, false, false, true, false>, compare<T, false, false, true, true>);
    add("ge", compare<T, false, true, true, false>, compare<T, false, true, true, true>);
    if (is_float) {
        all["setp.num." + type] = {compare<T, true, true, true, false>, 3, NONE};
        all["setp.nan." + type] = {compare<T, false, false, false, true>, 3, NONE};
    }
}

template <typename T> void add_integers(opcodes &all, const std::string &type) {
    all["add." + type] = {binary<T, add<T>>, 3, NONE};
    all["sub." + type] = {binary<T, subtract<T>>, 3, NONE};
    all["mul.lo." + type] = {binary<T, multiply<T>>, 3, NONE};
    all["mul.hi." + type] = {binary<T, multiply_high<T>>, 3, NONE};
    all["mad.lo." + type] = {multiply_add<T>, 4, NONE};
    all["div." + type] = {divide<T>, 3, NONE};
    all["rem." + type] = {remainder<T>, 3, NONE};
    all["min." + type] = {binary<T, minimum<T>>, 3, NONE};
    all["max." + type] = {binary<T, maximum<T>>, 3, NONE};
    all["neg." + type] = {negate<T>, 2, NONE};
    all["shr." + type] = {shift_right<T>, 3, NONE};
    if constexpr (sizeof(T) > 2)
        all["bfe." + type] = {extract_bits<T>, 4, NONE};
    if constexpr (sizeof(T) < 8)
        all["mul.wide." + type] = {multiply_wide<T>, 3, NONE};
    add_comparisons<T>(all, type, false);
}

template <typename T> void add_bits(opcodes &all, const std::string &type) {
    all["and." + type] = {binary<T, bits_and<T>>, 3, NONE};
    all["or." + type] = {binary<T, bits_or<T>>, 3, NONE};
    all["xor." + type] = {binary<T, bits_xor<T>>, 3, NONE};
    all["not." + type] = {invert<T>, 2, NONE};
    all["shl." + type] = {shift_left<T>, 3, NONE};
    all["shr." + type] = {shift_right<T>, 3, NONE};
    all["setp.eq." + type] = all["setp.eq.u" + type.substr(1)];
    all["setp.ne." + type] = all["setp.ne.u" + type.substr(1)];
    if constexpr (sizeof(T) > 2)
        all["bfi." + type] = {insert_bits<T>, 5, NONE};
}

/* add, sub and mul of floats without .rn are unknown: ptxas may fuse them. So are .ftz and .approx. */
template <typename F> void add_floats_of(opcodes &all, const std::string &type) {
    all["add.rn." + type] = {binary<F, add_floats<F>>, 3, NONE};
    all["sub.rn." + type] = {binary<F, subtract_floats<F>>, 3, NONE};
    all["mul.rn." + type] = {binary<F, multiply_floats<F>>, 3, NONE};
    all["div.rn." + type] = {binary<F, divide_floats<F>>, 3, NONE};
    all["fma.rn." + type] = {fused_multiply_add<F>, 4, NONE};
    all["sqrt.rn." + type] = {root<F>, 2, NONE};
    all["rcp.rn." + type] = {invert_float<F>, 2, NONE};
    all["abs." + type] = {magnitude<F>, 2, NONE};
    all["neg." + type] = {negate_float<F>, 2, NONE};
    all["min." + type] = {binary<F, minimum_of_floats<F>>, 3, NONE};
    all["max." + type] = {binary<F, maximum_of_floats<F>>, 3, NONE};
    add_comparisons<F>(all, type, true);
}

} // namespace

void add_arithmetic(opcodes &all) {
    add_integers<uint16_t>(all, "u16");
    add_integers<int16_t>(all, "s16");
    add_integers<uint32_t>(all, "u32");
    add_integers<int32_t>(all, "s32");
    add_integers<uint64_t>(all, "u64");
    add_integers<int64_t>(all, "s64");
    add_bits<uint16_t>(all, "b16");
    add_bits<uint32_t>(all, "b32");
    add_bits<uint64_t>(all, "b64");
    add_floats_of<float>(all, "f32");
    add_floats_of<double>(all, "f64");
    all["and.pred"] = {binary<uint64_t, bits_and<uint64_t>>, 3, NONE};
    all["or.pred"] = {binary<uint64_t, bits_or<uint64_t>>, 3, NONE};
    all["xor.pred"] = {binary<uint64_t, bits_xor<uint64_t>>, 3, NONE};
    all["not.pred"] = {invert_predicate, 2, NONE};
    all["prmt.b32"] = {permute_bytes, 4, NONE};
    all["lop3.b32"] = {look_up_logic, 5, NONE};
}

} // namespace ptx
