#include "gates/fixture.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/read_file.h"

namespace tandem::gates {
namespace {

namespace json = boost::json;

constexpr std::string_view kFormat = "tandem-golden-1";

template <class Number>
std::vector<Number> numbers(const json::value& array) {
  std::vector<Number> out;
  for (const json::value& number : array.as_array()) out.push_back(number.to_number<Number>());
  return out;
}

FixtureFile parse(const json::value& document) {
  FixtureFile file;
  const json::object& root = document.as_object();
  file.fixture.name = root.at("name").as_string().c_str();
  const json::object& floor = root.at("floor").as_object();
  file.fixture.floor = {floor.at("mean").to_number<double>(), floor.at("p99").to_number<double>(), floor.at("max").to_number<double>(),
                        floor.at("regret").to_number<double>()};
  if (root.at("fabricate").is_string()) file.fabricate = root.at("fabricate").as_string().c_str();
  for (const json::value& entry : root.at("prompts").as_array()) {
    GatePrompt& prompt = file.fixture.prompts.emplace_back();
    prompt.prompt = numbers<TokenId>(entry.at("tokens"));
    prompt.forced = numbers<TokenId>(entry.at("forced"));
    for (const json::value& truth : entry.at("truth").as_array())
      prompt.truth.push_back({numbers<TokenId>(truth.at("ids")), numbers<float>(truth.at("logprobs"))});
  }
  return file;
}

}  // namespace

Result<FixtureFile> read_fixture(const std::filesystem::path& file) {
  const Result<std::string> text = read_file(file);
  if (!text) return fail(ErrorKind::NotFound, "[fixture] " + text.error().message);
  try {
    const json::value document = json::parse(*text);
    if (document.at("format").as_string() != kFormat)
      return fail(ErrorKind::Unsupported, fmt::format("[fixture] {}: format {} is not {}", file.string(),
                                                      document.at("format").as_string().c_str(), kFormat));
    return parse(document);
  } catch (const std::exception& error) {
    return fail(ErrorKind::Corrupt, fmt::format("[fixture] {}: {}", file.string(), error.what()));
  }
}

}  // namespace tandem::gates
