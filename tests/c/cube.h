/* A 512 x 512 x 512 matmul, so that an emulator can count the instructions of a whole call. */
#ifndef HC_TEST_CUBE_H
#define HC_TEST_CUBE_H

/* cube("int8" or "float32", "TIMES"): computes x @ w.T TIMES times in one thread; returns the exit status. */
int cube(int n_arguments, char **arguments);

#endif
