/* The n-th allocation of the core fails, n = 1, 2, ... until all of them are granted, for every format that standard
 * input names (as in fingerprints.h) and every operation of operations.h. Each time the call has to end with HC_MEMORY
 * and a sentence, or to do without and give the same bits; nothing may stay allocated, and the next call is as if nothing
 * had been. Our hooks have the names of the core's allocator, which is renamed (build.py).
 */
#ifndef HC_TEST_ALLOCATIONS_H
#define HC_TEST_ALLOCATIONS_H

int allocations(void); /* 0, or 1 if something else happened */

#endif
