#include "server/common_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ops/sampling_ranges.h"
#include "server/http_message.h"

namespace tandem::server {
namespace {

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxStopIds = 64;

void read_stop(Fields& fields, engine::Request& request) {
  const json::value* stop = fields.any("stop");
  if (stop == nullptr) return;
  const auto add = [&](const json::value& value) {
    if (!value.is_string()) {
      fields.fail("stop", fmt::format("stop must hold strings, got {}.", shown_value(value)));
    } else if (value.get_string().empty()) {
      fields.fail("stop", "stop must not hold an empty string: it would end every answer at once.");
    } else if (value.get_string().size() > kMaxStopBytes) {
      fields.fail("stop", fmt::format("A stop string has {} bytes; at most {} work.", value.get_string().size(), kMaxStopBytes));
    } else {
      request.stop.emplace_back(value.get_string());
    }
  };
  if (stop->is_string()) return add(*stop);
  if (!stop->is_array()) {
    return fields.fail("stop", fmt::format("stop must be a string or a list of strings, got {}.", shown_value(*stop)));
  }
  if (stop->get_array().size() > kMaxStops) {
    return fields.fail("stop", fmt::format("stop holds {} strings; at most {} work.", stop->get_array().size(), kMaxStops));
  }
  for (const json::value& value : stop->get_array()) add(value);
}

void read_stop_ids(Fields& fields, const Served& served, engine::Request& request) {
  const json::array* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  if (ids->size() > kMaxStopIds) {
    return fields.fail("stop_token_ids", fmt::format("stop_token_ids holds {} ids; at most {} work.", ids->size(), kMaxStopIds));
  }
  for (const json::value& id : *ids) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= served.vocab) {
      return fields.fail("stop_token_ids", fmt::format("stop_token_ids must hold token ids from 0 to {}, got {}.",
                                                       served.vocab - 1, shown_value(id)));
    }
    request.stop_token_ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
}

void read_logit_bias(Fields& fields, const Served& served, ops::SamplingParams& sampling) {
  const json::object* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > ops::kMaxLogitBias) {
    return fields.fail("logit_bias", fmt::format("logit_bias has {} members; at most {} work.", biases->size(), ops::kMaxLogitBias));
  }
  for (const auto& member : *biases) {
    const std::string_view key(member.key().data(), member.key().size());
    const std::string where = fmt::format("logit_bias[\"{}\"]", shown(key, 40));
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= served.vocab) {
      return fields.fail("logit_bias", fmt::format("{}: keys are token ids from 0 to {}.", where, served.vocab - 1));
    }
    const json::value& value = member.value();
    if (!value.is_number() || !ops::kLogitBias.holds(value.to_number<double>())) {
      return fields.fail("logit_bias", fmt::format("{} must be {}, got {}.", where, ops::what_works(ops::kLogitBias), shown_value(value)));
    }
    const auto token = static_cast<TokenId>(id);
    const bool twice = std::any_of(sampling.logit_bias.begin(), sampling.logit_bias.end(),
                                   [&](const auto& bias) { return bias.first == token; });
    if (twice) return fields.fail("logit_bias", fmt::format("{}: the id stands there twice.", where));
    sampling.logit_bias.emplace_back(token, value.to_number<float>());
  }
}

// 0 to 2^64 - 1; -1 means "none given", as several clients write it.
void read_seed(Fields& fields, std::optional<std::uint64_t>& seed) {
  const json::value* value = fields.any("seed");
  if (value == nullptr) return;
  if (value->is_uint64()) {
    seed = value->get_uint64();
  } else if (value->is_int64() && value->get_int64() >= 0) {
    seed = static_cast<std::uint64_t>(value->get_int64());
  } else if (!value->is_int64() || value->get_int64() != -1) {
    fields.fail("seed", fmt::format("seed must be an integer from 0 to 18446744073709551615, or -1 for none, got {}.",
                                    shown_value(*value)));
  }
}

void read_sampling(Fields& fields, const Served& served, CommonFields& out) {
  ops::SamplingParams& sampling = out.request.sampling;
  const SamplingDefaults& defaults = served.card.sampling;
  const double temperature = fields.number(ops::kTemperature).value_or(defaults.temperature);
  sampling.temperature = temperature < ops::kGreedyTemperature ? 0.0f : static_cast<float>(temperature);
  sampling.top_p = static_cast<float>(fields.number(ops::kTopP).value_or(defaults.top_p));
  const std::int64_t top_k = fields.integer(ops::kTopK).value_or(defaults.top_k);
  sampling.top_k = top_k >= served.vocab || top_k < 0 ? 0 : static_cast<int>(top_k);  // 0: off
  if (sampling.top_p == 0.0f) {  // the smallest set that reaches 0 is the best token alone
    sampling.top_p = 1.0f;
    sampling.top_k = 1;
  }
  sampling.min_p = static_cast<float>(fields.number(ops::kMinP).value_or(defaults.min_p));
  sampling.repetition_penalty = static_cast<float>(fields.number(ops::kRepetitionPenalty).value_or(defaults.repetition_penalty));
  sampling.presence_penalty = static_cast<float>(fields.number(ops::kPresencePenalty).value_or(0.0));
  sampling.frequency_penalty = static_cast<float>(fields.number(ops::kFrequencyPenalty).value_or(0.0));
  read_seed(fields, out.seed);
  read_logit_bias(fields, served, sampling);
}

void read_limits(Fields& fields, std::int64_t least_max_tokens, CommonFields& out) {
  engine::Request& request = out.request;
  const auto old_name = fields.integer({ops::kMaxTokens.name, least_max_tokens, ops::kMaxTokens.most});
  const auto new_name = fields.integer({"max_completion_tokens", ops::kMaxTokens.least, ops::kMaxTokens.most});
  if (old_name && new_name && *old_name != *new_name) {
    fields.fail("max_tokens", fmt::format("max_tokens = {} and max_completion_tokens = {} contradict each other; send one.",
                                          *old_name, *new_name));
  }
  if (const auto limit = new_name ? new_name : old_name) request.max_tokens = static_cast<std::int32_t>(*limit);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  if (const auto min_tokens = fields.integer(ops::kMinTokens)) {
    request.sampling.min_tokens = static_cast<int>(*min_tokens);
    if (request.max_tokens && *min_tokens > *request.max_tokens) {
      fields.fail("min_tokens", fmt::format("min_tokens = {} is more than max_tokens = {}.", *min_tokens, *request.max_tokens));
    }
  }
}

void read_streaming(Fields& fields, CommonFields& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "stream_options works only with stream: true.");
  Fields inner(*options, "stream_options.");
  out.include_usage = inner.boolean("include_usage").value_or(false);
  static constexpr std::array<OnlyDefault, 2> kOnly = {{
      {"continuous_usage_stats", "false", "include_usage gives the totals in the last chunk."},
      {"include_obfuscation", "false", ""},
  }};
  inner.only_default(kOnly);
  inner.refuse_the_rest("stream_options has include_usage.");
  if (inner.error()) fields.fail(*inner.error());
}

constexpr std::array<std::string_view, 6> kIgnored = {"user",         "metadata",          "store",
                                                      "service_tier", "safety_identifier", "prompt_cache_key"};

constexpr std::array<OnlyDefault, 14> kOnlyDefault = {{
    {"best_of", "1", "n gives several answers."},
    {"use_beam_search", "false", ""},
    {"length_penalty", "1.0", ""},
    {"early_stopping", "false", ""},
    {"bad_words", "[]", "logit_bias can forbid token ids."},
    {"allowed_token_ids", "null", "logit_bias can prefer token ids."},
    {"truncate_prompt_tokens", "null", ""},
    {"spaces_between_special_tokens", "true", ""},
    {"detokenize", "true", ""},
    {"priority", "0", "Requests are served first come, first served."},
    {"prompt_logprobs", "null", "/v1/completions gives them with echo and logprobs."},
    {"guided_json", "null", ""},
    {"guided_regex", "null", ""},
    {"structured_outputs", "null", ""},
}};

}  // namespace

std::string read_model(Fields& fields, const ModelCard& card) {
  const auto model = fields.string("model");
  if (!model) return card.names.front();
  if (std::find(card.names.begin(), card.names.end(), *model) != card.names.end()) return *model;
  std::string names;
  for (const std::string& name : card.names) names += (names.empty() ? "\"" : ", \"") + shown(name, 200) + '"';
  fields.fail(ApiError{404, fmt::format("The model \"{}\" is not served here; served: {}.", shown(*model, 100), names),
                       "invalid_request_error", "model", "model_not_found"});
  return {};
}

void read_common(Fields& fields, const Served& served, CommonFields& out, std::int64_t least_max_tokens) {
  out.model = read_model(fields, served.card);
  read_sampling(fields, served, out);
  read_limits(fields, least_max_tokens, out);
  read_stop(fields, out.request);
  read_stop_ids(fields, served, out.request);
  read_streaming(fields, out);
  out.choices = static_cast<int>(fields.integer("n", 1, served.max_choices).value_or(1));
  out.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(false);
}

void read_response_format(Fields& fields) {
  const json::object* format = fields.object("response_format");
  if (format == nullptr) return;
  const json::value* type = format->if_contains("type");
  if (type != nullptr && type->is_string() && type->get_string() == "text" && format->size() == 1) return;
  const std::string got = type == nullptr ? "no type" : shown_value(*type);
  fields.fail("response_format",
              fmt::format("response_format has {}; only {{\"type\":\"text\"}} works. Ask for JSON in a message instead.",
                          type == nullptr ? got : "type " + got),
              "unsupported_value");
}

void refuse_others(Fields& fields, std::span<const OnlyDefault> of_endpoint) {
  fields.ignore(kIgnored);
  fields.only_default(kOnlyDefault);
  fields.only_default(of_endpoint);
  fields.refuse_the_rest("docs/api.md lists the fields that work.");
}

std::uint64_t seed_of_choice(std::uint64_t seed, int index) {
  if (index == 0) return seed;
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(index);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace tandem::server
