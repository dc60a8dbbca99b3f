/* The types of blocks, and the table of levels. */
#ifndef HC_GGML_KINDS_H
#define HC_GGML_KINDS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *name;
    int8_t bits;
    bool is_signed;
    int16_t group, block;
    int8_t scale_bits; /* of the integer scales inside a block; 0: a group is a block */
    bool has_minimum, has_levels;
} hc_ggml_kind;

/* GGML_MAX_GROUP: largest group that is encoded together with others. */
enum { GGML_KINDS = 14, GGML_LEVELS = 16, GGML_MAX_GROUP = 32, GGML_MAX_BLOCK = 256 };

static const hc_ggml_kind GGML_KIND[GGML_KINDS] = {
    {"q4_0", 4, true, 32, 32, 0, false, false},    {"q4_1", 4, false, 32, 32, 0, true, false},
    {"q5_0", 5, true, 32, 32, 0, false, false},    {"q5_1", 5, false, 32, 32, 0, true, false},
    {"q8_0", 8, true, 32, 32, 0, false, false},    {"q2_k", 2, false, 16, 256, 4, true, false},
    {"q3_k", 3, true, 16, 256, 6, false, false},   {"q4_k", 4, false, 32, 256, 6, true, false},
    {"q5_k", 5, false, 32, 256, 6, true, false},   {"q6_k", 6, true, 16, 256, 8, false, false},
    {"iq4_nl", 4, false, 32, 32, 0, false, true},  {"iq4_xs", 4, false, 32, 256, 6, false, true},
    {"tq1_0", 2, true, 256, 256, 0, false, false}, {"tq2_0", 2, true, 256, 256, 0, false, false},
};

/* Codes -1, 0 and 1, with one scale per 256 values. */
static inline bool ggml_is_ternary(const hc_ggml_kind *kind) { return kind->group > GGML_MAX_GROUP; }

static const float GGML_LEVEL[GGML_LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

#endif
