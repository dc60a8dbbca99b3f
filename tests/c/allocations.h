/* Allocation n of the core fails, for n = 1, 2, ... until all are granted. This is done for every format on standard
 * input (as in fingerprints.h) and every operation of operations.h. Each failing call must end with HC_MEMORY and a
 * message, or do without the memory and give the same bits. Nothing may stay allocated, and the next call must succeed
 * as usual. The hooks have the names of the core's allocator, which build.py renames.
 */
#ifndef HC_TEST_ALLOCATIONS_H
#define HC_TEST_ALLOCATIONS_H

int allocations(void); /* the exit status: 1 if a call behaved otherwise */

#endif
