#include "text/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/tokenizer.h"
#include "text/tokenizer_fixture.h"

namespace tandem::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string replace(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Error refusal(const std::string& json, const std::string& config = "") {
  const auto tokenizer = Tokenizer::parse(json, config);
  EXPECT_FALSE(tokenizer);
  return tokenizer ? Error{} : tokenizer.error();
}

TEST(TokenizerFile, WhatIsNotSupportedIsRefusedByName) {
  struct Case {
    const char *from, *to, *named;
  };
  const Case cases[] = {
      {R"("type":"BPE")", R"("type":"Unigram")", "model.type = 'Unigram'"},
      {R"("dropout":null)", R"("dropout":0.1)", "model.dropout = 0.1"},
      {R"("unk_token":null)", R"("unk_token":"<unk>")", "model.unk_token = \"<unk>\""},
      {R"("continuing_subword_prefix":"")", R"("continuing_subword_prefix":"##")", "model.continuing_subword_prefix"},
      {R"("end_of_word_suffix":"")", R"("end_of_word_suffix":"</w>")", "model.end_of_word_suffix"},
      {R"("fuse_unk":false)", R"("fuse_unk":true)", "model.fuse_unk = true"},
      {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback = true"},
      {R"("ignore_merges":false)", R"("ignore_merges":true)", "model.ignore_merges = true"},
      {R"("type":"NFC")", R"("type":"NFKC")", "normalizer.type = 'NFKC'"},
      {R"("normalizer":{"type":"NFC"})", R"("normalizer":{"type":"Sequence","normalizers":[]})", "normalizer.type = 'Sequence'"},
      {R"("type":"Split")", R"("type":"Whitespace")", "pre_tokenizer.pretokenizers[0].type = 'Whitespace'"},
      {R"("behavior":"Isolated")", R"("behavior":"Removed")", "behavior = 'Removed'"},
      {R"("invert":false)", R"("invert":true)", "invert = true"},
      {R"("Regex":"(?i:)", R"("Regex":"(?:)", "pattern.Regex"},
      {R"("add_prefix_space":false)", R"("add_prefix_space":true)", "add_prefix_space = true"},
      {R"("use_regex":false)", R"("use_regex":true)", "use_regex = true"},
      {R"("post_processor":{"type":"ByteLevel")", R"("post_processor":{"type":"TemplateProcessing")", "post_processor.type = 'TemplateProcessing'"},
      {R"("decoder":{"type":"ByteLevel")", R"("decoder":{"type":"Metaspace")", "decoder.type = 'Metaspace'"},
      {R"("truncation":null)", R"("truncation":{"max_length":5})", "truncation"},
      {R"("padding":null)", R"("padding":{})", "padding"},
      {R"("lstrip":false)", R"("lstrip":true)", "lstrip of the added token '<|endoftext|>'"},
      {R"("rstrip":false)", R"("rstrip":true)", "rstrip of the added token '<|endoftext|>'"},
      {R"("single_word":false)", R"("single_word":true)", "single_word of the added token '<|endoftext|>'"},
      {R"("normalized":false)", R"("normalized":true)", "normalized of the added token '<|endoftext|>'"},
  };
  for (const Case& c : cases) {
    const Error error = refusal(replace(fixture::tokenizer_json(), c.from, c.to));
    EXPECT_EQ(error.kind, ErrorKind::Unsupported) << c.to << ": " << error.message;
    EXPECT_THAT(error.message, AllOf(HasSubstr("tokenizer.json"), HasSubstr(c.named), HasSubstr("supported: "))) << c.to;
  }
}

TEST(TokenizerFile, DamagedFilesAreRefused) {
  const std::string good = fixture::tokenizer_json();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() / 3, good.size() / 2, good.size() - 1}) {
    EXPECT_NE(refusal(good.substr(0, size)).message, "") << size;
  }
  struct Case {
    const char *from, *to;
    ErrorKind kind;
  };
  const Case cases[] = {
      {R"("!":33)", R"("!":34)", ErrorKind::Corrupt},          // an id twice
      {R"("!":33)", R"("!!":33)", ErrorKind::Unsupported},     // a byte without a token
      {R"("!":33)", R"("\u20ac":33)", ErrorKind::Unsupported}, // not the byte alphabet
      {R"("!":33)", R"("":33)", ErrorKind::Unsupported},
      {R"("!":33)", R"("!":-1)", ErrorKind::Invalid},
      {R"("!":33)", R"("!":4000000000)", ErrorKind::Invalid},
      {R"("!":33)", R"("!":"33")", ErrorKind::Invalid},
      {R"(["h","e"])", R"(["h","h"])", ErrorKind::Corrupt},  // no token "hh"
      {R"(["h","e"])", R"(["h"])", ErrorKind::Invalid},
      {R"(["h","e"])", R"(["h","e","l"])", ErrorKind::Invalid},
      {R"(["h","e"])", R"("he")", ErrorKind::Invalid},
      {R"(["h","e"])", R"(7)", ErrorKind::Invalid},
      {R"("vocab")", R"("vocabulary")", ErrorKind::Invalid},
      {R"("merges")", R"("pairs")", ErrorKind::Invalid},
      {R"("normalizer")", R"("normaliser")", ErrorKind::Invalid},
      {R"("content":"<|im_end|>")", R"("content":"")", ErrorKind::Corrupt},
      {R"("content":"<|im_end|>")", R"("text":"<|im_end|>")", ErrorKind::Invalid},
      {R"("content":"<|im_end|>")", R"("content":"hello")", ErrorKind::Corrupt},  // stands elsewhere in the vocabulary
  };
  for (const Case& c : cases) {
    const Error error = refusal(replace(good, c.from, c.to));
    EXPECT_EQ(error.kind, c.kind) << c.to << ": " << error.message;
  }
}

TEST(TokenizerFile, ARefusalSaysWhatAFieldMustBeNotWhatALibrarySaid) {
  const std::string good = fixture::tokenizer_json();
  const auto message = [&](const char* from, const char* to) { return refusal(replace(good, from, to)).message; };
  EXPECT_EQ(message(R"("!":33)", R"("!":"33")"), "[tokenizer.json] the id of '!' in model.vocab must be an integer");
  EXPECT_EQ(message(R"(["h","e"])", "7"), "[tokenizer.json] model.merges[0] must be a pair of strings");
  EXPECT_EQ(message(R"("lstrip":false)", R"("lstrip":1)"), "[tokenizer.json] lstrip must be true or false");
  EXPECT_EQ(message(R"("type":"BPE")", R"("type":null)"), "[tokenizer.json] model.type must be a string");
  EXPECT_EQ(refusal(" ").message, "[tokenizer.json] is not JSON: it is empty");
  EXPECT_EQ(refusal("[]").message, "[tokenizer.json] is not a JSON object");
  EXPECT_EQ(refusal("{\"a\":\"\xff\"}").message, "[tokenizer.json] is not JSON: it holds bytes that are not UTF-8");
  EXPECT_EQ(refusal(good.substr(0, good.size() - 1)).message,
            "[tokenizer.json] is not JSON: it is cut short, or has a comma, colon or bracket too many or too few");
  EXPECT_EQ(refusal(good, R"({"eos_token":7})").message,
            "[tokenizer_config.json] eos_token must be a string, or an object whose content is one");
}

TEST(TokenizerFile, MergesMayBeStringsOrPairs) {
  const std::string json = replace(fixture::tokenizer_json(), R"(["h","e"])", R"("h e")");
  const auto tokenizer = Tokenizer::parse(json, "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("hello", SpecialTokens::Parse), std::vector<TokenId>{259});
}

TEST(TokenizerFile, PostProcessorMayBeNull) {
  const std::string json = fixture::tokenizer_json();
  const std::size_t begin = json.find(R"("post_processor":)") + 17, end = json.find('}', begin) + 1;
  EXPECT_TRUE(Tokenizer::parse(json.substr(0, begin) + "null" + json.substr(end), ""));
}

TEST(TokenizerConfigFile, ContradictionsAndUnknownTokensAreRefused) {
  const std::string json = fixture::tokenizer_json(), config = fixture::tokenizer_config_json();
  EXPECT_THAT(refusal(json, replace(config, R"("eos_token":"<|im_end|>")", R"("eos_token":"<|eot|>")")).message, HasSubstr("'<|eot|>'"));
  EXPECT_EQ(refusal(json, replace(config, "<|im_start|>", "<|other|>")).kind, ErrorKind::Corrupt);
  EXPECT_EQ(refusal(json, replace(config, R"("special":true)", R"("special":false)")).kind, ErrorKind::Corrupt);
  EXPECT_EQ(refusal(json, replace(config, "\"27", "\"x27")).kind, ErrorKind::Invalid);
  EXPECT_EQ(refusal(json, "[]").kind, ErrorKind::Invalid);
}

// The config is searched for fields that may be missing, which must not go past the end of a text that is no JSON.
TEST(TokenizerConfigFile, AnyCutTextIsRefused) {
  const std::string json = fixture::tokenizer_json();
  for (const std::string& whole : {fixture::tokenizer_config_json(), json}) {
    for (std::size_t size = 1; size < whole.size(); ++size)
      ASSERT_EQ(refusal(json, whole.substr(0, size)).kind, ErrorKind::Invalid) << size;
  }
  EXPECT_EQ(refusal(json, R"({"a":{"b":[1,2,"c)").kind, ErrorKind::Invalid);
}

TEST(TokenizerFile, MissingFilesAreNamed) {
  const auto directory = std::filesystem::temp_directory_path() / "tandem-tokenizer-file-test";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  EXPECT_EQ(Tokenizer::load(directory).error().kind, ErrorKind::NotFound);
  EXPECT_THAT(Tokenizer::load(directory).error().message, HasSubstr((directory / "tokenizer.json").string()));
  std::ofstream(directory / "tokenizer.json") << fixture::tokenizer_json();
  const auto alone = Tokenizer::load(directory);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->eos(), std::nullopt);
  std::ofstream(directory / "tokenizer_config.json") << "{";
  EXPECT_THAT(Tokenizer::load(directory).error().message, HasSubstr("tokenizer_config.json"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace tandem::text
