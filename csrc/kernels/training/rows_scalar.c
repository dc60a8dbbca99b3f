/* hc_round_by_chance_scalar, hc_mark_inside_scalar, hc_note_factors_scalar and hc_keep_marked_scalar:
 * kernels/training/training.h. */
#define HC_LANES 8
#define HC_DOUBLES 2
#include "kernels/training/rows.h"

HC_ROUND_BY_CHANCE(scalar)
HC_MARKED(scalar)
