/* For every format that standard input names, a number made of all bytes that come out: codes, values, products with
 * few and many rows, with and without activations=; then the same of the operations of operations.h. Two machines that
 * print the same lines give the same bits.
 * A line of input:  TEXT N M FAMILY PARAMETERS ...   as tests/c/formats.py prints them.
 */
#ifndef HC_TEST_FINGERPRINTS_H
#define HC_TEST_FINGERPRINTS_H

#include "hc.h"

int fingerprints(void); /* 0, or 1 if something failed, or instruction sets differ */

/* Cuts a line of input: its text, and the format; false where there is none. */
bool read_format(char *line, char **text, hc_format *format);

/* Adds to *hash what comes of arrays with k columns; ends at the first call that fails, as it did. */
hc_status fingerprint(const hc_run *run, const hc_format *format, int64_t k, uint64_t *hash, hc_error *error);

#endif
