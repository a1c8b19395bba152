#pragma once

#include <memory>

#include "ops/backend.h"

namespace tandem::ops {

enum class OpsKind { Reference, Cpu };  // --ops

// A backend on the host. `threads` >= 1: the team of --ops cpu, the rank's own thread included.
// Thread: the rank's, as everything of a backend.
[[nodiscard]] std::unique_ptr<Backend> make_host_backend(OpsKind kind, int threads);

}  // namespace tandem::ops
