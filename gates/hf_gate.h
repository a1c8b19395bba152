#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/group.h"
#include "model/partition.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace tandem::gates {

// What Hugging Face in float32 says at one position: the most probable ids, best first.
struct Truth {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

// A prompt and the tokens that are then fed one by one, whatever the model would have chosen. truth[0] is
// about the token after the prompt, truth[i] about the one after forced[i - 1].
struct GatePrompt {
  std::vector<TokenId> prompt;
  std::vector<TokenId> forced;
  std::vector<Truth> truth;
};

// Distances from the truth: |logprob - truth| over each position's 8 best ids (mean, 99th percentile,
// largest), and the largest amount by which an arg-max falls short of the truth's.
struct GateFigures {
  double mean = 0.0;
  double p99 = 0.0;
  double max = 0.0;
  double regret = 0.0;
};

struct GateFixture {
  std::string name;
  std::vector<GatePrompt> prompts;
  GateFigures floor;  // of Hugging Face in bf16
};

struct GateResult {
  GateFigures figures;
  bool repeatable = false;  // a second replay in the same process gave the same bits
  bool passed = false;      // mean <= 1.15 floor, p99 <= 1.3 floor, regret <= max(0.05, 1.3 floor), repeatable
  std::string table;        // figures and their ratios to the floor, one line each
};

struct GateOptions {
  int world = 1;
  model::LinearAttention linear_attention = model::LinearAttention::Replicated;
  model::VectorRounding rounding = model::VectorRounding::Bf16;
  int chunk_tokens = 512;      // of prompts that are longer than twice this; a multiple of 64
  int short_chunk_tokens = 64; // of all others, so that short prompts have chunks too
  bool replay_twice = true;
};

// Made on the rank's thread.
using BackendFactory = std::function<Result<std::unique_ptr<ops::Backend>>(RankId)>;

// Runs the fixture on `world` ranks, one thread each: prefill in chunks, then teacher-forced decode steps,
// all of it scored; and once more. `group` has `world` ranks (a world of one for one rank).
// Errors: those of loading and running; a result that did not pass is not an error.
[[nodiscard]] Result<GateResult> run_hf_gate(const std::filesystem::path& model, const GateFixture& fixture,
                                             const BackendFactory& backend, comm::Group& group,
                                             const GateOptions& options = {});

// The figures of given distributions: scored[p][i] belongs to prompts[p].truth[i].
[[nodiscard]] GateFigures score(const GateFixture& fixture, const std::vector<std::vector<ops::TokenChoice>>& scored);

}  // namespace tandem::gates
