#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "base/log.h"
#include "cli/bench/report.h"
#include "cli/bench/target.h"
#include "cli/bench/workload.h"
#include "cli/commands.h"
#include "cli/ranges.h"
#include "cli/start_replica.h"
#include "ops/cpu/read_bandwidth.h"
#include "ops/step_shares.h"
#include "text/tokenizer.h"

namespace tandem::cli {
namespace {

using namespace bench;

constexpr char kExamples[] =
    "Runs named workloads in this process, or against any OpenAI-compatible server, and prints TTFT, TPOT, ITL and\n"
    "throughput. Random token ids, greedy, end tokens ignored.\n\n"
    "  tandem bench --workload solo,batch-8                          the bundled model, in process\n"
    "  tandem bench ~/models/Qwen3.5-4B --device cuda --workload solo,prompt-8k,batch-64 --json out.json\n"
    "  tandem bench --url http://127.0.0.1:8000 --served tandem-tiny --workload chat --rate 4";

struct BenchFlags {
  ReplicaFlags replica;
  std::vector<std::string> workloads = {"solo"};
  std::string url, served, json;
  double rate = 2;
  bool shares = false;
  double seconds = 0;
  int vocab = 4000, prompt_tokens = 0, output_tokens = 0, repetitions = 0;
};

class Runner {
 public:
  Runner(Target& target, int vocab) : target_(target), vocab_(vocab) {}

  Result<Report> run(const Workload& workload, double rate) {
    lines_.clear();
    longs_.clear();
    error_.reset();
    switch (workload.kind) {
      case Workload::Kind::Together: together(workload); break;
      case Workload::Kind::Mixed: mixed(workload); break;
      case Workload::Kind::Poisson: poisson(workload, rate); break;
    }
    if (error_) return fail(*error_);
    return make_report(workload, lines_, longs_);
  }

 private:
  BenchRequest request(int prompt_tokens, int output_tokens) {
    const std::lock_guard lock(mutex_);
    BenchRequest made{.prompt = std::vector<TokenId>(static_cast<std::size_t>(prompt_tokens)), .output_tokens = output_tokens};
    for (TokenId& id : made.prompt) id = static_cast<TokenId>(random_() % static_cast<unsigned>(vocab_));
    return made;
  }

  // Runs one request here; keeps its timeline unless it is a warm-up.
  void one(const BenchRequest& wanted, std::vector<Timeline>* keep, int round = 0) {
    auto line = target_.run(wanted);
    const std::lock_guard lock(mutex_);
    if (!line) {
      if (!error_) error_ = line.error();
    } else if (keep) {
      line->round = round;
      keep->push_back(std::move(*line));
    }
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return error_.has_value();
  }

  void together(const Workload& w) {
    const bool warm_up = w.repetitions > 1;
    for (int round = 0; round < w.repetitions && !failed(); ++round) {
      std::vector<BenchRequest> requests;
      for (int s = 0; s < w.streams; ++s) requests.push_back(request(w.prompt_tokens, w.output_tokens));
      std::vector<std::jthread> threads;
      for (const BenchRequest& wanted : requests)
        threads.emplace_back([&] { one(wanted, warm_up && round == 0 ? nullptr : &lines_, round); });
    }
  }

  void mixed(const Workload& w) {
    const Time end = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(w.seconds * 1000));
    std::vector<std::jthread> threads;
    for (int s = 0; s < w.streams; ++s)
      threads.emplace_back([&] {
        while (std::chrono::steady_clock::now() < end && !failed()) one(request(w.prompt_tokens, w.output_tokens), &lines_);
      });
    for (Time next = std::chrono::steady_clock::now() + std::chrono::seconds(1); next < end && !failed(); next += std::chrono::seconds(1)) {
      std::this_thread::sleep_until(next);
      threads.emplace_back([&, wanted = request(w.long_prompt, 1)] { one(wanted, &longs_); });
    }
  }

  void poisson(const Workload& w, double rate) {
    std::exponential_distribution<double> gap(rate);
    std::vector<std::jthread> threads;
    const Time begin = std::chrono::steady_clock::now();
    for (double at = gap(random_); at < w.seconds && !failed(); at += gap(random_)) {
      std::this_thread::sleep_until(begin + std::chrono::microseconds(static_cast<std::int64_t>(at * 1e6)));
      threads.emplace_back([&, wanted = request(w.prompt_tokens, w.output_tokens)] { one(wanted, &lines_); });
    }
  }

  Target& target_;
  int vocab_;
  std::mutex mutex_;
  std::mt19937 random_{20260101};
  std::vector<Timeline> lines_, longs_;
  std::optional<Error> error_;
};

// What --shares needs beside the target.
struct ShareSource {
  std::shared_ptr<ops::ShareMeter> meter;
  std::unique_ptr<ops::cpu::ReadBandwidth> memory;  // null: there is too little of it to measure with
};

tl::unexpected<Error> cannot_write(const std::string& file) {
  return fail(ErrorKind::Io, fmt::format("[json] cannot write {}", file), "json");
}

Result<int> run_all(const BenchFlags& flags, const std::vector<Workload>& workloads, Target& target, int vocab, const ShareSource& shares = {}) {
  // Known before anything is measured.
  if (!flags.json.empty() && !std::ofstream(flags.json)) return cannot_write(flags.json);
  Runner runner(target, vocab);
  std::string json;
  for (Workload workload : workloads) {
    if (flags.prompt_tokens > 0) workload.prompt_tokens = flags.prompt_tokens;
    if (flags.output_tokens > 0) workload.output_tokens = flags.output_tokens;
    if (flags.repetitions > 0) workload.repetitions = flags.repetitions;
    if (flags.seconds > 0) workload.seconds = flags.seconds;
    // Memory that is shared with other machines swings: the better of before and after is the limit.
    constexpr int kPasses = 3;
    const double before = shares.memory ? shares.memory->measure(kPasses) : 0;
    if (shares.meter) (void)shares.meter->take();
    TANDEM_ASSIGN(Report report, runner.run(workload, flags.rate));
    if (shares.meter) {
      report.shares = Shares{.steps = shares.meter->take(), .read_bandwidth = 0};
      if (shares.memory) report.shares->read_bandwidth = std::max(before, shares.memory->measure(kPasses));
    }
    std::fputs(as_text(report).c_str(), stdout);
    std::fflush(stdout);
    json += (json.empty() ? "[" : ",\n ") + as_json(report);
  }
  if (!flags.json.empty() && !(std::ofstream(flags.json) << json << "]\n")) return cannot_write(flags.json);
  return 0;
}

Result<int> bench_in_process(const BenchFlags& flags, const std::vector<Workload>& workloads) {
  TANDEM_ASSIGN(PlannedReplica replica, plan_replica(flags.replica));
  ShareSource shares;
  if (flags.shares) replica.options.executor.shares = shares.meter = std::make_shared<ops::ShareMeter>();
  const int cpu_threads = rank::cpu_threads_of(replica.options.executor.devices);
  TANDEM_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(replica.options.executor.model));
  TANDEM_ASSIGN(const std::unique_ptr<engine::Engine> engine, start_replica(std::move(replica), tokenizer));
  const std::unique_ptr<Target> target = make_engine_target(*engine);
  if (flags.shares) {
    auto memory = ops::cpu::ReadBandwidth::make(cpu_threads);
    if (memory) shares.memory = std::move(*memory);
  }
  TANDEM_ASSIGN(const int status, run_all(flags, workloads, *target, std::min(tokenizer.vocab_size(), engine->vocab()), shares));
  TANDEM_TRY(engine->stop());
  return status;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* const command = app.add_subcommand("bench", kExamples);
  flags->replica.add(*command);
  flags->replica.log_level = "warn";
  command->add_option("--workload", flags->workloads, "solo, prompt-2k, prompt-8k, prompt-32k, batch-8, batch-32, batch-64, batch-128, saturate, chat, mixed")
      ->capture_default_str();  // taken apart by find_workloads: a delimiter would lose an empty name
  command->add_option("--url", flags->url, "Measure this server instead, as in http://127.0.0.1:8000");
  command->add_option("--served", flags->served, "Model name for --url");
  command->add_option("--vocab", flags->vocab, "Token ids below this are sent to --url")->check(whole_number(1, 1 << 30))->capture_default_str();
  command->add_option("--rate", flags->rate, "Requests a second of chat")->check(number(0.001, 1e6))->capture_default_str();
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Another prompt length than the workload's")->check(whole_number(1, 1 << 30));
  command->add_option("--output-tokens", flags->output_tokens, "Another output length than the workload's")->check(whole_number(1, 1 << 30));
  command->add_option("--repetitions", flags->repetitions, "Another number of repetitions than the workload's")->check(whole_number(1, 1 << 30));
  command->add_flag("--shares", flags->shares, "Also print where the time of rank 0's steps goes; in process, on the CPU");
  command->add_option("--seconds", flags->seconds, "Another duration of mixed and chat than the workload's")->check(number(0.1, 86400));
  command->add_option("--json", flags->json, "Also write the figures to this file");
  command->callback([flags, &action] {
    action = [flags]() -> Result<int> {
      TANDEM_ASSIGN(const std::vector<Workload> workloads, find_workloads(flags->workloads));
      if (flags->url.empty()) return bench_in_process(*flags, workloads);
      if (flags->shares) return fail(ErrorKind::Unsupported, "[bench] --shares sees the steps of this process only; leave out --url", "--shares");
      TANDEM_ASSIGN(const std::unique_ptr<Target> target, make_http_target(flags->url, flags->served));
      if (flags->served.empty()) return fail(ErrorKind::Invalid, "[served] --url needs the model's name too; --served NAME works, of those at /v1/models", "served");
      return run_all(*flags, workloads, *target, flags->vocab);
    };
  });
}

}  // namespace tandem::cli
