#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tandem::cli::bench {

using Time = std::chrono::steady_clock::time_point;

struct BenchRequest {
  std::vector<TokenId> prompt;
  int output_tokens = 1;
};

// When one request was sent and each of its tokens seen.
struct Timeline {
  Time sent;
  std::vector<Time> tokens;
  int prompt_tokens = 0;
  int round = 0;  // requests of one round were sent together
};

// Where requests go. Thread: any; `run` blocks until the request has ended.
class Target {
 public:
  virtual ~Target() = default;
  // Errors: the server's, or Corrupt if it gave another number of tokens than asked for.
  [[nodiscard]] virtual Result<Timeline> run(const BenchRequest& request) = 0;
};

// The engine of this process: no HTTP, no rendering. `engine` outlives the target.
[[nodiscard]] std::unique_ptr<Target> make_engine_target(engine::Engine& engine);

// Any OpenAI-compatible server, by POST URL/v1/completions with token ids, streamed. One connection a request.
// Error: Invalid, if the URL is not http://HOST[:PORT].
[[nodiscard]] Result<std::unique_ptr<Target>> make_http_target(const std::string& url, const std::string& model);

}  // namespace tandem::cli::bench
