/* Memory that ends on a page which nobody may touch, and whose slack is watched.
 *
 *   | slack, poisoned ... | the bytes asked for | slack, poisoned, or none | forbidden page |
 */
#ifndef HC_TEST_GUARD_H
#define HC_TEST_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Poisoned bytes; they live until guard_release. Ends the program when there is no memory. */
void *guard_alloc(size_t bytes);

/* The same, `behind` bytes before the forbidden page: at any address, for which overruns are seen where they write. */
void *guard_alloc_before(size_t bytes, size_t behind);

/* Frees all; false where something wrote into a slack. */
bool guard_release(void);

/* The block that is nearest to an address; NULL where none is. */
const void *guard_nearest(const void *address, size_t *bytes);

/* The canary: whether one byte past the end kills a child process, and one in front or behind is seen. */
bool guard_works(void);

#endif
