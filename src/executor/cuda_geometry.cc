#include "executor/cuda_geometry.h"

#include <fmt/format.h>

#include <string_view>

namespace tandem::executor {
namespace {

constexpr int kMostHeads = 8;       // query heads that read a kv head at once; value heads of a key head, a cluster of blocks
constexpr int kAlignment = 8;       // elements of one load
constexpr int kMostHidden = 8192;   // eight elements for each thread of a norm's block
constexpr int kMostVocab = 460000;  // a row's logits lie in the shared memory of eight blocks

Result<void> refuse(std::string_view what, std::string_view works) {
  return fail(ErrorKind::Unsupported, fmt::format("[model] {}; CUDA runs {}; --device cpu works", what, works), "--device");
}

}  // namespace

Result<void> check_cuda_geometry(const model::Geometry& g) {
  if (g.query_heads > kMostHeads * g.kv_heads) {
    return refuse(fmt::format("num_attention_heads = {} with num_key_value_heads = {}", g.query_heads, g.kv_heads),
                  fmt::format("up to {} query heads a kv head", kMostHeads));
  }
  if (g.value_heads > kMostHeads * g.key_heads) {
    return refuse(fmt::format("linear_num_value_heads = {} with linear_num_key_heads = {}", g.value_heads, g.key_heads),
                  fmt::format("up to {} value heads a key head", kMostHeads));
  }
  // Rows of the linear mixer's projection end with two numbers a value head and begin at multiples of 8 bytes.
  if (g.linear_layers() > 0 && g.value_heads % 2 != 0)
    return refuse(fmt::format("linear_num_value_heads = {}", g.value_heads), "even numbers of them");
  for (const auto& [field, value] : {std::pair{"hidden_size", g.hidden}, std::pair{"intermediate_size", g.intermediate}})
    if (value % kAlignment != 0) return refuse(fmt::format("{} = {}", field, value), fmt::format("multiples of {}", kAlignment));
  if (g.hidden > kMostHidden) return refuse(fmt::format("hidden_size = {}", g.hidden), fmt::format("up to {}", kMostHidden));
  if (g.vocab > kMostVocab) return refuse(fmt::format("vocab_size = {}", g.vocab), fmt::format("up to {}", kMostVocab));
  return {};
}

}  // namespace tandem::executor
