#pragma once

#include <memory>

#include "ops/backend.h"

namespace tandem::ops {

// The plain backend: one thread, one loop a formula, every rounding of Hugging Face's torch path. The
// oracle of the fast ones (--ops reference), and the only one with chunked = whole bit for bit.
// Slow on purpose where plain and fast differ; it takes scratch from the heap while it runs.
[[nodiscard]] std::unique_ptr<Backend> make_reference_backend();

}  // namespace tandem::ops
