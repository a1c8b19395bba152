#include "base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace tandem {
namespace {

constexpr int kArchReqXcompPerm = 0x1023;
constexpr int kXfeatureXtileData = 18;

bool amx_permitted() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool tile_bf16 = (edx >> 22) & 1u;
  const bool tile = (edx >> 24) & 1u;
  return tile_bf16 && tile && syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtileData) == 0;
}

bool has_avx512bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && ((eax >> 5) & 1u);
}

CpuIsa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuIsa::Scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return CpuIsa::Avx2;
  if (!has_avx512bf16()) return CpuIsa::Avx512;
  return amx_permitted() ? CpuIsa::Amx : CpuIsa::Avx512Bf16;
}

std::atomic<CpuIsa>& in_use() {
  static std::atomic<CpuIsa> isa{detected_cpu_isa()};
  return isa;
}

}  // namespace

CpuIsa detected_cpu_isa() {
  static const CpuIsa isa = detect();
  return isa;
}

CpuIsa cpu_isa() { return in_use().load(std::memory_order_relaxed); }

bool cap_cpu_isa(CpuIsa highest) {
  if (highest > detected_cpu_isa()) return false;
  in_use().store(highest, std::memory_order_relaxed);
  return true;
}

std::string name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Scalar: return "scalar";
    case CpuIsa::Avx2: return "avx2";
    case CpuIsa::Avx512: return "avx512";
    case CpuIsa::Avx512Bf16: return "avx512bf16";
    case CpuIsa::Amx: return "amx";
  }
  return "?";
}

}  // namespace tandem
