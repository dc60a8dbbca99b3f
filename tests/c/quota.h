/* Whether control group quotas are read as Linux writes them; true on other systems. */
#ifndef TEST_QUOTA_H
#define TEST_QUOTA_H

#include <stdbool.h>

bool quotas_are_read(void);

#endif
