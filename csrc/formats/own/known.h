/* A record, and what kernels read of it, made once. */
#ifndef HC_OWN_KNOWN_H
#define HC_OWN_KNOWN_H

#include "formats/own/record.h"
#include "formats/own/search.h"
#include "formats/planes.h"

typedef struct {
    hc_sentence sentence;
    own_search search;
    bool is_single;                          /* there is a table, and levels are float32 */
    bool has_infinity;                       /* among the levels */
    _Alignas(64) float level[HC_OWN_LEVELS]; /* by code */
    int8_t integer[HC_OWN_LEVELS];           /* levels times 2^whole, if there is a `whole` */
    hc_planes planes;                        /* of `level` */
    float scale[HC_OWN_LEVELS];              /* by code, of scales that are floats of up to 8 bits */
} own_known;

const own_known *hc_own_known_find(int32_t number); /* NULL: there is none */

#endif
