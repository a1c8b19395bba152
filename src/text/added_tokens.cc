#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tandem::text {
namespace {

constexpr std::size_t kLongest = 512;  // bytes; bounds the time of a search

}  // namespace

Result<void> AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return fail(ErrorKind::Corrupt, fmt::format("the added token {} is empty", token.id));
  if (token.content.size() > kLongest)
    return fail(ErrorKind::Unsupported,
                fmt::format("the added token {} has {} bytes; at most {} are supported", token.id, token.content.size(), kLongest));
  if (const AddedToken* known = find(token.id)) {
    if (known->content == token.content && known->special == token.special) return {};
    return fail(ErrorKind::Corrupt, fmt::format("the added token {} is given as '{}' (special: {}) and as '{}' (special: {})",
                                                token.id, known->content, known->special, token.content, token.special));
  }
  if (const AddedToken* known = find(token.content)) {
    return fail(ErrorKind::Corrupt,
                fmt::format("the added token '{}' is given the ids {} and {}", token.content, known->id, token.id));
  }
  std::int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({byte, -1, -1, nodes_[static_cast<std::size_t>(node)].child});
      nodes_[static_cast<std::size_t>(node)].child = next;
    }
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].token = token.id;

  const auto first = static_cast<unsigned char>(token.content[0]);
  if (!begins_token_[first]) {
    begins_token_[first] = true;
    only_first_ = first;
    ++first_bytes_;
  }
  const auto place = std::lower_bound(tokens_.begin(), tokens_.end(), token.id, [](const AddedToken& t, TokenId id) { return t.id < id; });
  tokens_.insert(place, std::move(token));
  return {};
}

std::int32_t AddedTokens::child(std::int32_t node, unsigned char byte) const {
  std::int32_t at = nodes_[static_cast<std::size_t>(node)].child;
  while (at >= 0 && nodes_[static_cast<std::size_t>(at)].byte != byte) at = nodes_[static_cast<std::size_t>(at)].sibling;
  return at;
}

AddedTokens::Match AddedTokens::find_in(std::string_view text, std::size_t from) const {
  if (first_bytes_ == 0) return {};
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (first_bytes_ == 1) {
      const void* hit = std::memchr(text.data() + begin, only_first_, text.size() - begin);
      if (hit == nullptr) return {};
      begin = static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
    } else if (!begins_token_[static_cast<unsigned char>(text[begin])]) {
      continue;
    }
    TokenId longest = -1;
    std::int32_t node = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) break;
      if (nodes_[static_cast<std::size_t>(node)].token >= 0) longest = nodes_[static_cast<std::size_t>(node)].token;
    }
    if (longest >= 0) return {begin, find(longest)};
  }
  return {};
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto place = std::lower_bound(tokens_.begin(), tokens_.end(), id, [](const AddedToken& t, TokenId i) { return t.id < i; });
  return place != tokens_.end() && place->id == id ? &*place : nullptr;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto place = std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& t) { return t.content == content; });
  return place == tokens_.end() ? nullptr : &*place;
}

}  // namespace tandem::text
