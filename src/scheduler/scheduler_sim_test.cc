// A deterministic simulation: the real scheduler and mailbox over the fake executor, one turn after another
// on one thread, with everything that can happen to a request happening at random moments. A scenario is
// its seed. Run more of them with TANDEM_SIM_SCENARIOS=100000, one with TANDEM_SIM_SEED.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>

#include "scheduler/fake_executor.h"
#include "scheduler/scheduler.h"

namespace tandem::scheduler {
namespace {

struct Tally {  // over all scenarios: what really happened, so that a quiet simulation fails
  std::map<std::string, long> of;
  void add(const std::string& what, long by = 1) { of[what] += by; }
};

class Scenario final : public Listener {
 public:
  Scenario(std::uint64_t seed, Tally& tally) : random_(seed), tally_(tally) {
    limits_.slots = pick(1, 6);
    limits_.pages = pick(1, 20);
    limits_.max_context = pick(2, 700);
    limits_.max_step_tokens = pick(64, 400);
    limits_.mixed = pick(0, 3) > 0;
    limits_.max_mixed_tokens = limits_.slots + 63 + pick(0, 150);
    depth_ = pick(1, 2);
    FakeExecutor::Options options;
    options.capacity = {.slots = limits_.slots,
                        .pages = limits_.pages,
                        .max_context = limits_.max_context,
                        .max_step_tokens = limits_.max_step_tokens,
                        .max_mixed_tokens = limits_.max_mixed_tokens,
                        .vocab = kVocab};
    options.max_in_flight = depth_;
    options.mixed = limits_.mixed;
    options.shuffle = random_() | 1;
    options.spoil = [this](const rank::Row& row, rank::Artifact& artifact) { spoil(row, artifact); };
    if (pick(0, 5) == 0) {
      fault_at_ = static_cast<std::uint64_t>(pick(1, 120));
      options.fault = [this](std::string_view operation, std::uint64_t number) -> Result<void> {
        if (number != fault_at_) return {};
        faulted_ = true;
        tally_.add("fault in " + std::string(operation));
        return fail(ErrorKind::Device, "[sim] rank 0 lost its device");
      };
    }
    if (pick(0, 15) == 0) stop_tick_ = pick(0, 60);
    executor_ = std::make_unique<FakeExecutor>(options);
    executor_->on_step = [this](const rank::Step& step) { see_step(step); };
    executor_->on_drop = [this](std::span<const rank::Drop> drops) { see_drop(drops); };
    executor_->on_wait = [this] { something_in_flight(); };
    mailbox_ = std::make_unique<Mailbox>(static_cast<std::size_t>(max_waiting_ = pick(1, 30)));
    EXPECT_TRUE(check_limits(limits_));
    scheduler_ =
        std::make_unique<Scheduler>(Scheduler::Settings{limits_, depth_}, *executor_, *mailbox_, *this);
  }

  void run() {
    const int requests = pick(1, 24);
    std::vector<int> arrivals;
    for (int i = 0; i < requests; ++i) arrivals.push_back(pick(0, 3) == 0 ? pick(0, 200) : pick(0, 6));
    std::sort(arrivals.begin(), arrivals.end());
    std::size_t next = 0;
    auto turn = Scheduler::Turn::Busy;
    // Long enough for every request one after another, twice.
    const int most = 1000 + requests * 2 * (limits_.max_context / 64 + limits_.max_context);
    for (tick_ = 0; turn != Scheduler::Turn::Ended && tick_ < most; ++tick_) {
      for (; next < arrivals.size() && arrivals[next] <= tick_; ++next) submit();
      between_ticks();
      if (tick_ == stop_tick_) mailbox_->stop();
      drops_in_tick_ = 0;
      for (auto& [id, client] : clients_) client.cancelled_before_tick = client.cancelled;
      turn = scheduler_->tick();
      check_load(turn);
      if (turn == Scheduler::Turn::Idle) {
        EXPECT_EQ(executor_->live(), 0u);
        if (next == arrivals.size() && posts_.empty() && stop_tick_ <= tick_) break;
      }
    }
    EXPECT_LT(tick_, most) << "somebody starves";
    check_end(turn);
  }

  void on_updates(std::vector<Update> updates) override {
    for (Update& update : updates) see_update(update);
  }

 private:
  static constexpr std::int32_t kVocab = 40;

  struct Client {
    RequestSpec spec;
    std::vector<TokenId> expected;  // alone, to its end
    std::vector<TokenId> got;
    std::size_t prompt_logprobs = 0;
    std::optional<End> end;
    int end_tick = -1;
    bool cancelled = false, cancelled_before_tick = false;
    std::int32_t non_finite_at = -1;  // token index, or -1
    bool spoiled = false;
    std::int32_t stop_at = -1, stop_delay = 0, stop_posted_tick = -1;
    bool stopped = false;
    int cancel_stage = -1;  // when: see maybe_cancel
    std::int32_t sent = 0;  // tokens in rows so far
    bool dropped = false;
  };

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void submit() {
    Client client;
    RequestSpec& spec = client.spec;
    spec.id = mailbox_->next_id();
    const int longest = std::max(1, longest_life(limits_.max_context, limits_.pages) - 1);
    const int prompt = std::min(longest, pick(0, 2) == 0 ? pick(1, 600) : pick(1, 90));
    for (int i = 0; i < prompt; ++i) spec.prompt.push_back(pick(0, kVocab - 1));
    spec.max_tokens = pick(1, 40);
    if (!check_fits(limits_, prompt, spec.max_tokens)) spec.max_tokens = longest + 1 - prompt;
    ASSERT_TRUE(check_fits(limits_, prompt, spec.max_tokens));
    EXPECT_FALSE(check_fits(limits_, prompt, longest + 2 - prompt));  // proves R5.3
    if (pick(0, 2) == 0)
      spec.end_ids = {static_cast<TokenId>(pick(0, 19)), static_cast<TokenId>(pick(20, 39))};
    spec.sampling.seed = random_();
    if (pick(0, 3) == 0) {
      spec.sampling.min_tokens = pick(0, spec.max_tokens);
      spec.sampling.stop_ids = spec.end_ids;
    }
    if (pick(0, 3) == 0) spec.prompt_logprobs = pick(0, 3);
    if (pick(0, 3) == 0) spec.top_logprobs = pick(0, 5);
    client.expected = FakeExecutor::solo(spec.prompt, spec.sampling, spec.max_tokens, kVocab);
    for (std::int32_t i = std::max(0, spec.sampling.min_tokens - 1); i < spec.max_tokens; ++i)
      if (std::binary_search(spec.end_ids.begin(), spec.end_ids.end(),
                             client.expected[static_cast<std::size_t>(i)])) {
        client.expected.resize(static_cast<std::size_t>(i) + 1);
        break;
      }
    if (pick(0, 19) == 0) client.non_finite_at = pick(0, spec.max_tokens - 1);
    if (pick(0, 4) == 0) {
      client.stop_at = pick(0, spec.max_tokens - 1);
      client.stop_delay = pick(0, 2);
    }
    if (pick(0, 3) == 0) client.cancel_stage = pick(0, 4);
    const RequestId id = spec.id;
    if (auto queued = mailbox_->submit(spec); !queued) {
      EXPECT_EQ(queued.error().kind, scheduler_->failure()                   ? ErrorKind::Poisoned
                                     : tick_ > stop_tick_ && stop_tick_ >= 0 ? ErrorKind::Cancelled
                                                                             : ErrorKind::Overloaded);
      tally_.add("refused");
      return;
    }
    clients_.emplace(id, std::move(client));
    if (clients_.at(id).cancel_stage == 0 && pick(0, 1) == 0) cancel(id, "cancelled unread");
  }

  void cancel(RequestId id, const std::string& stage) {
    Client& client = clients_.at(id);
    if (client.cancelled || client.end) return;
    client.cancelled = true;
    tally_.add(stage);
    mailbox_->cancel(id);
  }

  void between_ticks() {
    for (auto& [id, client] : clients_) {
      if (client.end || client.cancelled || pick(0, 3) != 0) continue;
      if (client.cancel_stage == 0 && client.sent == 0) cancel(id, "cancelled before a row");
      if (client.cancel_stage == 1 && client.sent > 0 && client.sent < client.spec.prompt_tokens())
        cancel(id, "cancelled between chunks");
      if (client.cancel_stage == 2 && client.sent > client.spec.prompt_tokens())
        cancel(id, "cancelled decoding");
      if (client.cancel_stage == 3 && pick(0, 9) == 0) cancel(id, "cancelled anywhere");
    }
    send_posts(false);
    if (pick(0, 30) == 0) mailbox_->cancel(RequestId{99999});  // nobody's
  }

  void something_in_flight() {
    for (auto& [id, client] : clients_)
      if (client.cancel_stage == 4 && client.sent > 0 && pick(0, 3) == 0) cancel(id, "cancelled in flight");
    send_posts(true);
  }

  // Stops that the text worker posts; some of them arrive while a step is in flight.
  void send_posts(bool in_flight) {
    std::erase_if(posts_, [&](const auto& post) {
      Client& client = clients_.at(post.first);
      if (post.second > tick_ || (in_flight && pick(0, 1) == 0)) return false;
      mailbox_->stop_at(post.first, client.stop_at);
      client.stop_posted_tick = tick_;
      return true;
    });
  }

  void spoil(const rank::Row& row, rank::Artifact& artifact) {
    Client& client = clients_.at(row.request);
    if (!artifact.choice || row.generated != client.non_finite_at) return;
    artifact.choice->non_finite = 1;
    artifact.choice->id = 12345;
    client.spoiled = true;
  }

  void see_step(const rank::Step& step) {
    EXPECT_FALSE(step.rows.empty());
    const StepShape shape_of = shape(step);
    if (shape_of.decode_rows > 0 && shape_of.decode_rows < shape_of.rows) tally_.add("mixed steps");
    tally_.add("steps");
    std::map<RequestId, std::int32_t> prefill;
    for (const rank::Row& row : step.rows) {
      Client& client = clients_.at(row.request);
      EXPECT_FALSE(client.cancelled_before_tick) << "a row for a cancelled request";  // proves R4.4
      EXPECT_FALSE(client.end);
      EXPECT_EQ(row.base_pos, client.sent);
      if (row.kind == ops::RowKind::Prefill) prefill[row.request] = row.tokens;
    }
    if (!prefill.empty()) see_order(shape_of, prefill);
    for (const rank::Row& row : step.rows) clients_.at(row.request).sent += row.tokens;
  }

  // First come first served: who got less than the budget allowed at its turn overtakes nobody. How many of the
  // slots are held by prompts without a row is the scheduler's to know, and with mixed off how many by those that
  // decode: some such numbers must explain the step.
  void see_order(const StepShape& of, const std::map<RequestId, std::int32_t>& prefill) {
    std::string unexplained = "?";
    const std::int32_t most_decoding = limits_.mixed ? of.decode_rows : limits_.slots;
    for (auto waiting = static_cast<std::int32_t>(prefill.size()); waiting <= limits_.slots; ++waiting)
      for (std::int32_t decoding = of.decode_rows; decoding <= most_decoding && !unexplained.empty(); ++decoding) {
        const std::int32_t budget = step_budget(limits_, decoding, waiting);
        unexplained = against(prefill, limits_.mixed ? budget - of.decode_rows : std::clamp(budget, 64, limits_.max_step_tokens));
      }
    EXPECT_EQ(unexplained, "");
    if (of.tokens > limits_.max_mixed_tokens && of.decode_rows > 0) tally_.add("mixed steps widened by prompts that wait");
  }

  // The requests whose chunks are not what a budget allows.
  std::string against(const std::map<RequestId, std::int32_t>& prefill, std::int32_t budget) const {
    std::string others;
    for (const auto& [id, client] : clients_) {
      const std::int32_t rest = client.spec.prompt_tokens() - client.sent;
      if (id > prefill.rbegin()->first || client.end || client.cancelled || client.stop_posted_tick >= 0 || rest <= 0)
        continue;
      const auto mine = prefill.find(id);
      const std::int32_t got = mine == prefill.end() ? 0 : mine->second;
      if (got != (rest <= budget ? rest : (client.sent + budget) / 64 * 64 - client.sent))
        others += " request " + std::to_string(id.value);
      budget -= got;
    }
    return others;
  }

  void see_drop(std::span<const rank::Drop> drops) {
    EXPECT_EQ(++drops_in_tick_, 1);  // proves R2: at most one DropRequests a tick
    for (const rank::Drop& drop : drops) {
      Client& client = clients_.at(drop.request);
      EXPECT_EQ(drop.expectation == rank::Expectation::MustExist, client.sent > 0);  // proves R4.2
      client.dropped = true;
    }
  }

  void see_update(Update& update) {
    Client& client = clients_.at(update.request);
    ASSERT_FALSE(client.end) << "an update after the end";
    if (update.token) {
      const std::size_t at = client.got.size();
      ASSERT_LT(at, client.expected.size());
      EXPECT_EQ(update.token->id, client.expected[at])
          << "request " << update.request.value << " token " << at;
      EXPECT_EQ(update.token->top_count, std::max(0, client.spec.top_logprobs));
      client.got.push_back(update.token->id);
      client.prompt_logprobs += update.prompt_logprobs.size();
      const bool is_last = client.got.size() == client.expected.size();
      EXPECT_EQ(is_last, update.end.has_value()) << "the last token comes with the end";  // proves R4.3
      EXPECT_TRUE(!client.cancelled || update.end) << "a token after the cancellation";   // proves R4.6
      if (static_cast<std::int32_t>(at) == client.stop_at && !update.end)
        posts_.emplace_back(update.request, tick_ + client.stop_delay);
    }
    if (!update.end) return;
    EXPECT_TRUE(client.dropped || faulted_) << "the end before the drop";  // proves R4.3
    client.end = std::move(update.end);
    client.end_tick = tick_;
    std::erase_if(posts_, [&](const auto& post) { return post.first == update.request; });
    check_end_of(client);
  }

  void check_end_of(const Client& client) {
    const End& end = *client.end;
    const auto whole = static_cast<std::int32_t>(client.expected.size());
    const bool posted = client.stop_posted_tick >= 0 && client.stop_posted_tick < tick_;
    if (client.spec.prompt_logprobs >= 0 && !client.got.empty()) {
      EXPECT_EQ(client.prompt_logprobs, client.spec.prompt.size() - 1);
    }
    switch (end.reason) {
      case EndReason::EndId:
      case EndReason::Length:
        tally_.add(end.reason == EndReason::Length ? "length" : "end id");
        EXPECT_FALSE(posted) << "a stop beats a later end";
        EXPECT_EQ(end.completion_tokens, whole);
        EXPECT_EQ(std::ssize(client.got), whole);
        EXPECT_EQ(
            end.reason == EndReason::EndId,
            std::binary_search(client.spec.end_ids.begin(), client.spec.end_ids.end(), client.got.back()) &&
                whole >= client.spec.sampling.min_tokens);
        EXPECT_EQ(end.end_id, end.reason == EndReason::EndId ? client.got.back() : -1);
        break;
      case EndReason::StopString:
        tally_.add("stop string");
        EXPECT_GE(client.stop_posted_tick, 0);
        EXPECT_EQ(end.completion_tokens, client.stop_at + 1);
        break;
      case EndReason::Error:
        tally_.add("error " + std::string(name(end.error.kind)));
        if (end.error.kind == ErrorKind::Cancelled) {
          EXPECT_TRUE(client.cancelled || (stop_tick_ >= 0 && tick_ >= stop_tick_));
        } else if (end.error.kind == ErrorKind::Device) {
          EXPECT_TRUE(client.spoiled);  // proves R2.7
        } else {
          EXPECT_TRUE(end.error.kind == ErrorKind::Poisoned && faulted_) << end.error.message;  // proves R3.3
        }
    }
  }

  void check_load(Scheduler::Turn turn) {
    const Load load = scheduler_->load();
    if (faulted_) {
      EXPECT_EQ(turn, Scheduler::Turn::Ended);
      EXPECT_EQ(load.running + load.waiting + load.slots_used + load.pages_used + load.slots + load.pages, 0);
      return;
    }
    EXPECT_LE(load.slots_used, load.slots);
    EXPECT_LE(load.pages_used, load.pages);
    EXPECT_EQ(load.running, load.slots_used);
    EXPECT_LE(load.waiting, max_waiting_);
    if (load.waiting > 0 && load.slots_used == load.slots) tally_.add("ticks waiting for a slot");
    if (load.waiting > 0 && load.slots_used < load.slots) tally_.add("ticks waiting for pages");
  }

  void check_end(Scheduler::Turn turn) {
    EXPECT_EQ(scheduler_->failure().has_value(), faulted_) << scheduler_->failure().value_or(Error{}).message;
    EXPECT_EQ(executor_->poisoned().has_value(), faulted_);
    for (const auto& [id, client] : clients_)
      EXPECT_TRUE(client.end) << "request " << id.value << " was lost";
    if (turn == Scheduler::Turn::Ended) {
      EXPECT_FALSE(mailbox_->submit(RequestSpec{.id = mailbox_->next_id(), .prompt = {1}}));
      return;
    }
    const Load load = scheduler_->load();  // proves R5.4
    EXPECT_EQ(load.running + load.waiting + load.slots_used + load.pages_used, 0);
    EXPECT_EQ(executor_->live(), 0u);
    if (stop_tick_ >= 0) return;
    const auto submit_one = [&] {
      return mailbox_->submit(RequestSpec{.id = mailbox_->next_id(), .prompt = {1}});
    };
    for (int i = 0; i < max_waiting_; ++i) EXPECT_TRUE(submit_one()) << "a place in the queue was lost";
    EXPECT_FALSE(submit_one());
  }

  std::mt19937_64 random_;
  Tally& tally_;
  Limits limits_;
  int depth_ = 1, max_waiting_ = 1;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, Client> clients_;
  std::vector<std::pair<RequestId, int>> posts_;  // stops under way, and the tick from which they may arrive
  int tick_ = 0, stop_tick_ = -1, drops_in_tick_ = 0;
  bool faulted_ = false;
  std::uint64_t fault_at_ = 0;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// proves R4.1 R4.2 R4.3 R4.4 R4.6 R5.2 R5.3 R5.4 R3.3 R2.7
TEST(SchedulerSimulation, NoRequestIsLostAndNothingLeaks) {
  const std::uint64_t first = from_environment("TANDEM_SIM_SEED", 1);
  const std::uint64_t count =
      std::getenv("TANDEM_SIM_SEED") != nullptr ? 1 : from_environment("TANDEM_SIM_SCENARIOS", 3000);
  Tally tally;
  for (std::uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("TANDEM_SIM_SEED=" + std::to_string(seed));
    Scenario(seed, tally).run();
  }
  for (const auto& [what, times] : tally.of) std::printf("  %-28s %ld\n", what.c_str(), times);
  if (count < 2000) return;
  for (const char* what :
       {"cancelled unread", "cancelled before a row", "cancelled between chunks", "cancelled decoding",
        "cancelled anywhere", "cancelled in flight", "end id", "length", "stop string", "error Cancelled",
        "error Device", "error Poisoned", "fault in submit", "fault in step", "fault in drop", "mixed steps",
        "mixed steps widened by prompts that wait",
        "refused", "ticks waiting for a slot", "ticks waiting for pages"})
    EXPECT_GE(tally.of[what], 20) << what << " hardly ever happens: the simulation proves little";
}

}  // namespace
}  // namespace tandem::scheduler
