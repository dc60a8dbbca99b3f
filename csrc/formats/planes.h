/* A table of float32 as planes of bytes, which SIMD sets look up 16 at a time. Most tables are symmetric: planes hold the
 * levels of half of the codes, and the sign is a bit of the code.
 *
 *   plane[i][m]   byte i of the float32 of magnitude m, byte 3 the upper one
 *   level(code) = plane(m) with the sign of the code      m: the code without its sign bit, or its two's complement
 */
#ifndef HC_PLANES_H
#define HC_PLANES_H

#include "base/convert.h"

#include <string.h>

enum { HC_PLANES_EXCEPTIONS = 2 };
typedef enum { HC_PLANES_SIGN, HC_PLANES_COMPLEMENT, HC_PLANES_WHOLE, HC_N_PLANES_KINDS } hc_planes_kind;

typedef struct {
    int bits;
    int blocks;   /* of 16 entries of a plane: 1, 2, 4 or 8; 0: the table has no such form */
    int n_planes; /* 2 (bytes 0 and 1 are 0) or 4 */
    hc_planes_kind kind;
    int n_exceptions; /* codes that planes give another level */
    uint8_t exceptions[HC_PLANES_EXCEPTIONS];
    _Alignas(64) uint8_t plane[4][128];
} hc_planes;

/* m of a code, and the sign bit of float32. */
static inline uint32_t hc_planes_index(hc_planes_kind kind, int bits, uint32_t code, uint32_t *sign) {
    const uint32_t half = 1u << (bits - 1);
    *sign = kind != HC_PLANES_WHOLE && (code & half) ? 0x80000000u : 0;
    if (kind == HC_PLANES_COMPLEMENT && *sign)
        code = 0 - code;
    return code & (kind == HC_PLANES_WHOLE ? 2 * half - 1 : half - 1);
}

static inline bool hc_planes_try(const float *level, int bits, hc_planes_kind kind, hc_planes *planes) {
    const uint32_t codes = 1u << bits, entries = kind == HC_PLANES_WHOLE ? codes : codes / 2;
    uint32_t magnitude[128], all = 0;
    if (entries < 16 || entries > 128)
        return false;
    for (uint32_t m = 0; m < entries; m++) {
        magnitude[m] = hc_f32_bits(level[m]);
        all |= magnitude[m];
        for (int i = 0; i < 4; i++)
            planes->plane[i][m] = (uint8_t)(magnitude[m] >> (8 * i) & 255);
    }
    planes->bits = bits;
    planes->kind = kind;
    planes->blocks = (int)entries / 16;
    planes->n_planes = all & 0xffff ? 4 : 2;
    planes->n_exceptions = 0;
    for (uint32_t code = 0; code < codes; code++) {
        uint32_t sign;
        const uint32_t m = hc_planes_index(kind, bits, code, &sign);
        if ((magnitude[m] | sign) == hc_f32_bits(level[code]))
            continue;
        if (planes->n_exceptions == HC_PLANES_EXCEPTIONS)
            return false;
        planes->exceptions[planes->n_exceptions++] = (uint8_t)code;
    }
    if (planes->n_exceptions == 1)
        planes->exceptions[1] = planes->exceptions[0];
    return true;
}

/* The planes of a table of 5 to 8 bits. */
static inline void hc_planes_of(const float *level, int bits, hc_planes *planes) {
    memset(planes, 0, sizeof *planes);
    for (hc_planes_kind kind = HC_PLANES_SIGN; kind < HC_N_PLANES_KINDS; kind++)
        if (bits >= 5 && bits <= 8 && hc_planes_try(level, bits, kind, planes))
            return;
    planes->blocks = 0;
}

#endif
