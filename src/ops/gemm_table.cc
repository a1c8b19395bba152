#include "ops/gemm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace tandem::ops {
namespace {

constexpr std::int64_t kMostSide = 1 << 20;  // n, k
constexpr int kMostTokens = 1 << 20;

// Words of one line, left to right.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line.substr(0, line.find_first_of("#|"))) {}

  [[nodiscard]] std::string_view next() {
    const std::size_t begin = rest_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return rest_ = {};
    const std::size_t end = std::min(rest_.find_first_of(" \t\r", begin), rest_.size());
    const std::string_view word = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return word;
  }
  [[nodiscard]] std::string_view rest() const {
    const std::size_t begin = rest_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return rest_.substr(begin, rest_.find_last_not_of(" \t\r") - begin + 1);
  }

  // The next word as a number between `least` and `most`.
  template <class T>
  [[nodiscard]] Result<T> number(std::string_view what, T least, T most, int base = 10) {
    const std::string_view word = next();
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || value < least || value > most)
      return fail(ErrorKind::Corrupt, fmt::format("{} = '{}'; a number from {} to {} works", what, word, least, most));
    return value;
  }
  [[nodiscard]] Result<double> measured(std::string_view what) {
    if (const std::string_view word = next(); word != what)
      return fail(ErrorKind::Corrupt, fmt::format("'{}' where '{}' and its number belong", word, what));
    const std::string_view word = next();
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || !(value >= 0))
      return fail(ErrorKind::Corrupt, fmt::format("{} = '{}'; a number of at least 0 works", what, word));
    return value;
  }

 private:
  std::string_view rest_;
};

Result<GemmEntry> parse_entry(GemmOp op, Words& words) {
  GemmEntry entry{.op = op};
  TANDEM_ASSIGN(entry.n, words.number<std::int64_t>("n", 1, kMostSide));
  TANDEM_ASSIGN(entry.k, words.number<std::int64_t>("k", 1, kMostSide));
  TANDEM_ASSIGN(entry.first_tokens, words.number("first tokens", 1, kMostTokens));
  TANDEM_ASSIGN(entry.last_tokens, words.number("last tokens", entry.first_tokens, kMostTokens));
  const std::string_view kind = words.next();
  if (kind == "few-tokens") {
    entry.kind = GemmKind::FewTokens;
    TANDEM_ASSIGN(entry.plan.groups, words.number("groups", 1, 4));
    TANDEM_ASSIGN(entry.plan.splits, words.number("splits", 1, 8));
    TANDEM_ASSIGN(entry.plan.stages, words.number("stages", 2, 64));
  } else if (kind == "cublaslt") {
    if (op != GemmOp::Linear) return fail(ErrorKind::Corrupt, "cuBLASLt has no product with this activation; few-tokens works");
    for (std::uint64_t& word : entry.words) {
      TANDEM_ASSIGN(word, words.number<std::uint64_t>("algorithm word", 0, ~std::uint64_t{0}, 16));
    }
  } else {
    return fail(ErrorKind::Corrupt, fmt::format("kind '{}'; cublaslt and few-tokens work", kind));
  }
  TANDEM_ASSIGN(entry.us, words.measured("us"));
  TANDEM_ASSIGN(entry.limit, words.measured("limit"));
  if (!words.rest().empty()) return fail(ErrorKind::Corrupt, fmt::format("'{}' follows the entry's end", words.rest()));
  return entry;
}

std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

bool overlap(const GemmEntry& a, const GemmEntry& b) {
  return a.op == b.op && a.n == b.n && a.k == b.k && a.first_tokens <= b.last_tokens && b.first_tokens <= a.last_tokens;
}

std::string product(const GemmEntry& entry) {
  return fmt::format("{} {} x {}, {} to {} tokens", name(entry.op), entry.n, entry.k, entry.first_tokens, entry.last_tokens);
}

}  // namespace

std::string_view name(GemmOp op) { return op == GemmOp::Linear ? "linear" : "swiglu"; }

Result<GemmTable> GemmTable::parse(std::string_view text, std::string_view file) {
  GemmTable table;
  table.hash_ = fnv1a(text);
  int line_number = 0;
  const auto corrupt = [&](std::string_view what) {
    return fail(ErrorKind::Corrupt, fmt::format("{}, line {}: {}", file, line_number, what));
  };
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++line_number;
    Words words(line);
    const std::string_view first = words.next();
    if (first.empty()) continue;
    if (first == "device") {
      table.device_ = words.rest();
    } else if (first == "cublaslt") {
      const auto version = words.number<std::uint64_t>("version", 1, ~std::uint64_t{0});
      if (!version) return corrupt(version.error().message);
      table.library_version_ = *version;
    } else if (first == name(GemmOp::Linear) || first == name(GemmOp::Swiglu)) {
      auto entry = parse_entry(first == name(GemmOp::Linear) ? GemmOp::Linear : GemmOp::Swiglu, words);
      if (!entry) return corrupt(entry.error().message);
      for (const GemmEntry& other : table.entries_)
        if (overlap(*entry, other)) return corrupt(fmt::format("{} is served twice, by {} too", product(*entry), product(other)));
      table.entries_.push_back(std::move(*entry));
    } else {
      return corrupt(fmt::format("'{}'; device, cublaslt, linear and swiglu open a line", first));
    }
  }
  if (table.device_.empty() || table.library_version_ == 0) return corrupt("the file names no device or no cublaslt version");
  return table;
}

const GemmEntry* GemmTable::find(GemmOp op, std::int64_t n, std::int64_t k, int tokens) const {
  for (const GemmEntry& entry : entries_)
    if (entry.op == op && entry.n == n && entry.k == k && entry.first_tokens <= tokens && tokens <= entry.last_tokens) return &entry;
  return nullptr;
}

void GemmTable::drop_library_entries() {
  std::erase_if(entries_, [](const GemmEntry& entry) { return entry.kind == GemmKind::Library; });
}

std::string format_gemm_table(std::string_view device, std::uint64_t library_version, std::span<const GemmEntry> entries) {
  std::string text = fmt::format("device {}\ncublaslt {}\n\n# op  n  k  tokens, first and last  kind and its numbers  time  fraction of the limit\n",
                                 device, library_version);
  for (const GemmEntry& entry : entries) {
    text += fmt::format("{} {:>6} {:>5} {:>4} {:>4} ", name(entry.op), entry.n, entry.k, entry.first_tokens, entry.last_tokens);
    if (entry.kind == GemmKind::FewTokens) {
      text += fmt::format("few-tokens {} {} {}", entry.plan.groups, entry.plan.splits, entry.plan.stages);
    } else {
      text += "cublaslt";
      for (const std::uint64_t word : entry.words) text += fmt::format(" {:x}", word);
    }
    text += fmt::format(" us {:.1f} limit {:.2f}", entry.us, entry.limit);
    if (!entry.about.empty()) text += " | " + entry.about;
    text += '\n';
  }
  return text;
}

ChosenGemmTable choose_gemm_table(std::span<const GemmTableFile> files, std::string_view device, std::uint64_t library_version) {
  ChosenGemmTable chosen;
  std::set<std::string> others;
  for (const GemmTableFile& file : files) {
    auto table = GemmTable::parse(file.text, file.name);
    if (!table) {
      chosen.note = fmt::format("GEMM table ignored: {}; cuBLASLt's first heuristics serve", table.error().message);
      continue;
    }
    if (table->device() != device) {
      others.insert(table->device());
      continue;
    }
    chosen.note = fmt::format("GEMM table {}, hash {:016x}: {} entries", file.name, table->hash(), table->entries().size());
    if (table->library_version() != library_version) {
      const std::size_t before = table->entries().size();
      table->drop_library_entries();
      chosen.note += fmt::format("; made with cuBLASLt {}, and this is {}: the {} entries of cuBLASLt are ignored",
                                 table->library_version(), library_version, before - table->entries().size());
    }
    chosen.table = std::move(*table);
    return chosen;
  }
  if (chosen.note.empty())
    chosen.note = fmt::format("no GEMM table for {} (there is one for: {}): cuBLASLt's first heuristics serve; tandem tune makes one", device,
                              others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", ")));
  return chosen;
}

int gemm_bucket(int tokens) {
  if (tokens <= 16) return tokens;
  if (tokens <= 256) return (tokens + 15) / 16 * 16;
  return (tokens + 255) / 256 * 256;
}

std::vector<GemmBucket> plan_gemm(const GemmTable* table, GemmOp op, std::int64_t n, std::int64_t k, int max_tokens,
                                  const GemmUsable& usable, std::vector<std::string>& notes) {
  std::vector<GemmBucket> buckets;
  std::set<const GemmEntry*> refused;
  for (int tokens = 1; tokens <= max_tokens; tokens = buckets.back().tokens + 1) {
    GemmBucket bucket{gemm_bucket(tokens), nullptr};
    const GemmEntry* const entry = table ? table->find(op, n, k, bucket.tokens) : nullptr;
    if (entry && !refused.contains(entry)) {
      if (const Result<void> good = usable(*entry, bucket.tokens)) {
        bucket.entry = entry;
      } else {
        refused.insert(entry);
        notes.push_back(fmt::format("GEMM table: {} cannot be used here ({}): cuBLASLt's first heuristic serves", product(*entry),
                                    good.error().message));
      }
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

}  // namespace tandem::ops
