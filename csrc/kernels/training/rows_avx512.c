/* hc_round_by_chance_avx512, hc_mark_inside_avx512 and hc_keep_marked_avx512: kernels/training/training.h. */
#define HC_LANES 16
#define HC_DOUBLES 8
#include "kernels/training/rows.h"

HC_TRAINING(avx512)
