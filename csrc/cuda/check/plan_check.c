/* The launch that shows what the instructions of a device do. */
#include "cuda/steps.h"

hc_status hc_cuda_plan_check(const uint32_t *in, uint32_t *out, bool of_warpgroups, hc_cuda_plan *plan,
                             hc_error *error) {
    hc_cuda_begin(plan, NULL);
    if (of_warpgroups && plan->architecture != HC_CUDA_HOPPER)
        return hc_fail(error, HC_UNSUPPORTED, "the device has no matrix instructions of warpgroups");
    hc_cuda_step *step = of_warpgroups ? hc_cuda_add_step(plan, "check_90a", "hc_check_90a", 1, 1, 128,
                                                          HC_CUDA_CHECK_90A_SHARED, sizeof(hc_cuda_check))
                                       : hc_cuda_add_step(plan, "check", "hc_check_instructions", 1, 1, 32, 2 * 32 * 16,
                                                          sizeof(hc_cuda_check));
    step->params.check = (hc_cuda_check){in, out};
    return HC_OK;
}
