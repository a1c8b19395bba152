#pragma once

#include <memory>

#include "comm/group.h"

namespace tandem::comm {

// One rank: collectives leave the data as it is, and are counted like any other.
[[nodiscard]] std::shared_ptr<Group> make_world_of_one();

}  // namespace tandem::comm
