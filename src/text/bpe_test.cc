#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tandem::text {
namespace {

std::string byte(int value) { return std::string(1, static_cast<char>(value)); }

// A vocabulary of all bytes (ids 0..255) and random merges over a few letters.
struct RandomVocabulary {
  explicit RandomVocabulary(unsigned seed, int letters = 3, int wanted = 60) {
    std::mt19937 random(seed);
    for (int i = 0; i < 256; ++i) tokens.push_back(byte(i));
    std::vector<std::string> parts;
    for (int i = 0; i < letters; ++i) parts.push_back(byte('a' + i));
    std::map<std::string, int> ids;
    for (int tries = 0; tries < wanted; ++tries) {
      const std::string left = parts[random() % parts.size()], right = parts[random() % parts.size()];
      if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
      merges.emplace_back(left, right);
      if (!ids.contains(left + right)) {
        ids[left + right] = static_cast<int>(tokens.size());
        tokens.push_back(left + right);
        parts.push_back(left + right);
      }
    }
    for (std::size_t id = 0; id < tokens.size(); ++id) EXPECT_TRUE(bpe.add_token(static_cast<TokenId>(id), tokens[id]));
    EXPECT_TRUE(bpe.seal_tokens());
    for (const auto& [left, right] : merges) EXPECT_TRUE(bpe.add_merge(left, right));
  }

  // The rule, word for word.
  std::vector<std::string> merge_plainly(const std::string& piece) const {
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    while (true) {
      std::size_t best_rank = merges.size(), best = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto rank = static_cast<std::size_t>(std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1])) - merges.begin());
        if (rank < best_rank) best_rank = rank, best = i;
      }
      if (best_rank == merges.size()) return parts;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }

  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  Bpe bpe;
};

std::vector<std::string> texts(const Bpe& bpe, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.emplace_back(bpe.bytes(id));
  return out;
}

TEST(Bpe, EqualsThePlainRuleForShortAndLongPieces) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const RandomVocabulary vocabulary(seed);
    std::mt19937 random(seed + 1000);
    for (int round = 0; round < 50; ++round) {
      std::string piece;
      for (unsigned n = 1 + random() % (round % 2 == 0 ? 24 : 120); n > 0; --n) piece += static_cast<char>('a' + random() % 3);
      for (int again = 0; again < 2; ++again) {  // the second time from the cache
        std::vector<TokenId> ids;
        vocabulary.bpe.append(piece, ids);
        ASSERT_EQ(texts(vocabulary.bpe, ids), vocabulary.merge_plainly(piece)) << "seed " << seed << " piece " << piece;
      }
    }
  }
}

TEST(Bpe, VocabulariesDoNotShareCachedPieces) {
  const RandomVocabulary first(1), second(2);
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string piece;
    for (unsigned n = 2 + random() % 8; n > 0; --n) piece += static_cast<char>('a' + random() % 3);
    for (const RandomVocabulary* vocabulary : {&first, &second}) {
      std::vector<TokenId> ids;
      vocabulary->bpe.append(piece, ids);
      ASSERT_EQ(texts(vocabulary->bpe, ids), vocabulary->merge_plainly(piece)) << piece;
    }
  }
}

TEST(Bpe, AMegabyteOfOneLetterIsOneHeapNotAQuadraticScan) {
  const RandomVocabulary vocabulary(5, 1, 12);
  std::vector<TokenId> ids;
  vocabulary.bpe.append(std::string(1 << 20, 'a'), ids);
  std::size_t bytes = 0;
  for (const TokenId id : ids) bytes += vocabulary.bpe.bytes(id).size();
  EXPECT_EQ(bytes, std::size_t{1} << 20);
}

TEST(Bpe, RefusesContradictionsByName) {
  Bpe bpe;
  ASSERT_TRUE(bpe.add_token(0, "a"));
  EXPECT_EQ(bpe.add_token(0, "b").error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(bpe.add_token(1, "a").error().kind, ErrorKind::Corrupt);
  EXPECT_EQ(bpe.seal_tokens().error().message, "no token for the byte 0x00; byte-level BPE needs one for each of the 256 bytes");
  EXPECT_EQ(bpe.add_merge("a", "a").error().kind, ErrorKind::Corrupt);
}

TEST(Bpe, IdsWithoutATokenHaveNoBytes) {
  const RandomVocabulary vocabulary(1);
  EXPECT_EQ(vocabulary.bpe.bytes(-1), "");
  EXPECT_EQ(vocabulary.bpe.bytes(vocabulary.bpe.end_id()), "");
  EXPECT_EQ(vocabulary.bpe.find("zz"), -1);
}

}  // namespace
}  // namespace tandem::text
