#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace tandem::server {

// What /metrics shows. Names are vLLM's where the meaning is the same, tandem:* otherwise; all carry
// the label model_name. Thread: any, all methods.
class Metrics {
 public:
  Metrics(std::string model_name, std::string version);
  ~Metrics();
  Metrics(const Metrics&) = delete;

  enum class End { Stop, Length, Abort, Error };

  void first_token(double seconds);             // submit to first token
  void token_gap(double seconds, int tokens);   // between two deliveries, which brought so many tokens
  void request_ended(End end, double seconds, const engine::Usage& usage, double seconds_per_token);
  void http_answer(std::string_view route, int status);
  void connections(int open);
  void open_answers(int open);

  // The Prometheus text format.
  [[nodiscard]] std::string text(const engine::Load& load, engine::State state);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tandem::server
