#pragma once

#include <atomic>

#include "engine/engine.h"
#include "server/answer_format.h"
#include "server/common_fields.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/prompt_text.h"
#include "server/router.h"

namespace tandem::server {

// What the paths do. Knows requests and responses, not connections.
//
// Thread: any, `handle` may run many times at once. It blocks for as long as parsing, rendering and
// tokenizing take. Everything passed in outlives it.
class Api {
 public:
  Api(const ServerOptions& options, engine::Engine& engine, const PromptText& text, const ModelCard& card,
      std::shared_ptr<Metrics> metrics);

  [[nodiscard]] Answer handle(const Request& request);

  // From now on generation is refused and /health says so.
  void set_draining() { draining_ = true; }

 private:
  [[nodiscard]] Served served() const;
  [[nodiscard]] std::optional<Response> refuse_new_work() const;
  [[nodiscard]] Answer health(const Request& request) const;
  [[nodiscard]] Answer list_models(const Request& request) const;
  [[nodiscard]] Answer one_model(const Request& request) const;
  [[nodiscard]] Answer chat(const Request& request);
  [[nodiscard]] Answer completion(const Request& request);
  [[nodiscard]] Answer tokenize(const Request& request) const;
  [[nodiscard]] Answer detokenize(const Request& request) const;
  [[nodiscard]] Answer generate(const CommonFields& common, std::unique_ptr<AnswerFormat> format,
                                std::string_view prompt_field);
  [[nodiscard]] AnswerHead answer_head(const CommonFields& common, std::string_view id_prefix) const;

  const ServerOptions& options_;
  engine::Engine& engine_;
  const PromptText& text_;
  const ModelCard& card_;
  const std::shared_ptr<Metrics> metrics_;
  Router router_;
  std::atomic<bool> draining_ = false;
};

}  // namespace tandem::server
