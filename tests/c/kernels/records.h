/* Records of own formats, which have the numbers from 0. */
#ifndef HC_TEST_RECORDS_H
#define HC_TEST_RECORDS_H

int define_records(void); /* their number */

#endif
