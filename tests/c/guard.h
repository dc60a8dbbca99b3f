/* Memory that ends at a forbidden page, with poisoned slack around it that is checked for writes.
 *
 *   | slack, poisoned ... | the bytes asked for | slack, poisoned, or none | forbidden page |
 */
#ifndef HC_TEST_GUARD_H
#define HC_TEST_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Poisoned bytes that last until guard_release. Exits if there is no memory. */
void *guard_alloc(size_t bytes);

/* The same, ending `behind` bytes before the forbidden page, so at any address. Only writes of an overrun are seen. */
void *guard_alloc_before(size_t bytes, size_t behind);

/* Frees all blocks; false if something wrote into a slack. */
bool guard_release(void);

/* The block nearest to an address; NULL if there is none. */
const void *guard_nearest(const void *address, size_t *bytes);

/* Whether the guard works: a byte past the end kills a child process, and a byte in a slack is seen. */
bool guard_works(void);

#endif
