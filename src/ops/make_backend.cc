#include "ops/make_backend.h"

#include "ops/cpu/backend.h"
#include "ops/reference/backend.h"

namespace tandem::ops {

std::unique_ptr<Backend> make_host_backend(OpsKind kind, int threads) {
  if (kind == OpsKind::Reference) return make_reference_backend();
  return make_cpu_backend({.threads = threads});
}

}  // namespace tandem::ops
