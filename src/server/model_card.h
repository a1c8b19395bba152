#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::server {

// What a request without the field gets. The checkpoint's generation_config.json or the API's own.
struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  int top_k = 0;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

// The served model, as /v1/models tells it.
struct ModelCard {
  std::vector<std::string> names;  // served names, at least one; the first is shown in answers
  std::string root;                // where it came from, shown as "root"; may be empty
  std::int64_t created = 0;        // Unix time
  SamplingDefaults sampling;
  bool processed_logprobs = false;  // --logprobs-mode
};

}  // namespace tandem::server
