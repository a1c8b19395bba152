#define TANDEM_SUMS_NAMESPACE avx2
#include "ops/reference/sums_impl.h"
