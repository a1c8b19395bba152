#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "server/fields.h"
#include "server/model_card.h"

namespace tandem::server {

// What the readers of request bodies need to know of the served model.
struct Served {
  const ModelCard& card;
  std::int32_t vocab = 0;
  std::int32_t max_context = 0;
  int max_choices = 1;
};

// What /v1/completions and /v1/chat/completions have in common.
struct CommonFields {
  engine::Request request;  // all but prompt, seed and the reasoning flags
  std::optional<std::uint64_t> seed;
  std::string model;  // as the answer shall show it
  int choices = 1;
  bool stream = false;
  bool include_usage = false;
  bool tokens_as_ids = false;  // logprob entries name a token "token_id:7"
};

// The served name that is asked for; absent means the first. Error: 404 model_not_found with the names.
std::string read_model(Fields& fields, const ModelCard& card);

// Model, sampling, limits, stops and streaming. The first error stays in `fields`. max_tokens 0, which scores a prompt,
// is for endpoints with echo.
void read_common(Fields& fields, const Served& served, CommonFields& out, std::int64_t least_max_tokens = 1);

// Only {"type":"text"} works.
void read_response_format(Fields& fields);

// Fields that cannot change an answer, and those known but only in their default. `hint` of the
// latter tells what works instead. The rest is unknown and refused.
void refuse_others(Fields& fields, std::span<const OnlyDefault> of_endpoint);

// The seed of choice `index`: the first choice has the request's own, so that n = 1 and the first of
// n agree; the others are scattered from it.
[[nodiscard]] std::uint64_t seed_of_choice(std::uint64_t seed, int index);

}  // namespace tandem::server
