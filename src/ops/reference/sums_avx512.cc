#define TANDEM_SUMS_NAMESPACE avx512
#include "ops/reference/sums_impl.h"
