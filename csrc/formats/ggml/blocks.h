/* Conversion of blocks of values in the order of ggml (src/ggml-common.h) to the components of an array and back. A
 * block is a sequence of fields: float16 numbers, bytes, the small integers of its groups, base-3 digits, and planes. A
 * plane has some bits of each code. A byte of a plane combines codes that are `inner` apart:
 *
 *   byte a * inner + l of a plane = sum over i of (bits of code (a * n + i) * inner + l) << (i * width), n = 8 / width
 */
#ifndef HC_GGML_BLOCKS_H
#define HC_GGML_BLOCKS_H

#include "base/packed.h"

typedef enum {
    HC_FIELD_END,
    HC_FIELD_SCALE,   /* float16 */
    HC_FIELD_MINIMUM, /* float16 */
    HC_FIELD_COARSE,  /* float16: first or second number of the block */
    HC_FIELD_BYTES,   /* of scales, one each for 32 or 16 values */
    HC_FIELD_SMALL,   /* the small integers, in the layout of the type */
    HC_FIELD_PLANE,
    HC_FIELD_TRITS, /* codes of 0 to 2, five to a byte */
} hc_field_kind;
typedef struct {
    hc_field_kind kind;
    int8_t shift, width; /* of a plane; for coarse numbers shift is the index of the number */
    int16_t inner;
} hc_field;

enum { HC_MAX_FIELDS = 6, HC_MAX_BLOCK = 256 };
typedef enum { HC_SMALL_NONE, HC_SMALL_Q2, HC_SMALL_Q3, HC_SMALL_Q4, HC_SMALL_Q6, HC_SMALL_IQ4 } hc_small_kind;
typedef struct {
    const char *name;
    int8_t bits;
    uint8_t offset;      /* the stored code is this package's code plus offset, modulo 2^bits */
    bool has_minus_zero; /* the code of minus zero, 8, is written as 0 */
    int16_t block;
    int8_t groups;     /* groups per block, each with a scale */
    int8_t scale_bits; /* of packed scales; 0: float16, or bytes */
    hc_small_kind small;
    hc_field field[HC_MAX_FIELDS];
} hc_block_kind;

const hc_block_kind *hc_find_blocks(const char *name); /* NULL: there are none */
int64_t hc_block_bytes(const hc_block_kind *kind);
/* Bytes of a component of one block, 0 if the block does not have it. */
int64_t hc_block_part(const hc_block_kind *kind, hc_component_id id);

/* Blocks of a row. */
void hc_blocks_to_row(const hc_block_kind *kind, int64_t blocks, const uint8_t *from, const hc_components *to,
                      int64_t row);
void hc_blocks_from_row(const hc_block_kind *kind, int64_t blocks, const hc_components *from, int64_t row, uint8_t *to);

#endif
