// Host time of one tick, without a device: what the planner and the loop around it cost.
//
//   plan/128           the plan alone, 128 decode rows
//   plan_mixed/128     127 decode rows and a chunk of a long prompt, within 512 tokens
//   tick/128/10000     a whole tick (drain, prune, load, admission, plan, send, read), with that many waiting

#include <benchmark/benchmark.h>

#include <deque>
#include <memory>

#include "scheduler/planner.h"
#include "scheduler/scheduler.h"

namespace tandem::scheduler {
namespace {

Limits limits_of(int rows) {
  return {.slots = rows,
          .pages = 1 << 20,
          .max_context = 1 << 20,
          .max_step_tokens = 8192,
          .max_mixed_tokens = 512};
}

void plan_rows(benchmark::State& state, bool mixed) {
  const int rows = static_cast<int>(state.range(0));
  std::deque<RequestSpec> specs;
  std::vector<Progress> live;
  for (int i = 0; i < rows; ++i) {
    RequestSpec& spec = specs.emplace_back();
    spec.id = {static_cast<std::uint64_t>(i) + 1};
    const bool prompt = mixed && i + 1 == rows;
    spec.prompt.assign(prompt ? 100000 : 512, 1);
    spec.max_tokens = 1000;
    live.push_back({.spec = &spec,
                    .slot = SlotId{i},
                    .run = prompt ? 6400 : 600,
                    .generated = prompt ? 0 : 89,
                    .last = 7});
  }
  for (auto _ : state) {
    const rank::Step step = plan(limits_of(rows), live, false);
    if (std::ssize(step.rows) != rows) state.SkipWithError("a row is missing");
  }
}
void plan_decode(benchmark::State& state) { plan_rows(state, false); }
void plan_mixed(benchmark::State& state) { plan_rows(state, true); }
BENCHMARK(plan_decode)->Name("plan")->Arg(1)->Arg(128)->Unit(benchmark::kMicrosecond);
BENCHMARK(plan_mixed)->Arg(128)->Unit(benchmark::kMicrosecond);

// Answers at once.
class InstantExecutor final : public executor::Executor {
 public:
  [[nodiscard]] const rank::Capacity& capacity() const override { return capacity_; }
  [[nodiscard]] Result<void> submit_step(rank::Step step) override {
    step_ = std::move(step);
    return {};
  }
  [[nodiscard]] Result<rank::StepResult> wait_step() override {
    rank::StepResult result;
    result.artifacts.reserve(step_.rows.size());
    for (const rank::Row& row : step_.rows) {
      rank::Artifact artifact{.request = row.request};
      if (row.samples) artifact.choice = ops::TokenChoice{.id = 5};
      result.artifacts.push_back(std::move(artifact));
    }
    return result;
  }
  [[nodiscard]] Result<void> drop(std::span<const rank::Drop>) override { return {}; }
  [[nodiscard]] Result<void> ping() override { return {}; }
  [[nodiscard]] std::optional<Error> poisoned() const override { return std::nullopt; }
  [[nodiscard]] Result<void> shutdown() override { return {}; }

 private:
  rank::Capacity capacity_;
  rank::Step step_;
};

struct CountingListener final : Listener {
  void on_updates(std::vector<Update> updates) override { count += updates.size(); }
  std::size_t count = 0;
};

void tick(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0));
  const int waiting = static_cast<int>(state.range(1));
  InstantExecutor executor;
  CountingListener listener;
  Mailbox mailbox(1 << 20);
  Scheduler scheduler({.limits = limits_of(rows)}, executor, mailbox, listener);
  for (int i = 0; i < rows + waiting; ++i) {
    RequestSpec spec;
    spec.id = mailbox.next_id();
    spec.prompt.assign(64, 1);
    spec.max_tokens = 500000 / rows;
    if (!mailbox.submit(std::move(spec))) return state.SkipWithError("refused");
  }
  for (int i = 0; i < 10; ++i) scheduler.tick();  // all rows decode from here on
  const std::size_t before = listener.count;
  std::int64_t ticks = 0;
  for (auto _ : state) {
    scheduler.tick();
    ticks += 1;
  }
  if (listener.count - before != static_cast<std::size_t>(ticks * rows))
    state.SkipWithError("not all rows decoded");
}
BENCHMARK(tick)
    ->Args({1, 0})
    ->Args({128, 0})
    ->Args({128, 10000})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(2000);

}  // namespace
}  // namespace tandem::scheduler

BENCHMARK_MAIN();
