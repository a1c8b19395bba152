#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

namespace tandem::text {
namespace {

constexpr std::size_t kShort = 32;  // bytes; up to here looking at all pairs beats a heap

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = mix(bytes.size() + 1);
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, at, left);
  return mix(mix(hash ^ word));
}

// Ordinary text repeats its words, so each thread remembers how recent short ones were cut. One
// line a word, the newest wins. Thread-local: no locks, and a Bpe stays constant.
class PieceCache {
 public:
  static constexpr std::size_t kMostBytes = 22;
  static constexpr std::size_t kMostTokens = 8;

  struct alignas(64) Line {
    std::uint64_t owner = 0;  // serial of a Bpe; 0: free
    char bytes[kMostBytes];
    std::uint8_t size;
    std::uint8_t tokens;
    TokenId ids[kMostTokens];

    bool holds(std::uint64_t serial, std::string_view piece) const {
      return owner == serial && size == piece.size() && std::memcmp(bytes, piece.data(), piece.size()) == 0;
    }
  };
  static_assert(sizeof(Line) == 64);

  Line& line(std::string_view piece) { return lines_[hash_bytes(piece) >> (64 - kBits)]; }

  static PieceCache& of_this_thread() {
    thread_local PieceCache cache;
    return cache;
  }

 private:
  static constexpr int kBits = 14;  // 1 MiB a thread that tokenizes
  std::vector<Line> lines_ = std::vector<Line>(std::size_t{1} << kBits);
};

std::atomic<std::uint64_t> g_next_serial{1};

}  // namespace

Bpe::Bpe() : serial_(g_next_serial.fetch_add(1, std::memory_order_relaxed)) {
  grow_index(1024);
  grow_merges(1024);
  byte_token_.fill(-1);
}

void Bpe::reserve(std::size_t tokens, std::size_t merges, std::size_t bytes) {
  arena_.reserve(bytes);
  spans_.reserve(tokens);
  grow_index(std::bit_ceil(tokens * 2));
  grow_merges(std::bit_ceil(merges * 2));
}

// The slot of these bytes, or the free one where they would go.
std::size_t Bpe::find_index(std::string_view wanted, std::uint64_t hash) const {
  const std::size_t mask = index_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash);
  for (std::size_t i = hash >> 32 & mask;; i = (i + 1) & mask) {
    if (index_[i].id < 0 || (index_[i].tag == tag && bytes(index_[i].id) == wanted)) return i;
  }
}

std::size_t Bpe::find_slot(std::uint64_t pair) const {
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t i = mix(mix(pair)) >> 20 & mask;; i = (i + 1) & mask) {
    if (merges_[i].pair == pair || merges_[i].pair == kNoPair) return i;
  }
}

void Bpe::grow_index(std::size_t slots) {
  if (slots <= index_.size()) return;
  const std::vector<IndexSlot> old = std::exchange(index_, std::vector<IndexSlot>(slots));
  for (const IndexSlot& slot : old) {
    if (slot.id >= 0) index_[find_index(bytes(slot.id), hash_bytes(bytes(slot.id)))] = slot;
  }
}

void Bpe::grow_merges(std::size_t slots) {
  if (slots <= merges_.size()) return;
  const std::vector<Slot> old = std::exchange(merges_, std::vector<Slot>(slots, Slot{kNoPair, {kNoRank, -1}}));
  for (const Slot& slot : old) {
    if (slot.pair != kNoPair) merges_[find_slot(slot.pair)] = slot;
  }
}

Result<void> Bpe::add_token(TokenId id, std::string_view token) {
  if (!bytes(id).empty()) return fail(ErrorKind::Corrupt, fmt::format("two tokens have the id {}", id));
  if (arena_.size() + token.size() > std::numeric_limits<std::uint32_t>::max())
    return fail(ErrorKind::Capacity, "the tokens' bytes are more than 4 GiB");
  if (tokens_ * 2 >= index_.size()) grow_index(index_.size() * 2);
  const std::uint64_t hash = hash_bytes(token);
  IndexSlot& slot = index_[find_index(token, hash)];
  if (slot.id >= 0) return fail(ErrorKind::Corrupt, fmt::format("the ids {} and {} are the same bytes", slot.id, id));
  const auto place = static_cast<std::size_t>(id);
  if (place >= spans_.size()) spans_.resize(place + 1);
  spans_[place] = {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(token.size())};
  arena_ += token;
  slot = {static_cast<std::uint32_t>(hash), id};
  ++tokens_;
  return {};
}

Result<void> Bpe::seal_tokens() {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const TokenId id = find({&c, 1});
    if (id < 0)
      return fail(ErrorKind::Unsupported,
                  fmt::format("no token for the byte 0x{:02X}; byte-level BPE needs one for each of the 256 bytes", byte));
    byte_token_[static_cast<std::size_t>(byte)] = id;
  }
  return {};
}

Result<void> Bpe::add_merge(std::string_view left, std::string_view right) {
  std::string whole(left);
  whole += right;
  // Vocabularies list merged tokens in the order of the merges, so the next one is a good guess.
  const TokenId id = bytes(last_merged_ + 1) == whole ? last_merged_ + 1 : find(whole);
  const TokenId left_id = find(left), right_id = find(right);
  if (left_id < 0 || right_id < 0 || id < 0)
    return fail(ErrorKind::Corrupt, fmt::format("merge {} needs a token that is not in the vocabulary", next_rank_));
  if (merge_count_ * 2 >= merges_.size()) grow_merges(merges_.size() * 2);
  Slot& slot = merges_[find_slot(pair_of(left_id, right_id))];
  if (slot.pair == kNoPair) ++merge_count_;
  slot = {pair_of(left_id, right_id), {next_rank_++, id}};
  last_merged_ = id;
  return {};
}

TokenId Bpe::find(std::string_view wanted) const { return index_[find_index(wanted, hash_bytes(wanted))].id; }

Bpe::Merge Bpe::merge_of(TokenId left, TokenId right) const { return merges_[find_slot(pair_of(left, right))].merge; }

void Bpe::append(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(byte_token_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > PieceCache::kMostBytes) {
    piece.size() <= kShort ? append_short(piece, ids) : append_long(piece, ids);
    return;
  }
  PieceCache::Line& line = PieceCache::of_this_thread().line(piece);
  if (line.holds(serial_, piece)) {
    ids.insert(ids.end(), line.ids, line.ids + line.tokens);
    return;
  }
  const std::size_t before = ids.size();
  append_short(piece, ids);
  const std::size_t count = ids.size() - before;
  if (count > PieceCache::kMostTokens) return;
  line.owner = serial_;
  line.size = static_cast<std::uint8_t>(piece.size());
  line.tokens = static_cast<std::uint8_t>(count);
  std::memcpy(line.bytes, piece.data(), piece.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), line.ids);
}

// Looks for the best pair among all that are left, each time.
void Bpe::append_short(std::string_view piece, std::vector<TokenId>& ids) const {
  TokenId tokens[kShort];
  Merge merges[kShort];  // merges[i] of tokens[i] and tokens[i + 1]
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) tokens[i] = byte_token_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    tokens[best] = merges[best].id;
    --count;
    std::move(tokens + best + 2, tokens + count + 1, tokens + best + 1);
    std::move(merges + best + 1, merges + count, merges + best);
    if (best + 1 < count) merges[best] = merge_of(tokens[best], tokens[best + 1]);
    if (best > 0) merges[best - 1] = merge_of(tokens[best - 1], tokens[best]);
  }
  ids.insert(ids.end(), tokens, tokens + count);
}

// Keeps the pairs in a heap and the tokens in a linked list. A pair that changed after it went into
// the heap is recognised by its rank and passed over.
void Bpe::append_long(std::string_view piece, std::vector<TokenId>& ids) const {
  struct Node {
    TokenId token;
    std::uint32_t previous, next;
    Merge merge;  // with the next node
  };
  constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Node> nodes(count);
  std::vector<std::uint64_t> heap;  // rank above, place below: the leftmost of the lowest rank is first
  const auto entry = [&](std::uint32_t place) { return std::uint64_t{nodes[place].merge.rank} << 32 | place; };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {byte_token_[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1, {kNoRank, -1}};
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    nodes[i].merge = merge_of(nodes[i].token, nodes[i + 1].token);
    if (nodes[i].merge.rank != kNoRank) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto update = [&](std::uint32_t place) {
    Node& node = nodes[place];
    node.merge = node.next == kEnd ? Merge{kNoRank, -1} : merge_of(node.token, nodes[node.next].token);
    if (node.merge.rank == kNoRank) return;
    heap.push_back(entry(place));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto place = static_cast<std::uint32_t>(top);
    Node& node = nodes[place];
    if (node.merge.rank != top >> 32) continue;
    Node& eaten = nodes[node.next];
    eaten.merge.rank = kNoRank;
    node.token = node.merge.id;
    node.next = eaten.next;
    if (node.next != kEnd) nodes[node.next].previous = place;
    update(place);
    if (node.previous != kEnd) update(node.previous);
  }
  for (std::uint32_t i = count == 0 ? kEnd : 0; i != kEnd; i = nodes[i].next) ids.push_back(nodes[i].token);
}

}  // namespace tandem::text
