#include "cli/generation_defaults.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/read_file.h"
#include "ops/sampling_ranges.h"

namespace tandem::cli {
namespace {

namespace json = boost::json;

// The member's value, if it has one.
const json::value* find(const json::object& config, std::string_view name) {
  const json::value* const member = config.if_contains(json::string_view(name.data(), name.size()));
  return member == nullptr || member->is_null() ? nullptr : member;
}

template <class Range>
tl::unexpected<Error> refused(const Range& range, const json::value& value) {
  const std::string got = value.is_double() ? fmt::format("{}", value.get_double()) : json::serialize(value);
  return fail(ErrorKind::Invalid, ops::out_of_range(range, got), std::string(range.name));
}

// `value` becomes the member's number if it has one.
Result<void> read_number(const json::object& config, const ops::NumberRange& range, float& value) {
  const json::value* const member = find(config, range.name);
  if (member == nullptr) return {};
  if (!member->is_number() || !range.holds(member->to_number<double>())) return refused(range, *member);
  value = member->to_number<float>();
  return {};
}

// -1 is off, as in a request; so is what no vocabulary has.
Result<void> read_top_k(const json::object& config, int& value) {
  const json::value* const member = find(config, ops::kTopK.name);
  if (member == nullptr) return {};
  json::error_code not_whole;
  const auto number = member->is_number() ? member->to_number<std::int64_t>(not_whole) : std::int64_t{-2};
  if (not_whole || !ops::kTopK.holds(number)) return refused(ops::kTopK, *member);
  value = number < 0 || number > std::numeric_limits<std::int32_t>::max() ? 0 : static_cast<int>(number);
  return {};
}

Result<server::SamplingDefaults> read_members(const json::object& config) {
  server::SamplingDefaults defaults;
  TANDEM_TRY(read_number(config, ops::kTemperature, defaults.temperature));
  TANDEM_TRY(read_number(config, ops::kTopP, defaults.top_p));
  TANDEM_TRY(read_number(config, ops::kMinP, defaults.min_p));
  TANDEM_TRY(read_number(config, ops::kRepetitionPenalty, defaults.repetition_penalty));
  TANDEM_TRY(read_top_k(config, defaults.top_k));
  const json::value* const sample = config.if_contains("do_sample");
  if (sample && sample->is_bool() && !sample->as_bool()) defaults.temperature = 0;
  return defaults;
}

}  // namespace

Result<server::SamplingDefaults> read_sampling_defaults(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return server::SamplingDefaults{};
  TANDEM_ASSIGN(const std::string text, read_file(file));
  boost::system::error_code error;
  const json::value document = json::parse(text, error);
  if (error || !document.is_object()) return fail(ErrorKind::Invalid, file.string() + " is not a JSON object");
  auto defaults = read_members(document.as_object());
  if (!defaults) defaults.error().message = file.string() + ": " + defaults.error().message;
  return defaults;
}

}  // namespace tandem::cli
