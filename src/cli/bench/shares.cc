#include "cli/bench/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::cli::bench {
namespace {

double milliseconds_a_step(const ops::StepTimes& times, Nanoseconds part) {
  return std::chrono::duration<double, std::milli>(part).count() / static_cast<double>(times.steps);
}

// Bytes of weights a second over the whole step: each is read once.
double weight_rate(const ops::StepShares& steps) {
  if (steps.decode.steps == 0) return 0;
  return static_cast<double>(steps.weight_bytes) / (milliseconds_a_step(steps.decode, steps.decode.total) / 1000);
}

std::string line(std::string_view kind, const ops::StepTimes& times) {
  if (times.steps == 0) return "";
  std::vector<std::pair<Nanoseconds, ops::StepPart>> parts;
  for (std::size_t part = 0; part < ops::kStepParts; ++part)
    parts.emplace_back(times.parts[part], static_cast<ops::StepPart>(part));
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = fmt::format("  {} steps: {} of {:.3f} ms and {:.1f} tokens:", kind, times.steps, milliseconds_a_step(times, times.total),
                                 static_cast<double>(times.tokens) / static_cast<double>(times.steps));
  std::string_view before = " ";
  for (const auto& [time, part] : parts) {
    text += fmt::format("{}{} {:.1f} % ({:.3f} ms)", std::exchange(before, ", "), name(part),
                        100 * static_cast<double>(time.count()) / static_cast<double>(std::max<std::int64_t>(times.total.count(), 1)),
                        milliseconds_a_step(times, time));
  }
  return text + "\n";
}

void write(JsonWriter& json, std::string_view kind, const ops::StepTimes& times) {
  if (times.steps == 0) return;
  json.key(kind).begin_object().member("steps", times.steps).member("tokens", times.tokens);
  json.member("step_ms", milliseconds_a_step(times, times.total)).key("parts_ms").begin_object();
  for (std::size_t part = 0; part < ops::kStepParts; ++part)
    json.member(name(static_cast<ops::StepPart>(part)), milliseconds_a_step(times, times.parts[part]));
  json.end_object().end_object();
}

}  // namespace

std::string as_text(const Shares& shares) {
  const ops::StepShares& steps = shares.steps;
  std::string text = line("prompt", steps.prompt) + line("decode", steps.decode) + line("mixed", steps.mixed);
  if (steps.decode.steps > 0) {
    text += fmt::format("  decode reads {:.0f} MB of weights a step, {:.2f} GB/s", static_cast<double>(steps.weight_bytes) * 1e-6,
                        weight_rate(steps) * 1e-9);
    if (shares.read_bandwidth > 0) {
      text += fmt::format("; the same threads read memory at {:.2f} GB/s: {:.2f} of it", shares.read_bandwidth * 1e-9,
                          weight_rate(steps) / shares.read_bandwidth);
    }
    text += "\n";
  }
  return text;
}

void write(JsonWriter& json, const Shares& shares) {
  json.key("shares").begin_object();
  write(json, "prompt", shares.steps.prompt);
  write(json, "decode", shares.steps.decode);
  write(json, "mixed", shares.steps.mixed);
  json.member("weight_bytes", shares.steps.weight_bytes).member("weight_bytes_per_second", weight_rate(shares.steps));
  json.member("read_bytes_per_second", shares.read_bandwidth).end_object();
}

}  // namespace tandem::cli::bench
