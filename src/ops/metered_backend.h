#pragma once

#include <memory>

#include "base/clock.h"
#include "ops/backend.h"
#include "ops/step_shares.h"

namespace tandem::ops {

// `inner`, with the time of every operator of every step added to `meter` at the step's end. Results are
// inner's, bit for bit.
//
// For backends on the host only: their operators are done when they return, and their block() is the default
// one, which is run operator by operator here. A step counts what passed since the step before if it goes
// on with a request, as nothing but the host kept it waiting then.
// Thread and errors: as Backend. `clock` outlives the result.
[[nodiscard]] std::unique_ptr<Backend> make_metered_backend(std::unique_ptr<Backend> inner,
                                                            std::shared_ptr<ShareMeter> meter,
                                                            const Clock& clock);

}  // namespace tandem::ops
