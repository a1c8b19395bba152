#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/fixture_checkpoint.h"
#include "cli/soak/requests.h"
#include "cli/soak/same.h"
#include "cli/soak/scores.h"
#include "cli/start_replica.h"
#include "memory/page_table.h"
#include "text/tokenizer.h"

namespace tandem::cli {
namespace {

using namespace soak;

constexpr char kExamples[] =
    "Random requests that come, leave, stop and are sampled at random, on several shapes of engine with few slots and few\n"
    "pages. --rule same: each must get what it gets alone, the same tokens and the same end, or a first difference between\n"
    "near-ties. --rule logits: at each of its tokens the 8 best logprobs must be those that the other backend has there,\n"
    "given the same tokens, within the Hugging Face gate's bounds.\n\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cuda --against device     beside others = alone\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cuda --rule logits        the CPU's operators\n"
    "  tandem soak --fixture gates/fixtures/tandem-tiny.json --text gates/fixtures/tandem-tiny.txt --device cuda\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cpu --against reference\n"
    "  tandem soak --fixture gates/fixtures/r2-g4-untied.json --device cpu --tp 2 --rule logits --against one-rank   TP2 = TP1";

// Near-ties lie within this, or within 3 x the gate's floor where that is more.
constexpr double kLeastTolerance = 0.05;
constexpr double kFloors = 3;
// Equal ids with logprobs further apart than this many floors in the mean are no equal models.
constexpr double kMostMeanFloors = 2;
// The Hugging Face gate's bounds, in floors.
constexpr double kMostMean = 1.15, kMostP99 = 1.3;
constexpr int kContext = 1024;

struct SoakFlags {
  ReplicaFlags replica;
  std::string against = "fast", rule = "same", fixture, text, work = "build/gates";
  int requests = 40, rounds = 3;
  unsigned seed = 1;
  gates::GateFigures floor;       // the fixture's
  std::vector<TokenId> prompts;   // --text, in tokens
};

// The shapes of engine that take turns: chunks of one page, of two, and as large as they come. Mixed steps only where the
// replica allows them (not on several ranks).
struct Shape {
  int slots, step_tokens, mixed_tokens;
  bool mixed;
};
constexpr Shape kShapes[] = {{8, 512, 512, true}, {5, 128, 96, true}, {3, 64, 64, false}};

// Gathers one request's answer; cancels it when its time has come.
class Client final : public engine::EventSink {
 public:
  Client(engine::Engine& engine, std::optional<int> leaves_after, std::function<void()> on_end)
      : engine_(engine), leaves_after_(leaves_after), on_end_(std::move(on_end)) {}

  void on_delta(RequestId request, engine::Delta delta) override {
    for (std::size_t i = 0; i < delta.tokens.size(); ++i)
      answer_.tokens.push_back(i < delta.logprobs.size() ? std::move(delta.logprobs[i]) : engine::TokenLogprob{.id = delta.tokens[i]});
    std::move(delta.prompt_logprobs.begin(), delta.prompt_logprobs.end(), std::back_inserter(prompt_));
    if (leaves_after_ && static_cast<int>(answer_.tokens.size()) >= *leaves_after_) engine_.cancel(request);
  }
  void on_finish(RequestId, engine::Finish finish) override {
    answer_.finish = std::move(finish);
    on_end_();
  }
  void on_failure(RequestId, Error error) override {
    if (error.kind != ErrorKind::Cancelled || !leaves_after_) failure_ = std::move(error);
    on_end_();
  }

  // After its end.
  [[nodiscard]] const Answer& answer() const { return answer_; }
  [[nodiscard]] const std::vector<engine::TokenLogprob>& prompt() const { return prompt_; }
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  engine::Engine& engine_;
  const std::optional<int> leaves_after_;
  const std::function<void()> on_end_;
  Answer answer_;
  std::vector<engine::TokenLogprob> prompt_;
  std::optional<Error> failure_;
};

Result<std::unique_ptr<engine::Engine>> start(const SoakFlags& flags, executor::ExecutorOptions options, const Shape& shape, const text::Tokenizer& tokenizer) {
  options.max_requests = shape.slots;
  options.max_step_tokens = shape.step_tokens;
  options.max_mixed_tokens = shape.mixed_tokens + (shape.mixed ? 0 : shape.slots);
  options.mixed = shape.mixed;
  options.max_context = kContext;
  options.logprobs = flags.rule == "logits" ? ops::LogprobsMode::Raw : ops::LogprobsMode::Processed;
  options.nan_fill_freed = true;
  Replica replica{.executor = std::move(options), .engine = {}};
  // Pages for one longest request and little more, so that requests wait for pages too.
  TANDEM_ASSIGN(const PlannedReplica sizes, plan_replica(replica));
  replica.executor.kv_bytes = sizes.plan.capacity.ranks.front().page_bytes * (memory::pages_for(kContext) + 5);
  TANDEM_ASSIGN(PlannedReplica planned, plan_replica(std::move(replica)));
  return start_replica(std::move(planned), tokenizer);
}

Result<std::shared_ptr<Client>> alone(engine::Engine& engine, const engine::Request& request) {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  const auto client = std::make_shared<Client>(engine, std::nullopt, [&] {
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_all();
  });
  TANDEM_TRY(engine.submit(request, client));
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return done; });
  if (client->failure()) return fail(*client->failure());
  return client;
}

// Draws the requests and what each gives alone. One that wants a stop is asked twice.
struct Expected {
  std::vector<Planned> planned;
  std::vector<Answer> answers;
};
Result<Expected> ask_alone(const SoakFlags& flags, engine::Engine& engine, std::mt19937& random) {
  Expected expected;
  for (int i = 0; i < flags.requests; ++i) {
    Planned planned = draw(random, engine.vocab(), flags.prompts);
    TANDEM_ASSIGN(std::shared_ptr<Client> client, alone(engine, planned.request));
    if (planned.wants_stop) {
      planned.request.stop_token_ids = {client->answer().tokens[random() % client->answer().tokens.size()].id};
      TANDEM_ASSIGN(client, alone(engine, planned.request));
    }
    expected.planned.push_back(std::move(planned));
    expected.answers.push_back(client->answer());
  }
  return expected;
}

// All of them, as many at once as chance says, between none and twice the slots.
Result<std::vector<std::shared_ptr<Client>>> run_together(engine::Engine& engine, const std::vector<Planned>& planned, std::mt19937& random, int slots) {
  std::mutex mutex;
  std::condition_variable changed;
  int live = 0, most = slots;
  std::vector<std::shared_ptr<Client>> clients;
  for (const Planned& one : planned) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return live < most; });
      ++live;
      most = 1 + static_cast<int>(random() % static_cast<unsigned>(2 * slots));
    }
    clients.push_back(std::make_shared<Client>(engine, one.leaves_after, [&] {
      const std::lock_guard lock(mutex);
      --live;
      changed.notify_all();
    }));
    TANDEM_ASSIGN(const RequestId id, engine.submit(one.request, clients.back()));
    if (one.leaves_after == 0) engine.cancel(id);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return live == 0; });
  return clients;
}

struct Totals {
  int differ = 0, wrong = 0;
  long tokens = 0;
  double distance = 0, largest = 0, gap = 0;
};

void add(Totals& totals, const Verdict& verdict) {
  totals.differ += verdict.differs;
  totals.wrong += !verdict.same;
  totals.tokens += verdict.tokens;
  totals.distance += verdict.distance;
  totals.largest = std::max(totals.largest, verdict.largest);
  totals.gap = std::max(totals.gap, verdict.gap);
}

// One round's engine and what it did; `verdict` says how the answers compare.
struct Round {
  int number = 0;
  Shape shape;
  bool recorded = false;
  std::vector<std::shared_ptr<Client>> clients;
  bool idle = false;  // slots and pages were given back
};

Result<Round> run_together(const SoakFlags& flags, executor::ExecutorOptions options, const text::Tokenizer& tokenizer, int number,
                           const std::vector<Planned>& planned, std::mt19937& random) {
  Round round{.number = number, .shape = kShapes[static_cast<std::size_t>(number) % std::size(kShapes)]};
  round.shape.mixed = round.shape.mixed && *options.mixed;
  round.recorded = options.record_decode = options.record_decode && number % 2 == 0;
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(flags, options, round.shape, tokenizer));
  TANDEM_ASSIGN(round.clients, run_together(*engine, planned, random, round.shape.slots));
  for (const auto& client : round.clients)
    if (client->failure()) return fail(*client->failure());
  TANDEM_TRY(engine->stop());
  const engine::Load load = engine->load();
  round.idle = load.slots_used == 0 && load.pages_used == 0;
  return round;
}

void report(const SoakFlags& flags, const Round& round, bool good, const std::string& figures) {
  int left = 0, stopped = 0;
  for (const auto& client : round.clients) {
    const auto& finish = client->answer().finish;
    left += !finish;
    stopped += finish && finish->reason == engine::FinishReason::Stop;
  }
  std::printf("soak seed %u round %d: %zu requests (%d left, %d stopped), %d slots, steps of %d and %d tokens%s%s: %s; %s%s\n", flags.seed, round.number,
              round.clients.size(), left, stopped, round.shape.slots, round.shape.step_tokens, round.shape.mixed_tokens,
              round.shape.mixed ? "" : ", not mixed", round.recorded ? ", recorded" : "", good ? "SAME" : "DIFFERENT", figures.c_str(),
              round.idle ? "" : "; slots or pages were not given back");
  std::fflush(stdout);
}

Result<bool> same_round(const SoakFlags& flags, const executor::ExecutorOptions& device, engine::Engine& lone, const text::Tokenizer& tokenizer, int number) {
  std::mt19937 random(flags.seed + 7919u * static_cast<unsigned>(number));
  TANDEM_ASSIGN(const Expected expected, ask_alone(flags, lone, random));
  TANDEM_ASSIGN(const Round round, run_together(flags, device, tokenizer, number, expected.planned, random));
  Totals totals;
  const double tolerance = std::max(kLeastTolerance, kFloors * flags.floor.mean);
  for (std::size_t i = 0; i < round.clients.size(); ++i) {
    const Verdict verdict = judge(expected.planned[i].request, round.clients[i]->answer(), expected.answers[i], tolerance);
    add(totals, verdict);
    if (!verdict.same) std::printf("  request %zu (%zu prompt tokens): %s\n", i, expected.planned[i].request.prompt.size(), verdict.why.c_str());
  }
  const double mean = totals.distance / static_cast<double>(std::max(totals.tokens, 1l));
  const bool near = flags.floor.mean == 0 || mean <= kMostMeanFloors * flags.floor.mean;
  const bool good = totals.wrong == 0 && near;
  report(flags, round, good,
         fmt::format("{} tokens compared, {} first differences between near-ties (widest {:.4f} of {:.4f}), logprobs apart by {:.5f} in the mean, {:.4f} at most",
                     totals.tokens, totals.differ, totals.gap, tolerance, mean, totals.largest));
  return good && round.idle;
}

// The other backend reads every prompt with its answer in one piece; `lone` keeps that request's logprobs.
Result<bool> logits_round(const SoakFlags& flags, const executor::ExecutorOptions& device, engine::Engine& lone, const text::Tokenizer& tokenizer, int number) {
  std::mt19937 random(flags.seed + 7919u * static_cast<unsigned>(number));
  std::vector<Planned> planned;
  for (int i = 0; i < flags.requests; ++i) planned.push_back(draw(random, lone.vocab(), flags.prompts));
  TANDEM_ASSIGN(const Round round, run_together(flags, device, tokenizer, number, planned, random));
  Scores scores;
  for (std::size_t i = 0; i < round.clients.size(); ++i) {
    const Answer& answer = round.clients[i]->answer();
    if (answer.tokens.empty()) continue;
    engine::Request whole{.prompt = planned[i].request.prompt, .max_tokens = 1, .prompt_logprobs = ops::kMaxTopLogprobs};
    for (const engine::TokenLogprob& token : answer.tokens) whole.prompt.push_back(token.id);
    TANDEM_ASSIGN(const std::shared_ptr<Client> there, alone(lone, whole));
    scores.add(answer, std::span(there->prompt()).last(answer.tokens.size()));
  }
  const gates::GateFigures figures = scores.figures();
  const double mean = kMostMean * flags.floor.mean, p99 = kMostP99 * flags.floor.p99;
  const bool good = figures.mean <= mean && figures.p99 <= p99;
  report(flags, round, good,
         fmt::format("{} tokens compared, their 8 best logprobs apart by {:.5f} of {:.5f} in the mean, p99 {:.4f} of {:.4f}, at most {:.4f}; regret {:.4f}",
                     scores.tokens(), figures.mean, mean, figures.p99, p99, figures.max, figures.regret));
  return good && round.idle;
}

Result<void> read_prompts(SoakFlags& flags, const text::Tokenizer& tokenizer) {
  if (flags.text.empty()) return {};
  TANDEM_ASSIGN(const std::string text, read_file(flags.text));
  flags.prompts = tokenizer.encode(text, text::SpecialTokens::AsText);
  if (flags.prompts.size() < static_cast<std::size_t>(kLongestPrompt))
    return fail(ErrorKind::Invalid, fmt::format("[text] {} has {} tokens; a text of at least {} works", flags.text, flags.prompts.size(), kLongestPrompt));
  return {};
}

Result<int> run_soak(SoakFlags flags) {
  if (!flags.fixture.empty()) {
    TANDEM_ASSIGN(const gates::FixtureFile file, gates::read_fixture(flags.fixture));
    TANDEM_ASSIGN(const std::filesystem::path model, fixture_checkpoint(file, flags.replica.model, flags.work));
    flags.replica.model = model.string();
    flags.floor = file.fixture.floor;
  } else if (flags.rule == "logits") {
    return fail(ErrorKind::Invalid, "[rule] logits are judged by a fixture's floor; --fixture FILE works");
  }
  TANDEM_ASSIGN(const PlannedReplica asked, plan_replica(flags.replica));
  executor::ExecutorOptions device = asked.options.executor;
  device.mixed = asked.plan.mixed;
  TANDEM_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(device.model));
  TANDEM_TRY(read_prompts(flags, tokenizer));
  executor::ExecutorOptions lone = device;
  if (flags.against != "device") lone.mixed = true;  // one rank
  if (flags.against == "one-rank") {
    lone.devices.ordinals.resize(1);
  } else if (flags.against != "device") {
    lone.devices = {.kind = rank::DeviceKind::Cpu,
                    .ops = flags.against == "reference" ? rank::OpsKind::Reference : rank::OpsKind::Fast,
                    .cpu_threads = flags.replica.cpu_threads};
    lone.reserve_bytes.reset();
    lone.record_decode = false;
    lone.max_in_flight = 1;
  }
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(flags, lone, {1, 512, 512, *lone.mixed}, tokenizer));
  bool all = true;
  for (int round = 0; round < flags.rounds; ++round) {
    const auto run = flags.rule == "logits" ? logits_round : same_round;
    TANDEM_ASSIGN(const bool good, run(flags, device, *engine, tokenizer, round));
    all = all && good;
  }
  TANDEM_TRY(engine->stop());
  return all ? 0 : 1;
}

}  // namespace

void add_soak(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SoakFlags>();
  CLI::App* const command = app.add_subcommand("soak", kExamples);
  flags->replica.add(*command);
  flags->replica.log_level = "warn";
  command->add_option("--against", flags->against, "Whose answers count: one rank of the CPU's fast or reference operators, one rank of the device, or the device itself, all ranks, alone")
      ->check(CLI::IsMember({"fast", "reference", "one-rank", "device"}))->capture_default_str();
  command->add_option("--rule", flags->rule, "same: ids and ends; logits: every token's 8 best logprobs, given the same tokens")
      ->check(CLI::IsMember({"same", "logits"}))->capture_default_str();
  command->add_option("--text", flags->text, "Prompts are slices of this text, not random ids");
  command->add_option("--requests", flags->requests, "Requests of a round")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Rounds, each with another shape of engine")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", flags->seed, "Other requests")->capture_default_str();
  command->add_option("--fixture", flags->fixture, "The checkpoint of this fixture, and its floor: near-ties lie within three of its mean, or 0.05 if that is more");
  command->add_option("--work", flags->work, "Where fabricated checkpoints are kept")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_soak(*flags); }; });
}

}  // namespace tandem::cli
