#pragma once

#include <filesystem>

#include "base/result.h"
#include "server/model_card.h"

namespace tandem::cli {

// What requests without the field get: the folder's generation_config.json where it has one (temperature,
// top_p, top_k, min_p, repetition_penalty; greedy if do_sample is false), else the API's own defaults.
// Errors: Invalid, with file, field, value and the range that works.
[[nodiscard]] Result<server::SamplingDefaults> read_sampling_defaults(const std::filesystem::path& folder);

}  // namespace tandem::cli
