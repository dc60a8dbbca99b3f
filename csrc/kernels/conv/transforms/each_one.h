/* The operations of fft_f32.h and winograd.h on one float. Included before each inclusion of them. */
#include <math.h>

#define HC_V float
#define HC_NAME(name) name##_one
#define HC_LOAD(at) (*(at))
#define HC_LOAD_SOME(at, some) (*((void)(some), (at)))
#define HC_STORE(at, value) (*(at) = (value))
#define HC_SET(value) (value)
#define HC_ADD(a, b) ((a) + (b))
#define HC_SUB(a, b) ((a) - (b))
#define HC_MUL(a, b) ((a) * (b))
#define HC_FMA(a, b, c) fmaf(a, b, c)
#define HC_RELU(a) ((a) <= 0 ? 0.0f : (a))
