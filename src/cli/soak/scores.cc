#include "cli/soak/scores.h"

#include <algorithm>

namespace tandem::cli::soak {

void Scores::add(const Answer& got, std::span<const engine::TokenLogprob> there) {
  gates::GatePrompt prompt;
  std::vector<ops::TokenChoice> choices;
  for (std::size_t i = 0; i < got.tokens.size(); ++i) {
    const auto& here = got.tokens[i].top;
    ops::TokenChoice choice{.id = got.tokens[i].id, .logprob = got.tokens[i].logprob, .top_count = static_cast<std::int32_t>(here.size())};
    for (std::size_t k = 0; k < here.size(); ++k) std::tie(choice.top_ids[k], choice.top_logprobs[k]) = here[k];
    choices.push_back(choice);
    gates::Truth truth;
    for (const auto& [id, logprob] : there[i].top) {
      truth.ids.push_back(id);
      truth.logprobs.push_back(logprob);
    }
    prompt.truth.push_back(std::move(truth));
  }
  tokens_ += choices.size();
  here_.push_back(std::move(choices));
  there_.prompts.push_back(std::move(prompt));
}

gates::GateFigures Scores::figures() const { return gates::score(there_, here_); }

}  // namespace tandem::cli::soak
