#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <mutex>

namespace tandem::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

const Buckets kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160};
const Buckets kPerToken = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10};
const Buckets kRequest = {0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960};
const Buckets kTokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  prometheus::Labels labels;
  std::mutex mutex;  // of `http_counters` and the last load

  template <class... Args>
  Gauge& gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }

  explicit Families(prometheus::Labels labels_in) : labels(std::move(labels_in)) {}

  Gauge& running = gauge("vllm:num_requests_running", "Requests that hold a state slot.");
  Gauge& waiting = gauge("vllm:num_requests_waiting", "Requests in the queue, without a slot yet.");
  Gauge& kv_usage = gauge("vllm:kv_cache_usage_perc", "Share of the KV pages in use, 1 is all.");
  Counter& prompt_tokens = counter("vllm:prompt_tokens_total", "Prompt tokens prefilled.");
  Counter& generated_tokens = counter("vllm:generation_tokens_total", "Tokens sampled and delivered.");
  Histogram& first = histogram("vllm:time_to_first_token_seconds", "Submit to first token.", kFirstToken);
  Histogram& gap = histogram("vllm:inter_token_latency_seconds", "Gap between two tokens of a request.", kPerToken);
  Histogram& per_token = histogram("vllm:request_time_per_output_token_seconds", "Mean gap of one request's tokens.", kPerToken);
  Histogram& e2e = histogram("vllm:e2e_request_latency_seconds", "Submit to end of a request.", kRequest);
  Histogram& request_prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a finished request.", kTokens);
  Histogram& request_generated = histogram("vllm:request_generation_tokens", "Completion tokens of a finished request.", kTokens);
  prometheus::Family<Counter>& ended =
      prometheus::BuildCounter().Name("vllm:request_success_total").Help("Requests ended, by reason.").Register(registry);

  Gauge& slots = gauge("tandem:state_slots", "State slots, the most requests that run at once.");
  Gauge& slots_used = gauge("tandem:state_slots_used", "State slots held by requests.");
  Gauge& pages = gauge("tandem:kv_pages", "KV pages.");
  Gauge& pages_used = gauge("tandem:kv_pages_used", "KV pages held by requests.");
  Counter& steps = counter("tandem:steps_total", "Steps run.");
  Counter& cancelled = counter("tandem:requests_cancelled_total", "Requests that the engine dropped for a client that left.");
  Counter& failed = counter("tandem:requests_failed_total", "Requests that ended with an error.");
  Gauge& step_rows = gauge("tandem:last_step_rows", "Rows of the newest step.");
  Gauge& step_decode_rows = gauge("tandem:last_step_decode_rows", "Decode rows of the newest step.");
  Gauge& step_tokens = gauge("tandem:last_step_tokens", "Tokens of the newest step.");
  Gauge& connections = gauge("tandem:http_connections", "Open connections.");
  Gauge& open_answers = gauge("tandem:http_open_answers", "Answers that wait for the engine or are being streamed.");
  Gauge& healthy = gauge("tandem:healthy", "1 while new requests are taken.");
  prometheus::Family<Counter>& http =
      prometheus::BuildCounter().Name("tandem:http_answers_total").Help("Answers by route and status.").Register(registry);

  std::array<Counter*, 4> by_end{};

  // Counters of prometheus-cpp only grow by a difference; the engine counts in absolute numbers.
  static void raise(Counter& counter, double to) {
    if (const double by = to - counter.Value(); by > 0) counter.Increment(by);
  }
};

Metrics::Metrics(std::string model_name, std::string version)
    : families_(std::make_unique<Families>(prometheus::Labels{{"model_name", std::move(model_name)}})) {
  Families& f = *families_;
  static constexpr std::array<const char*, 4> kReasons = {"stop", "length", "abort", "error"};
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    prometheus::Labels labels = f.labels;
    labels["finished_reason"] = kReasons[i];
    f.by_end[i] = &f.ended.Add(labels);
  }
  prometheus::BuildGauge().Name("tandem:build_info").Help("1; the label tells the version.").Register(f.registry)
      .Add({{"version", std::move(version)}}).Set(1);
}

Metrics::~Metrics() = default;

void Metrics::first_token(double seconds) { families_->first.Observe(seconds); }

void Metrics::token_gap(double seconds, int tokens) {
  for (int i = 0; i < tokens; ++i) families_->gap.Observe(seconds / tokens);
}

void Metrics::request_ended(End end, double seconds, const engine::Usage& usage, double seconds_per_token) {
  Families& f = *families_;
  f.by_end[static_cast<std::size_t>(end)]->Increment();
  if (end != End::Stop && end != End::Length) return;
  f.e2e.Observe(seconds);
  f.request_prompt.Observe(usage.prompt_tokens);
  f.request_generated.Observe(usage.completion_tokens);
  if (usage.completion_tokens > 1) f.per_token.Observe(seconds_per_token);
}

void Metrics::http_answer(std::string_view route, int status) {
  families_->http.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::connections(int open) { families_->connections.Set(open); }
void Metrics::open_answers(int open) { families_->open_answers.Set(open); }

std::string Metrics::text(const engine::Load& load, engine::State state) {
  Families& f = *families_;
  const std::lock_guard lock(f.mutex);
  f.running.Set(load.running);
  f.waiting.Set(load.waiting);
  f.kv_usage.Set(load.pages > 0 ? static_cast<double>(load.pages_used) / load.pages : 0.0);
  f.slots.Set(load.slots);
  f.slots_used.Set(load.slots_used);
  f.pages.Set(load.pages);
  f.pages_used.Set(load.pages_used);
  f.step_rows.Set(load.last_step_rows);
  f.step_decode_rows.Set(load.last_step_decode_rows);
  f.step_tokens.Set(load.last_step_tokens);
  f.healthy.Set(state == engine::State::Ready ? 1 : 0);
  Families::raise(f.prompt_tokens, static_cast<double>(load.prompt_tokens));
  Families::raise(f.generated_tokens, static_cast<double>(load.generated_tokens));
  Families::raise(f.steps, static_cast<double>(load.steps));
  Families::raise(f.cancelled, static_cast<double>(load.requests_cancelled));
  Families::raise(f.failed, static_cast<double>(load.requests_failed));
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace tandem::server
