#include "cli/soak/requests.h"

#include <algorithm>

namespace tandem::cli::soak {
namespace {

int between(std::mt19937& random, int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); }

int prompt_length(std::mt19937& random) {
  constexpr int kEdges[] = {1, 2, 3, 63, 64, 65, 127, 128, 129, 192, 256};
  switch (random() % 8) {
    case 0:
    case 1: return kEdges[random() % std::size(kEdges)];
    case 2: return between(random, 300, kLongestPrompt);
    default: return between(random, 1, 200);
  }
}

}  // namespace

Planned draw(std::mt19937& random, int vocab, std::span<const TokenId> text) {
  Planned planned;
  engine::Request& request = planned.request;
  const auto id = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(vocab)); };
  request.prompt.resize(static_cast<std::size_t>(prompt_length(random)));
  if (text.empty()) {
    for (TokenId& token : request.prompt) token = id();
  } else {
    const auto begin = random() % (text.size() - request.prompt.size() + 1);
    std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(begin), request.prompt.size(), request.prompt.begin());
  }
  request.max_tokens = between(random, 1, 40);
  request.ignore_eos = true;
  request.logprobs = ops::kMaxTopLogprobs;
  ops::SamplingParams& sampling = request.sampling;
  sampling.temperature = random() % 2 == 0 ? 0.0f : 0.1f * static_cast<float>(between(random, 5, 13));
  sampling.seed = std::uint64_t{random()} << 32 | random();
  if (random() % 4 == 0) sampling.frequency_penalty = 0.5f;
  if (random() % 4 == 0) sampling.presence_penalty = 0.5f;
  if (random() % 4 == 0) sampling.repetition_penalty = 1.2f;
  if (random() % 4 == 0) sampling.logit_bias = {{0, -100.0f}, {std::min(vocab - 1, 1 + between(random, 0, 100)), 1.5f}};
  const auto fate = random() % 5;
  if (fate == 0) planned.leaves_after = between(random, 0, *request.max_tokens - 1);
  if (fate == 1) {
    planned.wants_stop = true;
    if (random() % 2 == 0) sampling.min_tokens = between(random, 0, *request.max_tokens);
  }
  return planned;
}

}  // namespace tandem::cli::soak
