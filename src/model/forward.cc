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

namespace {

// A step of padding rows alone: all on the trash slot and the scratch page.
struct PaddingStep {
  PaddingStep(int rows, SlotId trash, PageId scratch) : tokens(static_cast<std::size_t>(rows), 0), page(scratch) {
    for (int r = 0; r < rows; ++r) {
      step_rows.push_back({.token_begin = r, .slot = trash, .page_count = 1});
      logit_rows.push_back({.token = r, .slot = trash});
    }
  }
  ops::StepView view() const {
    return {.tokens = tokens, .rows = step_rows, .pages = std::span(&page, 1), .logit_rows = logit_rows,
            .decode_rows = static_cast<int>(step_rows.size())};
  }
  std::vector<TokenId> tokens;
  std::vector<ops::StepRow> step_rows;
  std::vector<ops::LogitRow> logit_rows;
  PageId page;
};

}  // namespace

Result<void> Forward::run_padding(int rows, SlotId trash, PageId scratch) {
  const PaddingStep step(rows, trash, scratch);
  TANDEM_ASSIGN(const std::uint64_t ticket, run(step.view()));
  TANDEM_TRY(backend_->wait(ticket));
  return {};
}

Result<void> Forward::record_decode(int rows, SlotId trash, PageId scratch) {
  const PaddingStep step(rows, trash, scratch);
  TANDEM_TRY(backend_->begin_step(step.view()));
  TANDEM_TRY(backend_->begin_recording());
  TANDEM_TRY(operators(step.view()));
  TANDEM_TRY(backend_->end_recording());
  TANDEM_ASSIGN(const std::uint64_t ticket, backend_->end_step());
  TANDEM_TRY(backend_->wait(ticket));
  return {};
}

// What a mixer projects first, and where the projection goes.
ops::LinearWeight Forward::projection(std::size_t layer) const {
  const auto& mixer = weights_.layers[layer].mixer;
  if (const auto* full = std::get_if<FullMixer>(&mixer)) return full->qkv;
  return std::get<LinearMixer>(mixer).in;
}

ops::View<bf16, 2> Forward::projected(std::size_t layer, int tokens) const {
  const bool full = std::holds_alternative<FullMixer>(weights_.layers[layer].mixer);
  return first(full ? scratch_.full.projected : scratch_.linear.projected, tokens);
}

// A mixer's output meets the residual together with the norm and the product that follow it, and so does the
// MLP's: the first norm and projection stand alone, then mixers and the blocks between them take turns.
Result<void> Forward::layers(int tokens) {
  TANDEM_TRY(backend_->norm({.x = first(scratch_.residual, tokens),
                             .weight = weights_.layers.front().input_norm,
                             .y = first(scratch_.hidden, tokens),
                             .eps = geometry_.norm_eps}));
  TANDEM_TRY(backend_->linear({.x = first(scratch_.hidden, tokens), .weight = projection(0), .y = projected(0, tokens)}));
  int full = 0, linear = 0;
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    if (const auto* mixer = std::get_if<FullMixer>(&weights_.layers[i].mixer)) {
      TANDEM_TRY(mix(*mixer, full++, tokens));
    } else {
      TANDEM_TRY(mix(std::get<LinearMixer>(weights_.layers[i].mixer), linear++, tokens));
    }
    TANDEM_TRY(block(i, tokens));
    TANDEM_TRY(note_residual(tokens));
  }
  return {};
}

// From the mixer of `layer` to the next one's, or to the final norm.
Result<void> Forward::block(std::size_t layer, int tokens) {
  const LayerWeights& weights = weights_.layers[layer];
  const bool last = layer + 1 == weights_.layers.size();
  ops::BlockArgs args{.post_norm = weights.post_norm,
                      .gate_up = weights.gate_up,
                      .down = weights.down,
                      .comm = comm_,
                      .next_norm = last ? weights_.final_norm : weights_.layers[layer + 1].input_norm,
                      .residual = first(scratch_.residual, tokens),
                      .hidden = first(scratch_.hidden, tokens),
                      .eps = geometry_.norm_eps,
                      .partial = first(scratch_.partial, tokens),
                      .gate_up_scratch = first(scratch_.mlp.gate_up, tokens),
                      .act = first(scratch_.mlp.y, tokens)};
  if (const auto* mixer = std::get_if<FullMixer>(&weights.mixer)) {
    args.mixed = joined(first(scratch_.full.y, tokens));
    args.out = mixer->out;
    args.out_comm = comm_;
  } else {
    args.mixed = joined(first(scratch_.linear.y, tokens));
    args.out = std::get<LinearMixer>(weights.mixer).out;
    args.out_comm = partition_.delta_is_partial() ? comm_ : alone_.get();
  }
  if (!last) {
    args.next = projection(layer + 1);
    args.projected = projected(layer + 1, tokens);
  }
  return backend_->block(args);
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
  TANDEM_TRY(backend_->attention_prepare({.projected = projected,
                                          .q_norm = mixer.q_norm,
                                          .k_norm = mixer.k_norm,
                                          .q = q,
                                          .kv = kv,
                                          .eps = geometry_.norm_eps,
                                          .rope_theta = geometry_.rope_theta}));
  return backend_->attention({.q = q, .gate = gate, .kv = kv, .y = y});
}

Result<void> Forward::mix(const LinearMixer& mixer, int index, int tokens) {
  const Scratch::Linear& s = scratch_.linear;
  return backend_->delta_mixer({.projected = first(s.projected, tokens),
                                .shape = partition_.delta(),
                                .params = mixer.params,
                                .state = pools_.state[static_cast<std::size_t>(index)],
                                .y = first(s.y, tokens),
                                .eps = geometry_.norm_eps,
                                .q = first(s.q, tokens),
                                .k = first(s.k, tokens),
                                .v = first(s.v, tokens),
                                .beta = first(s.beta, tokens),
                                .decay = first(s.decay, tokens)});
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
