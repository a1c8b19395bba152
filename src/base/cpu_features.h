#pragma once

#include <string>

namespace tandem {

// Instruction sets that kernels dispatch on, each including the ones before it.
enum class CpuIsa { Scalar, Avx2, Avx512, Avx512Bf16, Amx };

// The best one that this processor and kernel allow. AMX needs the kernel's permission, which the
// first call asks for. Thread: any; measured once.
[[nodiscard]] CpuIsa detected_cpu_isa();

// The one in use: the detected one, or a lower one asked for with --cpu-isa. Process-wide, set
// before the first kernel runs; asking for more than the machine has is refused (returns false).
[[nodiscard]] CpuIsa cpu_isa();
[[nodiscard]] bool cap_cpu_isa(CpuIsa highest);

[[nodiscard]] std::string name(CpuIsa isa);  // "scalar", "avx2", "avx512", "avx512bf16", "amx"

}  // namespace tandem
