/* Few windows times dense filters that are read as they are stored: the form of `direct` for layers of one pixel, such as
 * those of squeeze-and-excite. No panels are packed, which would take longer than the products. The chains are those of
 * `direct`. Memory: the windows of a group.
 */
#ifndef HC_CONV_FEW_H
#define HC_CONV_FEW_H

#include "ops/conv/convolution.h"

bool hc_conv_is_few(const hc_convolution *conv);
hc_status hc_conv_few_run(const hc_convolution *conv, hc_error *error);

#endif
