/* Four columns of a mask as bytes of a lookup: the columns of the next nonzeros, and the nonzeros of the columns. */
#ifndef HC_KEPT_ARM_H
#define HC_KEPT_ARM_H

#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

/* 4 bytes of unit i of 32 bits; beyond all of them. */
#define UNIT(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
#define NONE 255, 255, 255, 255

static const uint8_t PLACED[16][16] = {{NONE, NONE, NONE, NONE},          {UNIT(0), NONE, NONE, NONE},
                                       {NONE, UNIT(0), NONE, NONE},       {UNIT(0), UNIT(1), NONE, NONE},
                                       {NONE, NONE, UNIT(0), NONE},       {UNIT(0), NONE, UNIT(1), NONE},
                                       {NONE, UNIT(0), UNIT(1), NONE},    {UNIT(0), UNIT(1), UNIT(2), NONE},
                                       {NONE, NONE, NONE, UNIT(0)},       {UNIT(0), NONE, NONE, UNIT(1)},
                                       {NONE, UNIT(0), NONE, UNIT(1)},    {UNIT(0), UNIT(1), NONE, UNIT(2)},
                                       {NONE, NONE, UNIT(0), UNIT(1)},    {UNIT(0), NONE, UNIT(1), UNIT(2)},
                                       {NONE, UNIT(0), UNIT(1), UNIT(2)}, {UNIT(0), UNIT(1), UNIT(2), UNIT(3)}};

/* The next units in their columns, 0 in all others. */
static inline uint8x16_t placed(uint8x16_t next, unsigned bits) { return vqtbl1q_u8(next, vld1q_u8(PLACED[bits])); }

/* All ones in the columns whose bit is set. */
static inline uint32x4_t columns_of(unsigned bits) {
    return vmvnq_u32(vceqq_u32(vreinterpretq_u32_u8(vld1q_u8(PLACED[bits])), vdupq_n_u32(UINT32_MAX)));
}

/* 4 units, of which `left` may be read. */
static inline uint8x16_t next_units(const void *kept, int64_t left) {
    uint8_t units[16] = {0};
    if (left >= 4)
        return vld1q_u8(kept);
    memcpy(units, kept, (size_t)left * 4);
    return vld1q_u8(units);
}

#endif
