/* The launch at hand, and the memory of the device. */
#ifndef HC_TESTS_PTX_KERNELS_H
#define HC_TESTS_PTX_KERNELS_H

#include "ptx.h"

namespace ptx {

struct allocation {
    uint64_t begin, bytes;
};
extern std::vector<allocation> allocations; /* ascending; empty: not known */
bool is_constant(const module *home, uint64_t address, uint32_t bytes);
void clear_shared();

/* Lanes of a warp, and threads of the block at a barrier. */
struct warp_state {
    const instruction *at; /* where the first arrived */
    uint32_t arrived;
};
extern std::vector<warp_state> warps;
extern uint32_t block_threads, at_barrier;

/* traffic.cpp: requests of warps, their wavefronts of shared memory or sectors of global memory, and the least of these. */
struct traffic {
    uint64_t requests, units, least;
};
void note_access(const thread &t, const instruction &i, space where, uint64_t address, uint32_t bytes);
void meet_traffic(uint32_t warp);
void end_traffic(); /* of a block */
traffic take_traffic(const instruction &i, space where);

} // namespace ptx

#endif
