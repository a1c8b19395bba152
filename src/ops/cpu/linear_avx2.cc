#define TANDEM_LINEAR linear_avx2
#include "ops/cpu/linear_float_impl.h"
