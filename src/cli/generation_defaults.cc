#include "cli/generation_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/read_file.h"

namespace tandem::cli {
namespace {

namespace json = boost::json;

// The ranges are those of the same fields in a request (docs/api.md).
// `value` becomes the member's number if it has one; it must lie in [low, high].
Result<void> read_number(const json::object& config, const char* name, double low, double high, float& value) {
  const json::value* const member = config.if_contains(name);
  if (!member || member->is_null()) return {};
  if (!member->is_number())
    return fail(ErrorKind::Invalid, fmt::format("generation_config.json: {} = {} is not a number", name, json::serialize(*member)));
  const double number = member->to_number<double>();
  if (!(number >= low && number <= high))
    return fail(ErrorKind::Invalid, fmt::format("generation_config.json: {} = {}; {} to {} works", name, number, low, high));
  value = static_cast<float>(number);
  return {};
}

}  // namespace

Result<server::SamplingDefaults> read_sampling_defaults(const std::filesystem::path& folder) {
  server::SamplingDefaults defaults;
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "generation_config.json", ignored)) return defaults;
  TANDEM_ASSIGN(const std::string text, read_file(folder / "generation_config.json"));
  boost::system::error_code error;
  const json::value document = json::parse(text, error);
  if (error || !document.is_object())
    return fail(ErrorKind::Invalid, fmt::format("{}: not a JSON object", (folder / "generation_config.json").string()));
  const json::object& config = document.as_object();
  TANDEM_TRY(read_number(config, "temperature", 0, 2, defaults.temperature));
  TANDEM_TRY(read_number(config, "top_p", 0, 1, defaults.top_p));
  TANDEM_TRY(read_number(config, "min_p", 0, 1, defaults.min_p));
  TANDEM_TRY(read_number(config, "repetition_penalty", 0.01, 100, defaults.repetition_penalty));
  float top_k = static_cast<float>(defaults.top_k);
  TANDEM_TRY(read_number(config, "top_k", -1, 1e9, top_k));
  defaults.top_k = std::max(0, static_cast<int>(top_k));  // -1 is off, as in a request
  const json::value* const sample = config.if_contains("do_sample");
  if (sample && sample->is_bool() && !sample->as_bool()) defaults.temperature = 0;
  return defaults;
}

}  // namespace tandem::cli
