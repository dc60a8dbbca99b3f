/* A dozen records of own formats. Python's definitions have others (heterocompute/formats/own.py): here they have to be
 * records that every function runs with, one for each path of the kernels. */
#include "records.h"

#include "formats/own/record.h"

#include <math.h>
#include <string.h>

typedef struct {
    int32_t bits, codes, whole;
    hc_own_float type; /* of floats */
    int32_t scale, scale_bits, sharing, block_rows, second, rule;
} sentence;

#define E4M3FN {8, 3, 7, 0x7e, 0, 0x7f}
#define E5M2 {8, 2, 15, 0x7b, 0x7c, 0x7e}
#define E2M1 {4, 1, 1, 0x7, 0, 0}
#define E5M10 {16, 10, 15, 0x7bff, 0x7c00, 0x7e00}

static const sentence SENTENCES[] = {
    {4, HC_CODES_INTEGER, 0, {0}, OWN_F32, 0, OWN_GROUP, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {2, HC_CODES_INTEGER, 0, {0}, OWN_BF16, 0, OWN_GROUP, 1, OWN_ONE_LEVEL, OWN_ABSMEAN}, /* ternary */
    {8, HC_CODES_INTEGER, 0, {0}, OWN_F16, 0, OWN_ROW, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {6, HC_CODES_INTEGER, 0, {0}, OWN_INTEGER, 6, OWN_GROUP, 1, OWN_SECOND_ROW, OWN_ABSMAX},
    {4, HC_CODES_FLOAT, 1, E2M1, OWN_E8M0, 0, OWN_GROUP, 1, OWN_ONE_LEVEL, OWN_FLOOR},
    {4, HC_CODES_FLOAT, 1, E2M1, OWN_FLOAT, 8, OWN_GROUP, 1, OWN_SECOND_TENSOR, OWN_ABSMAX},
    {8, HC_CODES_FLOAT, -1, E4M3FN, OWN_F32, 0, OWN_BLOCK, 2, OWN_ONE_LEVEL, OWN_ABSMAX},
    {8, HC_CODES_FLOAT, -1, E5M2, OWN_F32, 0, OWN_UNSCALED, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {5, HC_CODES_TABLE, -1, {0}, OWN_F32, 0, OWN_TENSOR, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {7, HC_CODES_TABLE, -1, {0}, OWN_FLOAT, 8, OWN_GROUP, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {16, HC_CODES_FLOAT, -1, E5M10, OWN_F32, 0, OWN_ROW, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
    {16, HC_CODES_INTEGER, -1, {0}, OWN_F16, 0, OWN_GROUP, 1, OWN_ONE_LEVEL, OWN_ABSMAX},
};
enum { N_SENTENCES = sizeof SENTENCES / sizeof *SENTENCES };

/* Codes by ascending level, and the middles between levels. A float has its sign in the highest bit. */
static void fill_table(hc_sentence *own) {
    const int n = 1 << own->bits, half = n / 2;
    int ranks = 0;
    for (int i = 0; i < n; i++) {
        const int code = own->codes == HC_CODES_TABLE ? i
                         : i < half                   ? (own->codes == HC_CODES_FLOAT ? n - 1 - i : i + half)
                                                      : i - half;
        if (own->codes == HC_CODES_INTEGER)
            own->level[code] = hc_sign_extend((uint32_t)code, own->bits);
        else if (own->codes == HC_CODES_FLOAT)
            own->level[code] = (double)own_decode_float(&own->type, (uint32_t)code);
        else /* uneven, with a 0 in the middle */
            own->level[code] = (double)(float)(sinh((i - half) * 3.0 / half) / sinh(3.0));
        const bool is_used = own->codes != HC_CODES_INTEGER || code != half;
        if (is_used && isfinite(own->level[code]))
            own->ranked[ranks++] = (uint8_t)code;
    }
    for (int i = 0; i + 1 < ranks; i++) {
        const double low = own->level[own->ranked[i]], high = own->level[own->ranked[i + 1]];
        own->bound[i] = low < high ? (low + high) / 2 : -0x1p-1074; /* between -0 and 0 */
    }
    own->ranks = ranks;
    own->most = fmax(fabs(own->level[own->ranked[0]]), own->level[own->ranked[ranks - 1]]);
}

static void fill(const sentence *given, hc_sentence *own) {
    memset(own, 0, sizeof *own);
    own->bits = given->bits;
    own->codes = given->codes;
    own->is_signed = own->saturates = 1;
    own->nan = own->minus_zero = -1;
    own->whole = given->whole;
    own->least = -INFINITY;
    for (int i = 0; i < HC_OWN_LEVELS; i++)
        own->bound[i] = INFINITY;
    if (given->codes == HC_CODES_INTEGER) {
        own->largest = (1 << (given->bits - 1)) - 1;
        own->lowest = -own->largest;
        own->most = own->largest;
    } else if (given->codes == HC_CODES_FLOAT) {
        own->type = given->type;
        own->places = given->type.fraction_bits;
        own->is_plain = given->bits == 8;
        own->nan = given->type.nan ? (int32_t)given->type.nan : -1;
        own->minus_zero = given->bits <= 8 ? 1 << (given->bits - 1) : -1;
        own->most = (double)own_decode_float(&own->type, own->type.largest);
    }
    if (given->bits <= 8)
        fill_table(own);
    own->target = own->most;
    own->scale = given->scale;
    own->scale_bits = given->scale_bits;
    own->sharing = given->sharing;
    own->block_rows = given->block_rows;
    own->second = given->second;
    own->rule = given->rule;
    static const hc_own_float types[OWN_N_SCALES] = {
        [OWN_F16] = E5M10, [OWN_BF16] = {16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0}, [OWN_FLOAT] = E4M3FN};
    own->scale_type = types[given->scale];
    own->largest_scale = given->scale == OWN_FLOAT ? 448 : 0;
}

int define_records(void) {
    static hc_sentence own;
    hc_error error;
    int32_t number;
    for (int i = 0; i < N_SENTENCES; i++) {
        fill(SENTENCES + i, &own);
        if (hc_sentence_define(&own, &number, &error) != HC_OK || number != i)
            return i;
    }
    return N_SENTENCES;
}
