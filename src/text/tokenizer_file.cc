#include "text/tokenizer_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <charconv>

#include "text/json_problem.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

namespace od = simdjson::ondemand;

constexpr std::int64_t kMostIds = 1 << 24;  // a greater id is a mistake, and would cost memory

// `field` has not the type that it must have: "[tokenizer.json] model.vocab must be an object".
tl::unexpected<Error> wrong_type(std::string_view file, std::string_view field, std::string_view wanted) {
  return fail(ErrorKind::Invalid, fmt::format("[{}] {} must be {}", file, field, wanted), std::string(field));
}

tl::unexpected<Error> unsupported(std::string_view file, std::string_view field, std::string_view found, std::string_view supported) {
  return fail(ErrorKind::Unsupported, fmt::format("[{}] {} = {} is not supported; supported: {}", file, field, found, supported),
              std::string(field));
}

// The readers below look only at what they ask for, and on a text that is no JSON they may run past its end: so
// the whole is checked first. `json` has room for kJsonPadding bytes behind it.
Result<void> check_json(std::string_view file, const std::string& json) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (const auto code = parser.parse(json.data(), json.size(), false).get(document))
    return fail(ErrorKind::Invalid, fmt::format("[{}] is not JSON: it {}", file, json_problem(code)));
  if (!document.is_object()) return fail(ErrorKind::Invalid, fmt::format("[{}] is not a JSON object", file));
  return {};
}

static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);

constexpr std::string_view kFile = "tokenizer.json";
constexpr std::string_view kConfigFile = "tokenizer_config.json";

// A scalar as it stands in the file, or the bracket that an object or array begins with.
std::string shown(od::value value) {
  std::string_view token = value.raw_json_token();
  return std::string(token.substr(0, token.find_last_not_of(" \n\r\t,") + 1));
}

// ---- fields that must have one value -------------------------------------------------------

// The fields of one object that decide how text is cut. `optional` fields may be missing.
class Fields {
 public:
  Fields(std::string where, od::object object) : where_(std::move(where)), object_(object) {}

  // A field that must be `wanted`; missing is `wanted` too if `may_miss`.
  Result<void> boolean(std::string_view name, bool wanted, bool may_miss) {
    od::value value;
    if (missing(name, value)) return may_miss ? Result<void>{} : refuse_missing(name);
    bool found = false;
    if (value.get_bool().get(found)) return wrong_type(kFile, path(name), "true or false");
    if (found == wanted) return {};
    return unsupported(kFile, path(name), found ? "true" : "false", wanted ? "true" : "false");
  }

  // A field that must be null, missing, or the empty string.
  Result<void> empty(std::string_view name) {
    od::value value;
    if (missing(name, value) || value.is_null()) return {};
    std::string_view text;
    if (value.get_string().get(text) == simdjson::SUCCESS && text.empty()) return {};
    return unsupported(kFile, path(name), missing(name, value) ? "?" : shown(value), "null");
  }

  Result<std::string> string(std::string_view name) {
    od::value value;
    if (missing(name, value)) return refuse_missing(name);
    std::string_view text;
    if (value.get_string().get(text)) return wrong_type(kFile, path(name), "a string");
    return std::string(text);
  }

  Result<void> string(std::string_view name, std::string_view wanted) {
    TANDEM_ASSIGN(const std::string found, string(name));
    if (found == wanted) return {};
    return unsupported(kFile, path(name), fmt::format("'{}'", found), fmt::format("'{}'", wanted));
  }

  Result<Fields> object(std::string_view name) {
    od::value value;
    if (missing(name, value)) return refuse_missing(name);
    od::object found;
    if (value.get_object().get(found)) return wrong_type(kFile, path(name), "an object");
    return Fields(path(name), found);
  }

  bool missing(std::string_view name, od::value& value) {
    return object_.find_field_unordered(name).get(value) != simdjson::SUCCESS;
  }

  std::string path(std::string_view name) const { return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name); }

  tl::unexpected<Error> refuse_missing(std::string_view name) const {
    return fail(ErrorKind::Invalid, fmt::format("[{}] {} is missing", kFile, path(name)), path(name));
  }

 private:
  std::string where_;
  od::object object_;
};

Result<void> check_type(Fields& fields, std::string_view wanted) { return fields.string("type", wanted); }

// ---- the byte alphabet ----------------------------------------------------------------------

// Vocabulary files spell each byte as a printable character: 188 bytes as the character of the same
// number, the other 68 in order as U+0100 and up.
constexpr char32_t kAlphabetEnd = 0x144;

std::array<std::int16_t, kAlphabetEnd> make_alphabet() {
  std::array<std::int16_t, kAlphabetEnd> byte_of{};
  byte_of.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    byte_of[printable ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return byte_of;
}

// `spelled` as bytes; false if it is not spelled in the alphabet.
bool bytes_of(std::string_view spelled, std::string& bytes) {
  static const auto kByteOf = make_alphabet();
  bytes.clear();
  const char* const end = spelled.data() + spelled.size();
  for (const char* at = spelled.data(); at != end;) {
    const char32_t c = next_code_point(at);
    if (c >= kAlphabetEnd || kByteOf[c] < 0) return false;
    bytes += static_cast<char>(kByteOf[c]);
  }
  return true;
}

// ---- parts of tokenizer.json ---------------------------------------------------------------

Result<void> check_normalizer(Fields& file) {
  TANDEM_ASSIGN(Fields normalizer, file.object("normalizer"));
  return check_type(normalizer, "NFC");
}

Result<void> check_byte_level(Fields& step) {
  TANDEM_TRY(check_type(step, "ByteLevel"));
  TANDEM_TRY(step.boolean("add_prefix_space", false, false));
  return step.boolean("use_regex", false, false);
}

Result<SplitRule> read_split(Fields& step) {
  TANDEM_TRY(check_type(step, "Split"));
  TANDEM_TRY(step.string("behavior", "Isolated"));
  TANDEM_TRY(step.boolean("invert", false, true));
  TANDEM_ASSIGN(Fields pattern, step.object("pattern"));
  TANDEM_ASSIGN(const std::string regex, pattern.string("Regex"));
  if (const auto rule = split_rule_of(regex)) return *rule;
  return unsupported(kFile, pattern.path("Regex"), fmt::format("'{}'", regex),
                     fmt::format("the pattern of Qwen2 and Qwen3, '{}', and that of Qwen3.5, '{}'", pattern_of(SplitRule::Qwen2),
                                 pattern_of(SplitRule::Qwen3_5)));
}

// Sequence[Split, ByteLevel].
Result<SplitRule> read_pre_tokenizer(Fields& file) {
  TANDEM_ASSIGN(Fields sequence, file.object("pre_tokenizer"));
  TANDEM_TRY(check_type(sequence, "Sequence"));
  const std::string where = sequence.path("pretokenizers");
  od::value value;
  if (sequence.missing("pretokenizers", value)) return sequence.refuse_missing("pretokenizers");
  od::array steps;
  if (value.get_array().get(steps)) return wrong_type(kFile, where, "a list");
  std::optional<SplitRule> rule;
  int count = 0;
  for (auto item : steps) {
    od::object object;
    if (item.get_object().get(object)) return wrong_type(kFile, fmt::format("{}[{}]", where, count), "an object");
    Fields step(fmt::format("{}[{}]", where, count), object);
    if (count == 0) {
      TANDEM_ASSIGN(rule, read_split(step));
    } else if (count == 1) {
      TANDEM_TRY(check_byte_level(step));
    }
    ++count;
  }
  if (count != 2) return unsupported(kFile, where, fmt::format("a list of {}", count), "Split and ByteLevel");
  return *rule;
}

// A post-processor that adds tokens would change what a prompt is.
Result<void> check_post_processor(Fields& file) {
  od::value value;
  if (file.missing("post_processor", value) || value.is_null()) return {};
  TANDEM_ASSIGN(Fields step, file.object("post_processor"));
  return check_type(step, "ByteLevel");
}

Result<void> check_decoder(Fields& file) {
  TANDEM_ASSIGN(Fields decoder, file.object("decoder"));
  return check_type(decoder, "ByteLevel");
}

Result<void> check_null(Fields& file, std::string_view name) {
  od::value value;
  if (file.missing(name, value) || value.is_null()) return {};
  return unsupported(kFile, name, "an object", "null");
}

Result<TokenId> as_id(std::string_view file, std::string_view what, std::int64_t number) {
  if (number >= 0 && number < kMostIds) return static_cast<TokenId>(number);
  return fail(ErrorKind::Invalid, fmt::format("[{}] the id {} of '{}' is not in 0..{}", file, number, what, kMostIds - 1));
}

// `object` is {"content", "special", and five flags that must be false}.
Result<AddedToken> read_added_token(std::string_view file, TokenId id, od::object object) {
  AddedToken token{.id = id};
  bool has_content = false;
  std::string_view flag_set;
  for (auto field : object) {
    std::string_view name;
    if (field.unescaped_key().get(name)) return wrong_type(file, "the name of an added token's field", "a string");
    if (name == "content") {
      std::string_view content;
      if (field.value().get_string().get(content)) return wrong_type(file, "added token content", "a string");
      token.content = content;
      has_content = true;
    } else if (name == "special") {
      if (field.value().get_bool().get(token.special)) return wrong_type(file, "added token special", "true or false");
    } else {
      for (const std::string_view flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
        if (name != flag) continue;
        bool set = false;
        if (field.value().get_bool().get(set)) return wrong_type(file, flag, "true or false");
        if (set) flag_set = flag;
      }
    }
  }
  if (!has_content) return fail(ErrorKind::Invalid, fmt::format("[{}] the added token {} has no content", file, id));
  if (!flag_set.empty()) {
    return unsupported(file, fmt::format("{} of the added token '{}'", flag_set, token.content), "true", "false");
  }
  return token;
}

Result<std::vector<AddedToken>> read_added_tokens(Fields& file) {
  std::vector<AddedToken> tokens;
  od::value value;
  if (file.missing("added_tokens", value) || value.is_null()) return tokens;
  od::array list;
  if (value.get_array().get(list)) return wrong_type(kFile, "added_tokens", "a list");
  for (auto item : list) {
    od::object object;
    if (item.get_object().get(object)) return wrong_type(kFile, "added_tokens[]", "an object");
    std::int64_t number = 0;
    if (object.find_field_unordered("id").get_int64().get(number)) return wrong_type(kFile, "added_tokens[].id", "an integer");
    TANDEM_ASSIGN(const TokenId id, as_id(kFile, "an added token", number));
    if (object.reset().error()) return wrong_type(kFile, "added_tokens[]", "an object");
    TANDEM_ASSIGN(AddedToken token, read_added_token(kFile, id, object));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<void> read_vocabulary(Fields& model, Bpe& bpe) {
  od::value value;
  if (model.missing("vocab", value)) return model.refuse_missing("vocab");
  od::object vocabulary;
  if (value.get_object().get(vocabulary)) return wrong_type(kFile, "model.vocab", "an object");
  std::string bytes;
  for (auto field : vocabulary) {
    std::string_view spelled;
    if (field.unescaped_key().get(spelled)) return wrong_type(kFile, "a token of model.vocab", "a string");
    std::int64_t number = 0;
    if (field.value().get_int64().get(number)) return wrong_type(kFile, fmt::format("the id of '{}' in model.vocab", spelled), "an integer");
    TANDEM_ASSIGN(const TokenId id, as_id(kFile, spelled, number));
    if (spelled.empty() || !bytes_of(spelled, bytes)) {
      return fail(ErrorKind::Unsupported,
                  fmt::format("[{}] model.vocab: the token '{}' ({}) is not spelled in the byte-level alphabet; only byte-level "
                              "vocabularies are supported",
                              kFile, spelled, id));
    }
    if (auto added = bpe.add_token(id, bytes); !added)
      return fail(added.error().kind, fmt::format("[{}] model.vocab: {}", kFile, added.error().message));
  }
  if (auto sealed = bpe.seal_tokens(); !sealed)
    return fail(sealed.error().kind, fmt::format("[{}] model.vocab: {}", kFile, sealed.error().message));
  return {};
}

// Each merge is ["left", "right"] or, in older files, "left right".
Result<void> read_merges(Fields& model, Bpe& bpe) {
  od::value value;
  if (model.missing("merges", value)) return model.refuse_missing("merges");
  od::array merges;
  if (value.get_array().get(merges)) return wrong_type(kFile, "model.merges", "a list");
  std::string left, right;
  std::size_t count = 0;
  for (auto item : merges) {
    bool good = false;
    od::value merge;
    if (item.get(merge)) return wrong_type(kFile, "model.merges[]", "a pair of strings");
    od::json_type type{};
    if (merge.type().get(type)) return wrong_type(kFile, "model.merges[]", "a pair of strings");
    if (type == od::json_type::array) {
      od::array parts;
      if (merge.get_array().get(parts)) return wrong_type(kFile, "model.merges[]", "a pair of strings");
      int part = 0;
      good = true;
      for (auto text : parts) {
        std::string_view spelled;
        if (text.get_string().get(spelled)) return wrong_type(kFile, fmt::format("model.merges[{}]", count), "a pair of strings");
        good = good && part < 2 && bytes_of(spelled, part == 0 ? left : right);
        ++part;
      }
      good = good && part == 2;
    } else {
      std::string_view spelled;
      if (merge.get_string().get(spelled)) return wrong_type(kFile, fmt::format("model.merges[{}]", count), "a pair of strings");
      const std::size_t space = spelled.find(' ');
      good = space != std::string_view::npos && bytes_of(spelled.substr(0, space), left) && bytes_of(spelled.substr(space + 1), right);
    }
    if (!good) return fail(ErrorKind::Invalid, fmt::format("[{}] model.merges[{}] is not a pair of byte-level tokens", kFile, count));
    if (auto added = bpe.add_merge(left, right); !added)
      return fail(added.error().kind, fmt::format("[{}] model.merges: {}", kFile, added.error().message));
    ++count;
  }
  return {};
}

Result<Bpe> read_model(Fields& file, std::size_t file_bytes) {
  TANDEM_ASSIGN(Fields model, file.object("model"));
  TANDEM_TRY(check_type(model, "BPE"));
  TANDEM_TRY(model.empty("dropout"));
  TANDEM_TRY(model.empty("unk_token"));
  TANDEM_TRY(model.empty("continuing_subword_prefix"));
  TANDEM_TRY(model.empty("end_of_word_suffix"));
  TANDEM_TRY(model.boolean("fuse_unk", false, true));
  TANDEM_TRY(model.boolean("byte_fallback", false, true));
  TANDEM_TRY(model.boolean("ignore_merges", false, true));
  Bpe bpe;
  // A token costs some 50 bytes of file on its two lines, a merge as much; too low only costs time.
  const std::size_t guess = std::min<std::size_t>(file_bytes / 60, kMostIds);
  bpe.reserve(guess, guess, file_bytes / 8);
  TANDEM_TRY(read_vocabulary(model, bpe));
  TANDEM_TRY(read_merges(model, bpe));
  return bpe;
}

constexpr std::string_view kTokenName = "a string, or an object whose content is one";

Result<std::optional<std::string>> read_token_name(od::object& config, std::string_view name) {
  od::value value;
  if (config.find_field_unordered(name).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  od::json_type type{};
  if (value.type().get(type)) return wrong_type(kConfigFile, name, kTokenName);
  std::string_view text;
  const auto code = type == od::json_type::object ? value.find_field_unordered("content").get_string().get(text)
                                                  : value.get_string().get(text);
  if (code) return wrong_type(kConfigFile, name, kTokenName);
  return std::string(text);
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string json) {
  json.reserve(json.size() + kJsonPadding);
  TANDEM_TRY(check_json(kFile, json));
  od::parser parser;
  od::document document;
  if (parser.iterate(json).get(document)) return wrong_type(kFile, "the file", "JSON");
  od::object root;
  if (document.get_object().get(root)) return wrong_type(kFile, "the file", "an object");
  Fields file("", root);

  TokenizerFile found;
  TANDEM_TRY(check_null(file, "truncation"));
  TANDEM_TRY(check_null(file, "padding"));
  TANDEM_TRY(check_normalizer(file));
  TANDEM_ASSIGN(found.split_rule, read_pre_tokenizer(file));
  TANDEM_TRY(check_post_processor(file));
  TANDEM_TRY(check_decoder(file));
  TANDEM_ASSIGN(found.added_tokens, read_added_tokens(file));
  TANDEM_ASSIGN(found.bpe, read_model(file, json.size()));
  return found;
}

Result<TokenizerConfigFile> read_tokenizer_config_file(std::string json) {
  json.reserve(json.size() + kJsonPadding);
  TANDEM_TRY(check_json(kConfigFile, json));
  od::parser parser;
  od::document document;
  if (parser.iterate(json).get(document)) return wrong_type(kConfigFile, "the file", "JSON");
  od::object root;
  if (document.get_object().get(root)) return wrong_type(kConfigFile, "the file", "an object");

  TokenizerConfigFile found;
  TANDEM_ASSIGN(found.eos_token, read_token_name(root, "eos_token"));
  TANDEM_ASSIGN(found.pad_token, read_token_name(root, "pad_token"));
  TANDEM_ASSIGN(found.bos_token, read_token_name(root, "bos_token"));

  od::value value;
  if (root.find_field_unordered("added_tokens_decoder").get(value) != simdjson::SUCCESS || value.is_null()) return found;
  od::object decoder;
  if (value.get_object().get(decoder)) return wrong_type(kConfigFile, "added_tokens_decoder", "an object");
  for (auto field : decoder) {
    std::string_view key;
    if (field.unescaped_key().get(key)) return wrong_type(kConfigFile, "a key of added_tokens_decoder", "a string");
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc{} || end != key.data() + key.size()) number = -1;
    TANDEM_ASSIGN(const TokenId id, as_id(kConfigFile, key, number));
    od::object object;
    if (field.value().get_object().get(object)) return wrong_type(kConfigFile, fmt::format("added_tokens_decoder.{}", key), "an object");
    TANDEM_ASSIGN(AddedToken token, read_added_token(kConfigFile, id, object));
    found.added_tokens.push_back(std::move(token));
  }
  return found;
}

}  // namespace tandem::text
