#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/options.h"
#include "engine/text_worker.h"
#include "executor/executor.h"
#include "scheduler/mailbox.h"
#include "scheduler/scheduler.h"
#include "scheduler/scheduler_thread.h"

namespace tandem::engine {

// The engine: a mailbox, the scheduler's thread behind it and the text worker's behind that. Made by
// make_engine(). Thread: any, all methods of Engine.
class EngineImpl final : public Engine {
 public:
  EngineImpl(const EngineOptions& options, const scheduler::Limits& limits,
             std::unique_ptr<executor::Executor> executor, const text::Tokenizer& tokenizer,
             std::vector<TokenId> end_ids);
  ~EngineImpl() override;

  [[nodiscard]] Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId request) override;
  [[nodiscard]] Load load() const override;
  [[nodiscard]] State state() const override;
  [[nodiscard]] std::optional<Error> failure() const override;
  [[nodiscard]] std::int32_t max_context() const override;
  [[nodiscard]] std::int32_t vocab() const override { return vocab_; }
  void drain() override;
  [[nodiscard]] Result<void> stop() override;

 private:
  const EngineOptions options_;
  const scheduler::Limits limits_;
  const std::int32_t vocab_;
  const std::vector<TokenId> end_ids_;
  std::unique_ptr<executor::Executor> executor_;

  scheduler::Mailbox mailbox_;  // knows whether the engine drains or has failed
  const text::Tokenizer& tokenizer_;
  TextWorker text_worker_;
  scheduler::Scheduler scheduler_;

  std::mutex stop_mutex_;  // two stop()s: the second waits for the first
  std::atomic<bool> stopped_{false};
  std::thread text_thread_;
  scheduler::SchedulerThread scheduler_thread_;  // last: it starts when all else stands
};

}  // namespace tandem::engine
