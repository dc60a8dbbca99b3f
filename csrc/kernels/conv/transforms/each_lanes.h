/* The operations of fft_f32.h and winograd.h on vectors of floats: base/lanes/. Included before each inclusion of them. */
#define HC_V lanes
#define HC_NAME(name) name##_lanes
#define HC_LOAD lanes_load
#define HC_LOAD_SOME(at, some) ((some) == LANES ? lanes_load(at) : lanes_load_some(at, some))
#define HC_STORE lanes_store
#define HC_SET lanes_of
#define HC_ADD lanes_add
#define HC_SUB lanes_sub
#define HC_MUL lanes_mul
#define HC_FMA lanes_fma
#define HC_RELU lanes_relu
