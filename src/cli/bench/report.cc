#include "cli/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/json_writer.h"

namespace tandem::cli::bench {
namespace {

double milliseconds(Time from, Time to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

void write(JsonWriter& json, std::string_view name, const Percentiles& p) {
  json.key(name).begin_object().member("mean", p.mean).member("p50", p.p50).member("p90", p.p90).member("p99", p.p99);
  json.member("p99_9", p.p999).member("max", p.largest).end_object();
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {at(0.5), at(0.9), at(0.99), at(0.999), values.back(), sum / static_cast<double>(values.size())};
}

Report make_report(const Workload& workload, const std::vector<Timeline>& timelines, const std::vector<Timeline>& longs) {
  Report report{.workload = workload, .requests = static_cast<int>(timelines.size())};
  std::vector<double> ttft, tpot, itl, long_ttft, together;
  Time begin = Time::max(), end = Time::min();
  struct Span {
    Time from = Time::min(), until = Time::max();
  };
  std::map<int, Span> all_decode;  // by round
  double output = 0, input = 0;
  for (const Timeline& line : timelines) {
    begin = std::min(begin, line.sent);
    input += line.prompt_tokens;
    if (line.tokens.empty()) continue;
    output += static_cast<double>(line.tokens.size());
    end = std::max(end, line.tokens.back());
    Span& span = all_decode[line.round];
    span = {std::max(span.from, line.tokens.front()), std::min(span.until, line.tokens.back())};
    ttft.push_back(milliseconds(line.sent, line.tokens.front()));
    if (line.tokens.size() > 1)
      tpot.push_back(milliseconds(line.tokens.front(), line.tokens.back()) / static_cast<double>(line.tokens.size() - 1));
    for (std::size_t i = 1; i < line.tokens.size(); ++i) itl.push_back(milliseconds(line.tokens[i - 1], line.tokens[i]));
  }
  for (const Timeline& line : timelines)
    for (std::size_t i = 1; i < line.tokens.size(); ++i)
      if (line.tokens[i - 1] >= all_decode[line.round].from && line.tokens[i] <= all_decode[line.round].until)
        together.push_back(milliseconds(line.tokens[i - 1], line.tokens[i]));
  for (const Timeline& line : longs) {
    input += line.prompt_tokens;
    if (line.tokens.empty()) continue;
    output += static_cast<double>(line.tokens.size());
    end = std::max(end, line.tokens.back());
    long_ttft.push_back(milliseconds(line.sent, line.tokens.front()));
  }
  report.ttft = percentiles(std::move(ttft));
  report.tpot = percentiles(std::move(tpot));
  report.itl = percentiles(std::move(itl));
  report.long_ttft = percentiles(std::move(long_ttft));
  report.step_ms = percentiles(std::move(together)).p50;
  report.seconds = timelines.empty() ? 0 : milliseconds(begin, end) / 1000;
  if (report.seconds > 0) {
    report.output_tokens_a_second = output / report.seconds;
    report.total_tokens_a_second = (output + input) / report.seconds;
  }
  return report;
}

std::string as_text(const Report& r) {
  std::string text = fmt::format("{:<11} {} requests, {} in {} out: TTFT p50 {:.2f} p99 {:.2f} ms", r.workload.name, r.requests,
                                 r.workload.prompt_tokens, r.workload.output_tokens, r.ttft.p50, r.ttft.p99);
  if (r.tpot.p50 > 0)
    text += fmt::format("; TPOT p50 {:.3f} ms; ITL p50 {:.3f} p99 {:.3f} p99.9 {:.3f} max {:.3f} ms", r.tpot.p50, r.itl.p50, r.itl.p99, r.itl.p999,
                        r.itl.largest);
  if (r.workload.streams > 1) text += fmt::format("; step while all decode {:.3f} ms", r.step_ms);
  if (r.workload.long_prompt > 0) text += fmt::format("; long prompt TTFT mean {:.1f} ms", r.long_ttft.mean);
  text += fmt::format("; {:.0f} output tok/s, {:.0f} total tok/s\n", r.output_tokens_a_second, r.total_tokens_a_second);
  return r.shares ? text + as_text(*r.shares) : text;
}

std::string as_json(const Report& r) {
  JsonWriter json;
  json.begin_object().member("workload", r.workload.name).member("requests", r.requests).member("prompt_tokens", r.workload.prompt_tokens);
  json.member("output_tokens", r.workload.output_tokens);
  write(json, "ttft_ms", r.ttft);
  write(json, "tpot_ms", r.tpot);
  write(json, "itl_ms", r.itl);
  if (r.workload.long_prompt > 0) write(json, "long_prompt_ttft_ms", r.long_ttft);
  json.member("decode_step_ms", r.step_ms).member("seconds", r.seconds).member("output_tokens_per_second", r.output_tokens_a_second);
  json.member("total_tokens_per_second", r.total_tokens_a_second);
  if (r.shares) write(json, *r.shares);
  json.end_object();
  return json.take();
}

}  // namespace tandem::cli::bench
