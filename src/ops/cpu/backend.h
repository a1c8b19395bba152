#pragma once

#include <memory>

#include "base/cpu_features.h"
#include "ops/backend.h"

namespace tandem::ops {

struct CpuOptions {
  int threads = 1;         // of this rank, the rank's own included; >= 1
  int all_threads = 0;     // of all ranks of the process together, when more: decides whether waits may spin
  CpuIsa isa = cpu_isa();  // kernels up to this instruction set; at most what the machine has
};

// The fast CPU backend: weights packed once into huge pages, a team of threads, kernels for AMX, AVX-512 with
// and without BF16, AVX2 and plain x86-64.
//
// A row's results depend neither on the other rows of the step nor on the number of threads, bit for bit.
// They do depend on the instruction set. Padding rows (trash slot) compute and write nothing but zeros.
// `threads` below 1 counts as 1; an instruction set that the machine lacks counts as the best it has.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace tandem::ops
