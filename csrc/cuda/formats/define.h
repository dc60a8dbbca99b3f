/* The definition of a format, HC_DEFINITION, as code of the device; where HC_QUICKLY is defined, also with products in place
 * of quotients (quick.h). A format includes this file once.
 */
#define static HC_STATIC
namespace definition {
#include HC_DEFINITION
}
#ifdef HC_QUICKLY
namespace quick {
using namespace definition;
#undef HC_QUICK
#define HC_QUICK HC_QUICK_OR_UNSURE
#include HC_DEFINITION
} // namespace quick
#endif
#undef static
