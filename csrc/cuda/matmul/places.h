/* Positions of the nonzeros of a 2:4 pattern, as the sparse matrix units read them. */
#ifndef HC_CUDA_PLACES_H
#define HC_CUDA_PLACES_H

#include "cuda/device.h"

/* A block that nothing was kept of has no places yet: the first two, as zeros are there. */
static inline HC_DEVICE uint32_t hc_legal_places(uint32_t places) {
    const uint32_t differs = (places ^ places >> 2) & 0x33333333u;
    return places | (~(differs | differs >> 1) & 0x11111111u) << 2;
}

#endif
