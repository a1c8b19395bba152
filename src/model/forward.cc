#include "model/forward.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "comm/world_of_one.h"

namespace tandem::model {
namespace {

template <class T>
ops::View<T, 3> first(ops::View<T, 3> view, std::int64_t rows) {
  return {view.data, {rows, view.shape[1], view.shape[2]}, view.stride};
}

template <class T>
ops::View<T, 2> first(ops::View<T, 2> view, std::int64_t rows) {
  return ops::first_rows(view, rows);
}

// [T, heads, width] seen as [T, heads * width]; the heads of a token lie side by side.
ops::View<const bf16, 2> joined(ops::View<bf16, 3> view) {
  return {view.data, {view.shape[0], view.shape[1] * view.shape[2]}, {view.stride[0], 1}};
}

}  // namespace

Result<Forward> Forward::make(ops::Backend& backend, comm::Communicator& comm, const Geometry& geometry,
                              const Partition& partition, Weights weights, const ForwardOptions& options) {
  Forward forward(backend, comm, geometry, partition);
  forward.weights_ = std::move(weights);
  forward.options_ = options;
  if (options.tokens_with_text <= 0) forward.options_.tokens_with_text = geometry.vocab;
  TANDEM_ASSIGN(forward.alone_, comm::make_world_of_one()->join(RankId{0}, nullptr));

  const std::size_t bytes = Scratch::bytes(geometry, partition, options.limits);
  TANDEM_ASSIGN(void* const memory, backend.allocate(bytes, ops::MemoryUse::Scratch, "forward scratch"));
  Arena arena(static_cast<std::byte*>(memory));
  forward.scratch_ = Scratch::lay_out(arena, geometry, partition, options.limits);
  return forward;
}

Result<std::uint64_t> Forward::run(const ops::StepView& step) {
  TANDEM_TRY(backend_->begin_step(step));
  hashes_.clear();
  bool replayed = false;
  if (!options_.hash_residual) {
    TANDEM_ASSIGN(replayed, backend_->replay());
  }
  if (!replayed) TANDEM_TRY(operators(step));
  return backend_->end_step();
}

Result<void> Forward::operators(const ops::StepView& step) {
  const int tokens = step.total_tokens();
  TANDEM_TRY(backend_->embed({.weight = weights_.embedding, .x = first(scratch_.residual, tokens)}));
  TANDEM_TRY(note_residual(tokens));
  TANDEM_TRY(layers(tokens));
  return choose(step);
}

Result<void> Forward::record_decode(int rows, SlotId trash, PageId scratch) {
  const std::vector<TokenId> tokens(static_cast<std::size_t>(rows), 0);
  std::vector<ops::StepRow> step_rows;
  std::vector<ops::LogitRow> logit_rows;
  for (int r = 0; r < rows; ++r) {
    step_rows.push_back({.token_begin = r, .slot = trash, .page_count = 1});
    logit_rows.push_back({.token = r, .slot = trash});
  }
  const ops::StepView step{.tokens = tokens, .rows = step_rows, .pages = std::span(&scratch, 1),
                           .logit_rows = logit_rows, .decode_rows = rows};
  TANDEM_TRY(backend_->begin_step(step));
  TANDEM_TRY(backend_->begin_recording());
  TANDEM_TRY(operators(step));
  TANDEM_TRY(backend_->end_recording());
  TANDEM_ASSIGN(const std::uint64_t ticket, backend_->end_step());
  TANDEM_TRY(backend_->wait(ticket));
  return {};
}

// Each block's output meets the residual together with the norm that follows it, so the first norm stands
// alone and the last one is the model's final norm.
Result<void> Forward::layers(int tokens) {
  TANDEM_TRY(backend_->norm({.x = first(scratch_.residual, tokens),
                             .weight = weights_.layers.front().input_norm,
                             .y = first(scratch_.hidden, tokens),
                             .eps = geometry_.norm_eps}));
  int full = 0, linear = 0;
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    if (const auto* mixer = std::get_if<FullMixer>(&layer.mixer)) {
      TANDEM_TRY(mix(*mixer, full++, tokens));
      TANDEM_TRY(add_and_norm(layer.post_norm, tokens, *comm_));
    } else {
      TANDEM_TRY(mix(std::get<LinearMixer>(layer.mixer), linear++, tokens));
      TANDEM_TRY(add_and_norm(layer.post_norm, tokens, partition_.delta_is_partial() ? *comm_ : *alone_));
    }
    TANDEM_TRY(backend_->linear_swiglu({.x = first(scratch_.hidden, tokens),
                                        .weight = layer.gate_up,
                                        .gate_up = first(scratch_.mlp.gate_up, tokens),
                                        .y = first(scratch_.mlp.y, tokens)}));
    TANDEM_TRY(backend_->linear({.x = first(scratch_.mlp.y, tokens),
                                 .weight = layer.down,
                                 .y = first(scratch_.partial, tokens)}));
    const bool last = i + 1 == weights_.layers.size();
    TANDEM_TRY(add_and_norm(last ? weights_.final_norm : weights_.layers[i + 1].input_norm, tokens, *comm_));
    TANDEM_TRY(note_residual(tokens));
  }
  return {};
}

Result<void> Forward::mix(const FullMixer& mixer, int index, int tokens) {
  const ops::KvPages& kv = pools_.kv[static_cast<std::size_t>(index)];
  const ops::View<bf16, 2> projected = first(scratch_.full.projected, tokens);
  const ops::View<bf16, 3> q = first(scratch_.full.q, tokens);
  const ops::View<bf16, 3> y = first(scratch_.full.y, tokens);
  // A head's 512 outputs are its query, then its gate.
  const ops::View<const bf16, 3> gate{projected.data + ops::kHeadDim,
                                      {tokens, partition_.query_heads(), ops::kHeadDim},
                                      {projected.stride[0], 2 * ops::kHeadDim, 1}};
  TANDEM_TRY(backend_->linear({.x = first(scratch_.hidden, tokens), .weight = mixer.qkv, .y = projected}));
  TANDEM_TRY(backend_->attention_prepare({.projected = projected,
                                          .q_norm = mixer.q_norm,
                                          .k_norm = mixer.k_norm,
                                          .q = q,
                                          .kv = kv,
                                          .eps = geometry_.norm_eps,
                                          .rope_theta = geometry_.rope_theta}));
  TANDEM_TRY(backend_->attention({.q = q, .gate = gate, .kv = kv, .y = y}));
  return backend_->linear({.x = joined(y), .weight = mixer.out, .y = first(scratch_.partial, tokens)});
}

Result<void> Forward::mix(const LinearMixer& mixer, int index, int tokens) {
  const Scratch::Linear& s = scratch_.linear;
  const ops::View<bf16, 2> projected = first(s.projected, tokens);
  const ops::View<bf16, 3> y = first(s.y, tokens);
  TANDEM_TRY(backend_->linear({.x = first(scratch_.hidden, tokens), .weight = mixer.in, .y = projected}));
  TANDEM_TRY(backend_->delta_mixer({.projected = projected,
                                    .shape = partition_.delta(),
                                    .params = mixer.params,
                                    .state = pools_.state[static_cast<std::size_t>(index)],
                                    .y = y,
                                    .eps = geometry_.norm_eps,
                                    .q = first(s.q, tokens),
                                    .k = first(s.k, tokens),
                                    .v = first(s.v, tokens),
                                    .beta = first(s.beta, tokens),
                                    .decay = first(s.decay, tokens)}));
  return backend_->linear({.x = joined(y), .weight = mixer.out, .y = first(scratch_.partial, tokens)});
}

Result<void> Forward::add_and_norm(const float* weight, int tokens, comm::Communicator& comm) {
  return backend_->reduce_add_norm({.partial = first(scratch_.partial, tokens),
                                    .residual = first(scratch_.residual, tokens),
                                    .weight = weight,
                                    .y = first(scratch_.hidden, tokens),
                                    .eps = geometry_.norm_eps,
                                    .comm = &comm});
}

// Rank 0 alone chooses; the ids reach every rank as the step's last collective (R1.7).
Result<void> Forward::choose(const ops::StepView& step) {
  const int rows = static_cast<int>(step.logit_rows.size());
  if (partition_.has_head()) {
    TANDEM_TRY(backend_->note_prompt());
    for (int begin = 0; begin < rows; begin += options_.limits.max_logit_rows) {
      const int count = std::min(rows - begin, options_.limits.max_logit_rows);
      const ops::View<float, 2> logits = first(scratch_.logits, count);
      TANDEM_TRY(backend_->head({.hidden = first(scratch_.hidden, step.total_tokens()),
                                 .weight = weights_.head,
                                 .logits = logits,
                                 .first = begin}));
      TANDEM_TRY(backend_->sample({.logits = logits,
                                   .ids = scratch_.ids,
                                   .first = begin,
                                   .vocab = options_.tokens_with_text,
                                   .mode = options_.logprobs}));
    }
  }
  if (rows == 0) return {};
  if (comm_->world() > 1) TANDEM_TRY(comm_->broadcast(scratch_.ids, rows));
  return backend_->store_sampled(scratch_.ids);
}

Result<void> Forward::note_residual(int tokens) {
  if (!options_.hash_residual) return {};
  hash_buffer_.resize(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(geometry_.hidden));
  const std::size_t bytes = hash_buffer_.size() * sizeof(bf16);
  TANDEM_TRY(backend_->copy_to_host(hash_buffer_.data(), scratch_.residual.data, bytes));
  hashes_.push_back(XXH3_64bits(hash_buffer_.data(), bytes));
  return {};
}

}  // namespace tandem::model
