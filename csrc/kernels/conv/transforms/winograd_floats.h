/* Definitions for winograd.h with floats: the unchanged matrices. Included before each inclusion of it. */
#ifndef HC_WINOGRAD_FLOATS
#define HC_WINOGRAD_FLOATS
/* G: the first value of row 0, then the rows of +p. */
static const float FIRST[3] = {1, 0.25f, 1};
static const float FILTER[3][3][4] = {
    {{0.5f, 0.5f, 0.5f, 0.5f}},
    {{-1.0f / 6, -1.0f / 6, -1.0f / 6, -1.0f / 6}, {1.0f / 24, 1.0f / 12, 1.0f / 6, 1.0f / 3}},
    {{-2.0f / 9, -2.0f / 9, -2.0f / 9, -2.0f / 9},
     {1.0f / 90, 1.0f / 45, 2.0f / 45, 4.0f / 45},
     {32.0f / 45, 16.0f / 45, 8.0f / 45, 4.0f / 45}}};
#endif
#define HC_T float
#define HC_FIRST(n) FIRST[(n) / 2 - 2]
#define HC_G(n, pair) FILTER[(n) / 2 - 2][pair]
#define HC_FACTOR(n, i, x) (x)
#define HC_WHOLE(n, dims, x) (x)
