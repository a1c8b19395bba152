#include "text/unicode_nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

struct Range {
  char32_t first, last;
};

// Marks with a combining class that are younger than Unicode 9.
constexpr Range kYoungMarks[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF},
};
constexpr char32_t kYoungComposite = 0x11938;

bool is_young(char32_t c) {
  if (c == kYoungComposite) return true;
  const auto* range = std::find_if(std::begin(kYoungMarks), std::end(kYoungMarks), [c](const Range& r) { return c <= r.last; });
  return range != std::end(kYoungMarks) && range->first <= c;
}

// Hangul syllables are made of their parts by arithmetic (Unicode 3.12).
constexpr char32_t kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7, kSyllable = 0xAC00;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

bool in(char32_t c, char32_t first, char32_t count) { return c >= first && c < first + count; }

constexpr int kLongestDecomposition = 16;

// The full canonical decomposition of one code point; itself if it has none.
int decompose(char32_t c, char32_t (&parts)[kLongestDecomposition]) {
  if (is_young(c)) {
    parts[0] = c;
    return 1;
  }
  utf8proc_int32_t buffer[kLongestDecomposition];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, kLongestDecomposition,
                                             static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
  for (int i = 0; i < count; ++i) parts[i] = static_cast<char32_t>(buffer[i]);
  return static_cast<int>(count);
}

// What a decomposition composes to again, when that is one code point; else 0.
char32_t recompose(const char32_t* parts, int count) {
  utf8proc_int32_t buffer[kLongestDecomposition + 1];
  std::copy_n(parts, count, buffer);
  const auto left = utf8proc_normalize_utf32(buffer, count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return left == 1 ? static_cast<char32_t>(buffer[0]) : 0;
}

// All pairs that merge, Hangul aside, from the decompositions: the parts of a composite are the
// composite of all parts but the last, and the last.
struct Compositions {
  // Canonical decompositions exist in planes 0 to 2 only.
  static constexpr char32_t kEnd = 0x30000;

  std::unordered_map<std::uint64_t, char32_t> by_pair;
  std::vector<bool> may_change = std::vector<bool>(kEnd);  // second of a pair, or never part of form C

  static std::uint64_t key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

  Compositions() {
    for (char32_t c = 0xC0; c < kEnd; ++c) {
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
      if (in(c, kSyllable, kSyllables) || is_young(c)) continue;
      char32_t parts[kLongestDecomposition];
      const int count = decompose(c, parts);
      if (count == 1 && parts[0] == c) continue;
      if (recompose(parts, count) != c) {
        may_change[c] = true;
        continue;
      }
      by_pair[key(recompose(parts, count - 1), parts[count - 1])] = c;
      may_change[parts[count - 1]] = true;
    }
  }
};

const Compositions& compositions() {
  static const Compositions all;
  return all;
}

char32_t compose(char32_t first, char32_t second) {
  if (in(first, kLead, kLeads) && in(second, kVowel, kVowels))
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  if (in(first, kSyllable, kSyllables) && (first - kSyllable) % kTails == 0 && in(second, kTail + 1, kTails - 1))
    return first + (second - kTail);
  const auto& pairs = compositions().by_pair;
  const auto pair = pairs.find(Compositions::key(first, second));
  return pair == pairs.end() ? 0 : pair->second;
}

struct Part {
  char32_t code_point;
  std::uint8_t combining_class;
};

// Decomposes, orders and composes one stretch of text.
void append_normalized(std::string_view utf8, std::vector<Part>& parts, std::string& out) {
  parts.clear();
  for (const char* at = utf8.data(); at != utf8.data() + utf8.size();) {
    char32_t pieces[kLongestDecomposition];
    const int count = decompose(next_code_point(at), pieces);
    for (int i = 0; i < count; ++i) parts.push_back({pieces[i], nfc::combining_class(pieces[i])});
  }

  const auto is_starter = [](const Part& part) { return part.combining_class == 0; };
  for (auto run = parts.begin(); run != parts.end();) {
    run = std::find_if_not(run, parts.end(), is_starter);
    const auto end = std::find_if(run, parts.end(), is_starter);
    std::stable_sort(run, end, [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    run = end;
  }

  // A part merges with the last starter unless a kept part between them blocks it: one of an equal
  // or higher class, or any for a part that is a starter itself.
  Part* starter = nullptr;
  int last_class = -1;  // of the parts kept since the starter; -1: none
  std::size_t kept = 0;
  for (const Part part : parts) {
    if (starter != nullptr && last_class < static_cast<int>(part.combining_class)) {
      if (const char32_t merged = compose(starter->code_point, part.code_point)) {
        starter->code_point = merged;
        continue;
      }
    }
    parts[kept] = part;
    if (part.combining_class == 0) {
      starter = &parts[kept];
      last_class = -1;
    } else {
      last_class = part.combining_class;
    }
    ++kept;
  }
  for (std::size_t i = 0; i < kept; ++i) append_utf8(parts[i].code_point, out);
}

}  // namespace

namespace nfc {

std::uint8_t combining_class(char32_t c) {
  const auto combining_class = static_cast<std::uint8_t>(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
  return combining_class == 0 || is_young(c) ? 0 : combining_class;
}

bool may_change(char32_t c) {
  if (c >= Compositions::kEnd) return false;
  return compositions().may_change[c] || in(c, kVowel, kVowels) || in(c, kTail + 1, kTails - 1);
}

}  // namespace nfc

bool is_nfc(std::string_view utf8) {
  const UnicodeTable& table = unicode_table();
  std::uint8_t last_class = 0;
  const char* const end = utf8.data() + utf8.size();
  for (const char* at = utf8.data(); at != end;) {
    const char32_t c = next_code_point(at);
    if (c < 0x300 || table.is_inert(c)) {
      last_class = 0;
      continue;
    }
    if (table.may_change_under_nfc(c)) return false;
    const std::uint8_t combining_class = nfc::combining_class(c);
    if (combining_class < last_class) return false;
    last_class = combining_class;
  }
  return true;
}

std::string to_nfc(std::string_view utf8) {
  // An inert code point begins a stretch that nothing before it reaches into, so only the stretches
  // with other code points are taken apart.
  const UnicodeTable& table = unicode_table();
  std::string out;
  out.reserve(utf8.size());
  std::vector<Part> parts;
  const char* const end = utf8.data() + utf8.size();
  const char* copied = utf8.data();
  const char* stretch = utf8.data();
  for (const char* at = utf8.data(); at != end;) {
    const char* const here = at;
    if (table.is_inert(next_code_point(at))) {
      stretch = here;
      continue;
    }
    while (at != end) {
      const char* next = at;
      if (table.is_inert(next_code_point(next))) break;
      at = next;
    }
    out.append(copied, stretch);
    append_normalized({stretch, static_cast<std::size_t>(at - stretch)}, parts, out);
    copied = stretch = at;
  }
  out.append(copied, end);
  return out;
}

}  // namespace tandem::text
