#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

// A small tokenizer of the Qwen3.5 form for tests: the 256 bytes are the ids 0..255, then come some
// merged tokens, then the added tokens. Header only; nothing but tests includes it.
namespace tandem::text::fixture {

inline std::string spell(std::string_view bytes) {
  static const std::array<std::string, 256> kSpelled = [] {
    std::array<std::string, 256> spelled;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      append_utf8(printable ? byte : next++, spelled[byte]);
    }
    return spelled;
  }();
  std::string out;
  for (const char c : bytes) out += kSpelled[static_cast<unsigned char>(c)];
  return out;
}

using Merge = std::pair<std::string, std::string>;

// Ids 256 and up, one for each merge: "he" 256, "ll" 257, "llo" 258, "hello" 259, ...
inline std::vector<Merge> merges() {
  return {{"h", "e"}, {"l", "l"}, {"ll", "o"}, {"he", "llo"}, {" ", "w"}, {"o", "r"}, {" w", "or"}, {" wor", "l"}, {" worl", "d"},
          {"a", "a"}, {"aa", "aa"}, {" ", " "}, {"\n", "\n"}, {"\xF0", "\x9F"}, {"\xC3", "\xA9"}, {"e", "r"}};
}

struct Added {
  std::string_view content;
  bool special;
};
// In the order of the ids; the last one stands in tokenizer_config.json only.
inline std::vector<Added> added_tokens() {
  return {{"<|endoftext|>", true}, {"<|im_start|>", true}, {"<|im_end|>", true},  {"<tool_call>", false},
          {"</tool_call>", false}, {"<think>", false},     {"</think>", false}, {"<tts_pad>", true}};
}

inline int first_added_id() { return 256 + static_cast<int>(merges().size()); }

inline void write_added(JsonWriter& json, const Added& token) {
  json.member("content", token.content).member("lstrip", false).member("normalized", false).member("rstrip", false);
  json.member("single_word", false).member("special", token.special);
}

inline std::string tokenizer_json(SplitRule rule = SplitRule::Qwen3_5) {
  JsonWriter json;
  const auto byte_level = [&] {
    json.begin_object().member("type", "ByteLevel").member("add_prefix_space", false).member("trim_offsets", false);
    json.member("use_regex", false).end_object();
  };
  json.begin_object().member("version", "1.0").key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array();
  const auto added = added_tokens();
  for (std::size_t i = 0; i + 1 < added.size(); ++i) {
    json.begin_object().member("id", first_added_id() + static_cast<int>(i));
    write_added(json, added[i]);
    json.end_object();
  }
  json.end_array();
  json.key("normalizer").begin_object().member("type", "NFC").end_object();
  json.key("pre_tokenizer").begin_object().member("type", "Sequence").key("pretokenizers").begin_array();
  json.begin_object().member("type", "Split").key("pattern").begin_object().member("Regex", pattern_of(rule)).end_object();
  json.member("behavior", "Isolated").member("invert", false).end_object();
  byte_level();
  json.end_array().end_object();
  json.key("post_processor");
  byte_level();
  json.key("decoder");
  byte_level();
  json.key("model").begin_object().member("type", "BPE").key("dropout").null().key("unk_token").null();
  json.member("continuing_subword_prefix", "").member("end_of_word_suffix", "").member("fuse_unk", false);
  json.member("byte_fallback", false).member("ignore_merges", false).key("vocab").begin_object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    json.member(spell({&c, 1}), byte);
  }
  int id = 256;
  for (const Merge& merge : merges()) json.member(spell(merge.first + merge.second), id++);
  json.end_object().key("merges").begin_array();
  for (const Merge& merge : merges()) json.begin_array().string(spell(merge.first)).string(spell(merge.second)).end_array();
  json.end_array().end_object().end_object();
  return json.take();
}

inline std::string tokenizer_config_json() {
  JsonWriter json;
  json.begin_object().key("added_tokens_decoder").begin_object();
  int id = first_added_id();
  for (const Added& token : added_tokens()) {
    json.key(std::to_string(id++)).begin_object();
    write_added(json, token);
    json.end_object();
  }
  json.end_object().key("bos_token").null().member("eos_token", "<|im_end|>");
  json.key("pad_token").begin_object().member("content", "<|endoftext|>").end_object().end_object();
  return json.take();
}

}  // namespace tandem::text::fixture
