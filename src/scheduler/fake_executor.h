#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "executor/executor.h"

namespace tandem::scheduler {

// An executor without a model, for tests of everything above it. It keeps for each request what a rank
// would keep (slot, pages, length, and a 64-bit state folded from every input token, as a recurrent state
// is), and refuses each step or drop that breaks a rule, so that a test of the scheduler is a test of
// its steps. A token is hash(all tokens before it, its position, the seed): it depends on the request
// alone, so whatever else shares its steps, a request's output must be the same.
//
// Thread: the scheduler's, as the interface says; hold() and release() any.
class FakeExecutor final : public executor::Executor {
 public:
  struct Options {
    rank::Capacity capacity{.slots = 8,
                            .pages = 256,
                            .max_context = 2048,
                            .max_step_tokens = 512,
                            .max_mixed_tokens = 256,
                            .vocab = 1000};
    int max_in_flight = 1;
    bool mixed = true;          // false: a step with both kinds of rows is refused
    std::uint64_t shuffle = 0;  // seed of the order in which artifacts are delivered; 0: by row
    // Chooses tokens instead of the hash. `index`: the completion token's number; `suggested`: the hash's id.
    std::function<TokenId(RequestId request, std::int32_t index, TokenId suggested)> choose;
    // Looks at each artifact before it is delivered and may spoil it.
    std::function<void(const rank::Row& row, rank::Artifact& artifact)> spoil;
    // Called first in each operation; an error is that operation's fatal failure.
    std::function<Result<void>(std::string_view operation, std::uint64_t number)> fault;
  };
  explicit FakeExecutor(Options options);

  [[nodiscard]] const rank::Capacity& capacity() const override { return options_.capacity; }
  [[nodiscard]] Result<void> submit_step(rank::Step step) override;
  [[nodiscard]] int max_in_flight() const override { return options_.max_in_flight; }
  [[nodiscard]] Result<rank::StepResult> wait_step() override;
  [[nodiscard]] Result<void> drop(std::span<const rank::Drop> drops) override;
  [[nodiscard]] Result<void> ping() override { return enter("ping"); }
  [[nodiscard]] std::optional<Error> poisoned() const override { return poison_; }
  [[nodiscard]] Result<void> shutdown() override;

  // What a request generates by the hash, alone on an executor of this vocabulary.
  [[nodiscard]] static std::vector<TokenId> solo(std::span<const TokenId> prompt,
                                                 const ops::SamplingParams& sampling, std::int32_t tokens,
                                                 std::int32_t vocab);

  // From hold() until release() wait_step does not return: a step stays in flight.
  void hold();
  void release();
  // Blocks until a step is being held.
  void wait_until_held();

  struct Seen {
    std::uint64_t steps = 0, drops = 0;  // commands
    std::uint64_t prefill_tokens = 0, decode_rows = 0;
    std::int32_t most_rows = 0, most_tokens = 0, most_live = 0;
    bool shut_down = false;
  };
  [[nodiscard]] const Seen& seen() const { return seen_; }
  [[nodiscard]] std::size_t live() const { return requests_.size(); }
  // Called with each step that is accepted, with each drop, and while a step is awaited.
  std::function<void(const rank::Step&)> on_step;
  std::function<void(std::span<const rank::Drop>)> on_drop;
  std::function<void()> on_wait;

 private:
  struct Request {
    SlotId slot;
    std::vector<PageId> pages;
    std::int32_t tokens = 0;  // in its state
    std::uint64_t state = 0;
    std::int32_t generated = 0;
    TokenId last = -1;
    bool prompt_done = false;
    ops::SamplingParams sampling;
  };
  Result<void> check_plan(const rank::Step& step) const;               // R2.5: healthy after an error
  Result<void> apply(const rank::Row& row, rank::StepResult& result);  // R1.4, R5.2: fatal
  tl::unexpected<Error> poison(Error error);
  Result<void> enter(std::string_view operation);

  Options options_;
  std::map<RequestId, Request> requests_;
  std::map<SlotId, RequestId> slots_;
  std::map<PageId, RequestId> pages_;
  std::deque<rank::Step> flights_;
  std::set<RequestId> dropped_;  // never again (R1.4)
  std::uint64_t operations_ = 0;
  std::optional<Error> poison_;
  Seen seen_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false, held_ = false;
};

}  // namespace tandem::scheduler
