/* hc_round_by_chance_avx2, hc_mark_inside_avx2, hc_note_factors_avx2 and hc_keep_marked_avx2:
 * kernels/training/training.h. */
#define HC_LANES 8
#define HC_DOUBLES 4
#include "kernels/training/rows.h"

HC_ROUND_BY_CHANCE(avx2)
HC_MARKED(avx2)
