#include "hostile.h"

#include "guard.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint64_t state;
static bool is_shifted;

void hostile_begin(uint64_t seed, bool shifted) {
    state = seed;
    is_shifted = shifted;
}

uint64_t draw(void) { /* splitmix64 */
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int64_t draw_below(int64_t n) { return (int64_t)(draw() >> 1) % n; }

void *items(int64_t n, int64_t size) {
    const int64_t behind = is_shifted ? size * draw_below(64) : 0;
    return guard_alloc_before((size_t)(n * size), (size_t)behind);
}

void *copy_of(const void *from, int64_t n, int64_t size) {
    void *to = items(n, size);
    memcpy(to, from, (size_t)(n * size));
    return to;
}

const char *float_kind_name(float_kind kind) {
    static const char *const NAMES[] = {"plain", "zeros", "ties", "tiny", "huge", "special"};
    return NAMES[kind];
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float draw_float(float_kind kind) {
    const uint64_t bits = draw();
    const float sign = bits & 1 ? -1 : 1;
    const int one_of_16 = (int)(bits >> 1 & 15);
    const float plain = sign * from_bits((uint32_t)(bits >> 5 & 0x7fffff) | (uint32_t)(123 + (bits >> 28 & 7)) << 23);
    switch (kind) {
    case ZEROS:
        return one_of_16 < 14 ? sign * 0.0f : plain;
    case TIES: /* the last bit of (1 + i / 2^12) (1 + j / 2^12) is 2^-24 */
        return sign * (1 + (float)(bits >> 5 & 7) * 0x1p-12f) * (one_of_16 < 4 ? 0x1p-12f : 1);
    case TINY:
        return sign * (one_of_16 < 8 ? from_bits((uint32_t)(bits >> 5 & 0x7fffff)) : plain * 0x1p-70f);
    case HUGE_ONES:
        return one_of_16 < 8 ? sign * FLT_MAX : one_of_16 < 14 ? plain * 0x1p120f : plain;
    case SPECIAL:
        return one_of_16 == 0 ? NAN : one_of_16 == 1 ? sign * INFINITY : one_of_16 == 2 ? sign * 0.0f : plain;
    default:
        return plain;
    }
}

void draw_floats(float *x, int64_t n, float_kind kind) {
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_float(kind);
}

float *floats(int64_t n, float_kind kind) {
    float *x = items(n, sizeof *x);
    draw_floats(x, n, kind);
    return x;
}

const char *integer_kind_name(integer_kind kind) {
    static const char *const NAMES[] = {"any", "ends", "least", "most"};
    return NAMES[kind];
}

int64_t draw_integer(int64_t least, int64_t most, integer_kind kind) {
    const uint64_t bits = draw(), span = (uint64_t)most - (uint64_t)least + 1; /* 0: the whole range of 64 bits */
    if (kind == ANY)
        return (int64_t)((uint64_t)least + (span ? bits % span : bits));
    return kind == LEAST || (kind == ENDS && (bits & 1)) ? least : most;
}

void *random_bytes(int64_t n) {
    uint8_t *bytes = items(n, 1);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)draw();
    return bytes;
}

unsigned bits_at(const uint8_t *from, int64_t i, int bits) {
    unsigned value = 0;
    for (int b = 0; b < bits; b++)
        value |= (from[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1u) << b;
    return value;
}

void put_bits(uint8_t *to, int64_t i, int bits, unsigned value) {
    for (int b = 0; b < bits; b++) {
        const int64_t at = i * bits + b;
        to[at / 8] = (uint8_t)((to[at / 8] & ~(1u << at % 8)) | (value >> b & 1u) << at % 8);
    }
}
