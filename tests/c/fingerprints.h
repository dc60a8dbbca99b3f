/* For every format that standard input names, a number made of all bytes that come out: codes, values, products with
 * few and many rows, with and without activations=; then the same of the operations of operations.h. Two machines that
 * print the same lines give the same bits.
 * A line of input:  TEXT N M FAMILY PARAMETERS ...   as tests/c/formats.py prints them.
 */
#ifndef HC_TEST_FINGERPRINTS_H
#define HC_TEST_FINGERPRINTS_H

int fingerprints(void); /* 0, or 1 if something failed, or instruction sets differ */

#endif
