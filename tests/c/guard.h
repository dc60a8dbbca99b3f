/* Memory that ends on a page which nobody may touch, and whose slack in front is watched.
 *
 *   | slack, poisoned ... | the bytes asked for | forbidden page |
 */
#ifndef HC_TEST_GUARD_H
#define HC_TEST_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Poisoned bytes; they live until guard_release. Ends the program when there is no memory. */
void *guard_alloc(size_t bytes);

/* Frees all; false where something wrote into a slack. */
bool guard_release(void);

/* The canary: whether one byte past the end kills a child process, and one in front is seen. */
bool guard_works(void);

#endif
