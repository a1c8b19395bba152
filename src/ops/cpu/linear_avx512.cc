#define TANDEM_LINEAR linear_avx512
#include "ops/cpu/linear_float_impl.h"
