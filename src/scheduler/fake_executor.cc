#include "scheduler/fake_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace tandem::scheduler {
namespace {

constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr std::uint64_t fold(std::uint64_t state, TokenId id) {
  return mix(state ^ (static_cast<std::uint64_t>(id) + 1));
}

constexpr TokenId hash_token(std::uint64_t state, std::int32_t position, std::uint64_t seed,
                             std::int32_t vocab) {
  return static_cast<TokenId>(mix(state ^ mix(seed) ^ static_cast<std::uint64_t>(position)) %
                              static_cast<std::uint64_t>(vocab));
}

// The next id upwards that min_tokens allows.
TokenId unmasked(TokenId id, const ops::SamplingParams& sampling, std::int32_t generated,
                 std::int32_t vocab) {
  if (generated >= sampling.min_tokens) return id;
  const auto& masked = sampling.stop_ids;
  while (std::find(masked.begin(), masked.end(), id) != masked.end()) id = (id + 1) % vocab;
  return id;
}

ops::TokenChoice choice_of(TokenId id, std::int32_t top, std::int32_t vocab) {
  ops::TokenChoice choice;
  choice.id = id;
  choice.logprob = -0.5f;
  choice.top_count = std::max(top, 0);
  for (std::int32_t i = 0; i < choice.top_count; ++i) {
    choice.top_ids[static_cast<std::size_t>(i)] = (id + i) % vocab;
    choice.top_logprobs[static_cast<std::size_t>(i)] = -0.5f - static_cast<float>(i);
  }
  return choice;
}

}  // namespace

FakeExecutor::FakeExecutor(Options options) : options_(std::move(options)) {}

std::vector<TokenId> FakeExecutor::solo(std::span<const TokenId> prompt, const ops::SamplingParams& sampling,
                                        std::int32_t tokens, std::int32_t vocab) {
  std::uint64_t state = 0;
  for (const TokenId id : prompt) state = fold(state, id);
  std::vector<TokenId> out;
  for (std::int32_t i = 0; i < tokens; ++i) {
    const TokenId id = hash_token(state, static_cast<std::int32_t>(prompt.size()) + i, sampling.seed, vocab);
    out.push_back(unmasked(id, sampling, i, vocab));
    state = fold(state, out.back());
  }
  return out;
}

tl::unexpected<Error> FakeExecutor::poison(Error error) {
  if (!poison_) poison_ = error;
  return fail(std::move(error));
}

Result<void> FakeExecutor::enter(std::string_view operation) {
  if (poison_) return fail(ErrorKind::Poisoned, poison_->message);
  operations_ += 1;
  if (options_.fault)
    if (auto fault = options_.fault(operation, operations_); !fault) return poison(std::move(fault.error()));
  return {};
}

Result<void> FakeExecutor::check_plan(const rank::Step& step) const {
  const rank::Capacity& capacity = options_.capacity;
  const auto bad = [](std::string what) { return fail(ErrorKind::Invalid, "[fake_executor] " + what); };
  if (step.rows.empty()) return bad("a step without rows");
  if (std::ssize(step.rows) > capacity.slots)
    return bad(fmt::format("{} rows, {} slots", step.rows.size(), capacity.slots));
  if (std::ssize(flights_) >= options_.max_in_flight) return bad("more steps in flight than allowed");
  std::set<RequestId> ids;
  std::int32_t tokens = 0, decode_rows = 0;
  for (const rank::Row& row : step.rows) {
    const bool decode = row.kind == ops::RowKind::Decode;
    const std::string who = fmt::format("request {}: ", row.request.value);
    if (!ids.insert(row.request).second) return bad(who + "two rows");
    if (decode && decode_rows != std::distance(step.rows.data(), &row))
      return bad(who + "decode row after prefill");
    if (row.tokens < 1 || (decode && row.tokens != 1))
      return bad(fmt::format("{}{} tokens", who, row.tokens));
    if (decode ? row.ids.size() > 1 : std::ssize(row.ids) != row.tokens)
      return bad(who + "ids do not match tokens");
    for (const TokenId id : row.ids)
      if (id < 0 || id >= capacity.vocab)
        return bad(fmt::format("{}id {} outside 0..{}", who, id, capacity.vocab - 1));
    if (decode && !row.samples) return bad(who + "a decode row that does not sample");
    if (!decode && !row.samples && (row.base_pos + row.tokens) % ops::kPageTokens != 0)
      return bad(fmt::format("{}chunk ends at {}, not on a multiple of 64", who, row.base_pos + row.tokens));
    if (row.base_pos + row.tokens > capacity.max_context) return bad(who + "beyond the context");
    decode_rows += decode ? 1 : 0;
    tokens += row.tokens;
  }
  const std::int32_t most = decode_rows > 0 ? std::max(capacity.max_step_tokens, capacity.max_mixed_tokens) : capacity.max_step_tokens;
  if (tokens > most)
    return bad(fmt::format("{} tokens with {} decode rows, budget {}", tokens, decode_rows, most));
  if (!options_.mixed && decode_rows > 0 && decode_rows < std::ssize(step.rows))
    return bad("mixed, with mixed off");
  return {};
}

Result<void> FakeExecutor::submit_step(rank::Step step) {
  TANDEM_TRY(enter("submit"));
  TANDEM_TRY(check_plan(step));
  if (on_step) on_step(step);
  flights_.push_back(std::move(step));
  return {};
}

Result<void> FakeExecutor::apply(const rank::Row& row, rank::StepResult& result) {
  const auto bad = [&](std::string_view what) {
    return fail(ErrorKind::Protocol, fmt::format("[fake_executor] request {}: {}", row.request.value, what));
  };
  const auto bound = slots_.find(row.slot);
  if (row.base_pos == 0) {
    if (dropped_.contains(row.request)) return bad("its id was used before");
    if (requests_.contains(row.request)) return bad("starts twice");
    if (bound != slots_.end()) return bad("its slot is bound to another request");
    if (row.slot.value < 0 || row.slot.value >= options_.capacity.slots) return bad("no such slot");
    if (!row.sampling) return bad("no sampling parameters in its first row");
    slots_.emplace(row.slot, row.request);
    requests_[row.request] = Request{.slot = row.slot, .sampling = *row.sampling};
  } else if (bound == slots_.end() || bound->second != row.request) {
    return bad("names a slot that is not its own");
  } else if (row.sampling) {
    return bad("sampling parameters after its first row");
  }
  Request& request = requests_.at(row.request);
  if (row.base_pos != request.tokens)
    return bad(fmt::format("at {} of {} tokens", row.base_pos, request.tokens));
  if (row.generated != request.generated) return bad("another count of generated tokens");
  if ((row.kind == ops::RowKind::Decode) != request.prompt_done) return bad("wrong kind of row");
  for (const PageId page : row.new_pages) {
    if (page.value < 0 || page.value >= options_.capacity.pages) return bad("no such page");
    if (!pages_.emplace(page, row.request).second) return bad(fmt::format("page {} is taken", page.value));
    request.pages.push_back(page);
  }
  const std::int32_t needed = (row.base_pos + row.tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  if (std::ssize(request.pages) != needed)
    return bad(fmt::format("{} pages for {}", request.pages.size(), needed));

  rank::Artifact artifact{.request = row.request};
  for (std::int32_t i = 0; i < row.tokens; ++i) {
    const TokenId id = row.ids.empty() ? request.last : row.ids[static_cast<std::size_t>(i)];
    if (row.kind == ops::RowKind::Decode && id != request.last) return bad("does not feed its last token");
    request.state = fold(request.state, id);
    const TokenId next = row.kind == ops::RowKind::Decode ? -1
                         : i + 1 < row.tokens             ? row.ids[static_cast<std::size_t>(i) + 1]
                                                          : row.prompt_next;
    if (row.prompt_logprobs >= 0 && next >= 0)
      artifact.prompt_logprobs.push_back(choice_of(next, row.prompt_logprobs, options_.capacity.vocab));
  }
  request.tokens += row.tokens;
  if (row.samples) {
    request.prompt_done = true;
    TokenId id = hash_token(request.state, request.tokens, request.sampling.seed, options_.capacity.vocab);
    if (options_.choose) id = options_.choose(row.request, request.generated, id);
    id = unmasked(id, request.sampling, request.generated, options_.capacity.vocab);
    request.last = id;
    request.generated += 1;
    artifact.choice = choice_of(id, row.top_logprobs, options_.capacity.vocab);
  }
  if (options_.spoil) options_.spoil(row, artifact);
  if (artifact.choice || !artifact.prompt_logprobs.empty()) result.artifacts.push_back(std::move(artifact));
  return {};
}

Result<rank::StepResult> FakeExecutor::wait_step() {
  {
    std::unique_lock lock(mutex_);
    if (hold_) {
      held_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !hold_; });
      held_ = false;
    }
  }
  if (on_wait) on_wait();
  TANDEM_TRY(enter("step"));
  if (flights_.empty()) return poison({ErrorKind::Protocol, "[fake_executor] no step is in flight"});
  const rank::Step step = std::move(flights_.front());
  flights_.pop_front();
  rank::StepResult result;
  std::int32_t tokens = 0;
  for (const rank::Row& row : step.rows) {
    if (auto applied = apply(row, result); !applied) return poison(std::move(applied.error()));
    tokens += row.tokens;
    if (row.kind == ops::RowKind::Decode)
      seen_.decode_rows += 1;
    else
      seen_.prefill_tokens += static_cast<std::uint64_t>(row.tokens);
  }
  seen_.steps += 1;
  seen_.most_rows = std::max(seen_.most_rows, static_cast<std::int32_t>(step.rows.size()));
  seen_.most_tokens = std::max(seen_.most_tokens, tokens);
  seen_.most_live = std::max(seen_.most_live, static_cast<std::int32_t>(requests_.size()));
  if (options_.shuffle != 0) {
    std::mt19937_64 order(mix(options_.shuffle ^ seen_.steps));
    std::shuffle(result.artifacts.begin(), result.artifacts.end(), order);
  }
  return result;
}

Result<void> FakeExecutor::drop(std::span<const rank::Drop> drops) {
  TANDEM_TRY(enter("drop"));
  if (on_drop) on_drop(drops);
  seen_.drops += 1;
  for (const rank::Drop& drop : drops) {
    const auto at = requests_.find(drop.request);
    const bool expected = drop.expectation == rank::Expectation::MustExist;
    if (expected != (at != requests_.end()))
      return poison(
          {ErrorKind::Protocol, fmt::format("[fake_executor] drop of request {}: expected {}, found {}",
                                            drop.request.value, expected, !expected)});
    for (const rank::Step& step : flights_)
      for (const rank::Row& row : step.rows)
        if (row.request == drop.request)
          return poison(
              {ErrorKind::Protocol,
               fmt::format("[fake_executor] drop of request {}, which is in flight", drop.request.value)});
    if (!dropped_.insert(drop.request).second)
      return poison(
          {ErrorKind::Protocol, fmt::format("[fake_executor] request {} dropped twice", drop.request.value)});
    if (at == requests_.end()) continue;
    slots_.erase(at->second.slot);
    for (const PageId page : at->second.pages) pages_.erase(page);
    requests_.erase(at);
  }
  return {};
}

Result<void> FakeExecutor::shutdown() {
  seen_.shut_down = true;
  return {};
}

void FakeExecutor::hold() {
  std::lock_guard lock(mutex_);
  hold_ = true;
}

void FakeExecutor::release() {
  {
    std::lock_guard lock(mutex_);
    hold_ = false;
  }
  changed_.notify_all();
}

void FakeExecutor::wait_until_held() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_; });
}

}  // namespace tandem::scheduler
