#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>

#include "cli/chat/answerer.h"
#include "cli/generation_defaults.h"
#include "cli/model_folder.h"
#include "cli/start_replica.h"
#include "text/chat_template.h"

namespace tandem::cli::chat {
namespace {

// Hands an answer from the engine's thread to the one that shows it.
class Pipe final : public engine::EventSink {
 public:
  void on_delta(RequestId, engine::Delta delta) override {
    const std::lock_guard lock(mutex_);
    thought_ += delta.reasoning_text;
    text_ += delta.text;
    changed_.notify_one();
  }
  void on_finish(RequestId, engine::Finish finish) override {
    const std::lock_guard lock(mutex_);
    finish_ = std::move(finish);
    changed_.notify_one();
  }
  void on_failure(RequestId, Error error) override {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    changed_.notify_one();
  }

  // What came since the last call, waiting for it a little; true at the end.
  bool take(std::string& thought, std::string& text) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !thought_.empty() || !text_.empty() || finish_ || error_; });
    thought = std::exchange(thought_, {});
    text = std::exchange(text_, {});
    return finish_ || error_;
  }
  const std::optional<engine::Finish>& finish() const { return finish_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string thought_, text_;
  std::optional<engine::Finish> finish_;
  std::optional<Error> error_;
};

class EngineAnswerer final : public Answerer {
 public:
  static Result<std::unique_ptr<Answerer>> load(const ReplicaFlags& flags) {
    TANDEM_ASSIGN(PlannedReplica replica, plan_replica(flags));
    const std::filesystem::path folder = replica.options.executor.model;
    TANDEM_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::load(folder));
    TANDEM_ASSIGN(text::ChatTemplate chat_template, text::ChatTemplate::load(folder));
    TANDEM_ASSIGN(const server::SamplingDefaults defaults, read_sampling_defaults(folder));
    auto made = std::unique_ptr<EngineAnswerer>(new EngineAnswerer(std::move(tokenizer), std::move(chat_template), defaults));
    made->name_ = folder_name(folder);
    TANDEM_ASSIGN(made->engine_, start_replica(std::move(replica), made->tokenizer_));
    return made;
  }

  Result<Ending> answer(const boost::json::array& messages, const Settings& settings, const Say& say,
                        const std::atomic<bool>& stop) override {
    boost::json::object variables;
    if (template_.reads("enable_thinking")) variables["enable_thinking"] = settings.thinking;
    TANDEM_ASSIGN(const std::string prompt, template_.render(messages, {}, true, variables));
    engine::Request request;
    request.prompt = tokenizer_.encode(prompt, text::SpecialTokens::Parse);
    request.sampling = sampling(settings);
    if (const auto limit = settings.numbers.find("max_tokens"); limit != settings.numbers.end())
      request.max_tokens = static_cast<std::int32_t>(limit->second);
    request.split_reasoning = true;
    const std::size_t last = prompt.find_last_not_of(" \n");
    request.reasoning = last != std::string::npos && std::string_view(prompt).substr(0, last + 1).ends_with("<think>");

    const auto pipe = std::make_shared<Pipe>();
    TANDEM_ASSIGN(const RequestId id, engine_->submit(std::move(request), pipe));
    bool ended = false, cancelled = false;
    while (!ended) {
      std::string thought, text;
      ended = pipe->take(thought, text);
      if (!cancelled && (!thought.empty() || !text.empty())) say(thought, text);
      if (stop && !cancelled && !ended) {
        cancelled = true;
        engine_->cancel(id);
      }
    }
    if (const auto& finish = pipe->finish())
      return Ending{finish->reason == engine::FinishReason::Length ? "length" : "stop", finish->usage.prompt_tokens, finish->usage.completion_tokens};
    if (cancelled && pipe->error()->kind == ErrorKind::Cancelled) return Ending{.reason = "interrupted"};
    return fail(*pipe->error());
  }

  std::string name() const override { return name_; }

 private:
  EngineAnswerer(text::Tokenizer tokenizer, text::ChatTemplate chat_template, server::SamplingDefaults defaults)
      : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)), defaults_(defaults) {}

  ops::SamplingParams sampling(const Settings& settings) {
    const auto number = [&settings](const char* name, auto otherwise) {
      const auto found = settings.numbers.find(name);
      return found == settings.numbers.end() ? otherwise : static_cast<decltype(otherwise)>(found->second);
    };
    ops::SamplingParams params;
    params.temperature = number("temperature", defaults_.temperature);
    params.top_p = number("top_p", defaults_.top_p);
    params.top_k = number("top_k", defaults_.top_k);
    params.min_p = number("min_p", defaults_.min_p);
    params.repetition_penalty = number("repetition_penalty", defaults_.repetition_penalty);
    params.presence_penalty = number("presence_penalty", 0.0f);
    params.frequency_penalty = number("frequency_penalty", 0.0f);
    params.seed = number("seed", std::uint64_t{random_()} << 32 | random_());
    if (params.top_p <= 0.0f) params.temperature = 0.0f, params.top_p = 1.0f;  // only the likeliest
    return params;
  }

  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  server::SamplingDefaults defaults_;
  std::string name_;
  std::random_device random_;
  std::unique_ptr<engine::Engine> engine_;  // last: it uses the tokenizer
};

}  // namespace

Result<std::unique_ptr<Answerer>> make_engine_answerer(const ReplicaFlags& flags) { return EngineAnswerer::load(flags); }

}  // namespace tandem::cli::chat
