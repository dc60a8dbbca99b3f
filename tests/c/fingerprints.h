/* For every format on standard input, a hash of all output bytes: codes, values, matmuls with few and many rows, with
 * and without activations=. Then the same for the operations of operations.h. Two machines that print the same lines
 * compute the same bits.
 * A line of input:  TEXT N M FAMILY PARAMETERS ...   as tests/c/formats.py prints them.
 */
#ifndef HC_TEST_FINGERPRINTS_H
#define HC_TEST_FINGERPRINTS_H

#include "hc.h"

int fingerprints(void); /* the exit status: 1 if a call failed or instruction sets differ */

/* Splits a line of input into its text and the format; false if it holds no format. */
bool read_format(char *line, char **text, hc_format *format);

/* Adds the results for arrays with k columns to *hash; returns the status of the first call that fails. */
hc_status fingerprint(const hc_run *run, const hc_format *format, int64_t k, uint64_t *hash, hc_error *error);

#endif
