#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "comm/shared_memory.h"
#include "executor/rank_executor.h"
#include "rank/faults.h"
#include "rank/rank_model.h"

// Ranks without a model, for tests of the protocol: they meet in real collectives, hold requests, and
// answer with tokens that follow from request and position.
namespace tandem::executor::testing {

// Lets threads wait for each other in tests.
class Event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Hooks for everything that can go wrong; empty ones do nothing. Set before the executor starts, or
// while no command is out.
class Hooks final : public rank::Faults {
 public:
  std::function<Delivery(RankId, const rank::Command&)> on_deliver;
  std::function<Result<void>(RankId, const rank::Command&)> on_before;
  std::function<std::vector<rank::Reply>(RankId, rank::Reply)> on_send;

  Delivery deliver(RankId rank, const rank::Command& command) override {
    return on_deliver ? on_deliver(rank, command) : Delivery::Normal;
  }
  Result<void> before(RankId rank, const rank::Command& command, rank::RankModel&) override {
    return on_before ? on_before(rank, command) : Result<void>{};
  }
  std::vector<rank::Reply> send(RankId rank, rank::Reply reply) override {
    return on_send ? on_send(rank, std::move(reply)) : Faults::send(rank, std::move(reply));
  }
};

// What the test sees of the ranks, and sets for them.
struct FakeWorld {
  explicit FakeWorld(int world_size) : world(world_size), measured(static_cast<std::size_t>(world_size)) {
    auto made = comm::make_shared_memory({.world = world});
    group = *made;
    for (rank::Measured& mine : measured) mine = {.free_bytes = 1 << 20, .slots = 8, .pages = 64};
  }

  const int world;
  std::shared_ptr<comm::Group> group;
  std::vector<rank::Measured> measured;
  std::function<Result<void>(RankId, rank::Status&)> on_load;
  std::atomic<int> steps_begun{0};  // over all ranks
  std::atomic<int> models_alive{0};
  std::atomic<int> allocated_slots{0}, allocated_pages{0};
};

inline TokenId fake_token(RequestId request, std::int32_t position) {
  return static_cast<TokenId>((request.value * 31 + static_cast<std::uint64_t>(position) * 7) % 1000);
}

class FakeRank final : public rank::RankModel {
 public:
  FakeRank(std::shared_ptr<FakeWorld> world, RankId rank, rank::Status& status)
      : world_(std::move(world)), rank_(rank), status_(status) {
    world_->models_alive.fetch_add(1);
  }
  ~FakeRank() override { world_->models_alive.fetch_sub(1); }

  Result<void> open() override {
    TANDEM_ASSIGN(comm_, world_->group->join(rank_, &status_.collective));
    return {};
  }
  Result<void> load() override { return world_->on_load ? world_->on_load(rank_, status_) : Result<void>{}; }
  Result<void> warm_up() override { return reduce(); }
  Result<rank::Measured> measure() override {
    return world_->measured[static_cast<std::size_t>(rank_.value)];
  }
  Result<void> allocate(const rank::AllocateCommand& sizes) override {
    world_->allocated_slots.fetch_add(sizes.slots);
    world_->allocated_pages.fetch_add(sizes.pages);
    return {};
  }

  Result<std::uint64_t> begin(const rank::Step& step) override {
    world_->steps_begun.fetch_add(1);
    rank::StepResult result;
    for (const rank::Row& row : step.rows) {
      held_.insert(row.request);
      rank::Artifact artifact{.request = row.request};
      if (row.samples) {
        artifact.choice = ops::TokenChoice{
            .id = row.score >= 0 ? row.score : fake_token(row.request, row.base_pos + row.tokens)};
      }
      if (row.prompt_logprobs >= 0) {
        artifact.prompt_logprobs.resize(static_cast<std::size_t>(row.tokens - (row.prompt_next < 0 ? 1 : 0)));
      }
      if (artifact.choice || !artifact.prompt_logprobs.empty())
        result.artifacts.push_back(std::move(artifact));
    }
    TANDEM_TRY(reduce());
    results_.push_back(std::move(result));
    return ++tickets_;
  }
  Result<rank::StepResult> finish(std::uint64_t) override {
    rank::StepResult result = std::move(results_.front());
    results_.erase(results_.begin());
    return result;
  }
  Result<std::vector<bool>> drop(std::span<const rank::Drop> drops) override {
    std::vector<bool> existed;
    for (const rank::Drop& drop : drops) existed.push_back(held_.erase(drop.request) == 1);
    return existed;
  }
  Result<void> ping() override { return {}; }
  comm::SequenceMark collectives() const override {
    return comm_ ? comm_->sequence() : comm::SequenceMark{};
  }
  Result<void> close() override { return comm_->barrier(); }
  Result<void> spoil(RequestId) override { return {}; }

 private:
  Result<void> reduce() {
    std::vector<bf16> data(100, to_bf16(1.0f));
    TANDEM_TRY(comm_->all_reduce(data.data(), 100));
    if (to_float(data[99]) != static_cast<float>(world_->world))
      return fail(ErrorKind::Corrupt, "a wrong sum");
    return {};
  }

  std::shared_ptr<FakeWorld> world_;
  RankId rank_;
  rank::Status& status_;
  std::unique_ptr<comm::Communicator> comm_;
  std::set<RequestId> held_;
  std::vector<rank::StepResult> results_;
  std::uint64_t tickets_ = 0;
};

inline RankExecutorOptions fake_options(const std::shared_ptr<FakeWorld>& world,
                                        std::shared_ptr<Hooks> hooks = {}) {
  RankExecutorOptions options;
  options.group = world->group;
  options.make_model = [world](RankId rank,
                               rank::Status& status) -> Result<std::unique_ptr<rank::RankModel>> {
    return std::make_unique<FakeRank>(world, rank, status);
  };
  options.wanted = {.slots = 8,
                    .pages = 64,
                    .max_context = 1024,
                    .max_step_tokens = 512,
                    .max_mixed_tokens = 128,
                    .vocab = 1000};
  options.faults = std::move(hooks);
  options.exit_process = [](int) { ADD_FAILURE() << "the process would have been ended"; };
  return options;
}

inline rank::Row prefill_row(std::uint64_t request, int slot, int tokens, int base_pos = 0,
                             bool last = true) {
  rank::Row row{.request = RequestId{request},
                .slot = SlotId{slot},
                .kind = ops::RowKind::Prefill,
                .base_pos = base_pos,
                .tokens = tokens,
                .ids = std::vector<TokenId>(static_cast<std::size_t>(tokens), 5),
                .samples = last};
  if (base_pos == 0) row.sampling.emplace();
  return row;
}

inline rank::Row decode_row(std::uint64_t request, int slot, int base_pos) {
  return {.request = RequestId{request}, .slot = SlotId{slot}, .base_pos = base_pos};
}

}  // namespace tandem::executor::testing
