#pragma once

#include <atomic>
#include <boost/json.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/replica_flags.h"

namespace tandem::cli::chat {

struct Settings {
  std::map<std::string, double> numbers;  // temperature, ...: fields of the API that were set
  bool thinking = false;
};
// The names that Settings::numbers may have, with their ranges.
struct Range {
  double low, high;
  bool integer;
};
[[nodiscard]] const std::map<std::string, Range>& setting_ranges();

struct Ending {
  std::string reason;  // stop, length, interrupted
  int prompt_tokens = 0, completion_tokens = 0;  // 0 also where a server does not tell
};

// Gives answers to conversations. Thread: one.
class Answerer {
 public:
  virtual ~Answerer() = default;

  using Say = std::function<void(const std::string& thought, const std::string& text)>;

  // `messages` as on OpenAI's wire, the last one the user's. `say` gets the answer piece by piece, on the
  // calling thread. Ends early, without error, once `stop` is true.
  // Errors: what the model's template, the engine or the server refuse.
  [[nodiscard]] virtual Result<Ending> answer(const boost::json::array& messages, const Settings& settings, const Say& say,
                                              const std::atomic<bool>& stop) = 0;
  [[nodiscard]] virtual std::string name() const = 0;
};

// A model in this process. Loads it, showing progress.
[[nodiscard]] Result<std::unique_ptr<Answerer>> make_engine_answerer(const ReplicaFlags& flags);

// Any OpenAI-compatible server. `url` is http://HOST[:PORT] with or without /v1; an empty model is the
// server's first one. `key` is sent as bearer token unless it is empty.
// Errors: Invalid, with the URL; Io, if the server cannot be asked for its models.
[[nodiscard]] Result<std::unique_ptr<Answerer>> make_http_answerer(const std::string& url, const std::string& model,
                                                                  const std::string& key);

}  // namespace tandem::cli::chat
