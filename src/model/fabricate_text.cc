#include "model/fabricate_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/json_writer.h"
#include "ops/attention.h"
#include "ops/delta.h"

namespace tandem::model {
namespace {

struct Added {
  std::string_view text;
  bool special;
};
// In the order of their ids (spec 5.2).
constexpr Added kAdded[] = {
    {"<|endoftext|>", true},         {"<|im_start|>", true},       {"<|im_end|>", true},
    {"<|object_ref_start|>", true},  {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},           {"<|quad_start|>", true},     {"<|quad_end|>", true},
    {"<|vision_start|>", true},      {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},         {"<|video_pad|>", true},      {"<tool_call>", false},
    {"</tool_call>", false},         {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},       {"<|fim_pad|>", false},       {"<|repo_name|>", false},
    {"<|file_sep|>", false},         {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},              {"</think>", false},          {"<|audio_start|>", true},
    {"<|audio_end|>", true},         {"<tts_pad>", true},          {"<tts_text_bos>", true},
    {"<tts_text_eod>", true},        {"<tts_text_bos_single>", true}, {"<|audio_pad|>", true},
};
constexpr int kAddedCount = static_cast<int>(std::size(kAdded));
constexpr int kFamilyVocab = 248320;
constexpr int kFamilyFirstAdded = 248044;

constexpr std::string_view kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

int first_added(int vocab) { return vocab == kFamilyVocab ? kFamilyFirstAdded : vocab - kAddedCount; }

std::string utf8(int code_point) {
  std::string text;
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else {  // below 0x800: the byte alphabet ends at 323
    text += static_cast<char>(0xc0 | code_point >> 6);
    text += static_cast<char>(0x80 | (code_point & 0x3f));
  }
  return text;
}

// The printable stand-ins of the 256 bytes in byte-level BPE, in the order of their ids: bytes that print
// stand for themselves, the others for code points from 256 on.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> printable, shifted;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (prints) {
      printable.push_back(utf8(byte));
    } else {
      shifted.push_back(utf8(256 + static_cast<int>(shifted.size())));
    }
  }
  printable.insert(printable.end(), shifted.begin(), shifted.end());
  return printable;
}

const std::string& space() {
  static const std::string text = utf8(256 + 32);  // the stand-in of 0x20: the 33rd byte that does not print
  return text;
}

// Words over a to z by length, each also with a leading space; a word extends the one a letter shorter.
class Words {
 public:
  // The next word and what it extends.
  struct Merge {
    std::string left, right;
    [[nodiscard]] std::string word() const { return left + right; }
  };
  Merge next() {
    const bool spaced = spaced_ || word_.size() == 1;
    Merge merge{(spaced ? space() : std::string()) + word_.substr(0, word_.size() - 1), word_.substr(word_.size() - 1)};
    if (spaced) {
      advance();
      spaced_ = false;
    } else {
      spaced_ = true;
    }
    return merge;
  }

 private:
  void advance() {
    for (std::size_t i = word_.size(); i-- > 0;) {
      if (word_[i] != 'z') {
        ++word_[i];
        return;
      }
      word_[i] = 'a';
    }
    word_ += 'a';
  }

  std::string word_ = "a";
  bool spaced_ = false;
};

void write_flags(JsonWriter& json, const Added& added) {
  json.member("content", added.text).member("lstrip", false).member("normalized", false);
  json.member("rstrip", false).member("single_word", false).member("special", added.special);
}

void write_text_config(JsonWriter& json, const FabricateOptions& options) {
  const Geometry& g = options.geometry;
  json.member("attention_bias", false).member("attention_dropout", 0.0).member("attn_output_gate", true);
  json.member("dtype", "bfloat16").member("eos_token_id", made_end_of_text(g.vocab));
  json.member("head_dim", ops::kHeadDim).member("hidden_act", "silu").member("hidden_size", g.hidden);
  json.member("initializer_range", 0.02).member("intermediate_size", g.intermediate);
  json.key("layer_types").begin_array();
  for (const LayerKind kind : g.layers) json.string(kind == LayerKind::Full ? "full_attention" : "linear_attention");
  json.end_array();
  json.member("linear_conv_kernel_dim", ops::kConvTaps).member("linear_key_head_dim", ops::kDeltaHeadDim);
  json.member("linear_num_key_heads", g.key_heads).member("linear_num_value_heads", g.value_heads);
  json.member("linear_value_head_dim", ops::kDeltaHeadDim).member("mamba_ssm_dtype", "float32");
  json.member("max_position_embeddings", g.max_context).member("model_type", "qwen3_5_text");
  json.member("num_attention_heads", g.query_heads).member("num_hidden_layers", g.layer_count());
  json.member("num_key_value_heads", g.kv_heads).member("rms_norm_eps", g.norm_eps);
  json.key("rope_parameters").begin_object().member("mrope_interleaved", true);
  json.key("mrope_section").begin_array().number(11).number(11).number(10).end_array();
  json.member("partial_rotary_factor", 0.25).member("rope_theta", g.rope_theta);
  json.member("rope_type", "default").end_object();
  json.member("tie_word_embeddings", g.tied).member("use_cache", true).member("vocab_size", g.vocab);
}

struct VisionNumbers {
  int depth, hidden, intermediate;
};

VisionNumbers vision_of(int hidden) {
  if (hidden <= 1024) return {12, 768, 3072};
  if (hidden <= 2560) return {24, 1024, 4096};
  return {27, 1152, 4304};
}

}  // namespace

TokenId made_end_of_text(int vocab) { return first_added(vocab); }

std::string made_config(const FabricateOptions& options) {
  const Geometry& g = options.geometry;
  JsonWriter json;
  json.begin_object();
  if (options.layout == FabricatedLayout::TextOnly) {
    json.key("architectures").begin_array().string("Qwen3_5ForCausalLM").end_array();
    write_text_config(json, options);
  } else {
    json.key("architectures").begin_array().string("Qwen3_5ForConditionalGeneration").end_array();
    json.member("image_token_id", 248056).member("model_type", "qwen3_5");
    json.key("text_config").begin_object();
    write_text_config(json, options);
    json.member("mtp_num_hidden_layers", 1).member("mtp_use_dedicated_embeddings", false).end_object();
    json.member("tie_word_embeddings", g.tied).member("video_token_id", 248057);
    const VisionNumbers v = vision_of(g.hidden);
    json.key("vision_config").begin_object().key("deepstack_visual_indexes").begin_array().end_array();
    json.member("depth", v.depth).member("hidden_act", "gelu_pytorch_tanh").member("hidden_size", v.hidden);
    json.member("in_channels", 3).member("initializer_range", 0.02).member("intermediate_size", v.intermediate);
    json.member("model_type", "qwen3_5").member("num_heads", v.hidden == 768 ? 12 : 16);
    json.member("num_position_embeddings", 2304).member("out_hidden_size", g.hidden).member("patch_size", 16);
    json.member("spatial_merge_size", 2).member("temporal_patch_size", 2).end_object();
    json.member("vision_end_token_id", 248054).member("vision_start_token_id", 248053);
  }
  json.end_object();
  return json.take();
}

std::string made_tokenizer(int vocab) {
  std::vector<std::string> tokens = byte_alphabet();
  std::vector<Words::Merge> merges;
  Words words;
  while (static_cast<int>(tokens.size()) < vocab - kAddedCount) {
    merges.push_back(words.next());
    tokens.push_back(merges.back().word());
  }
  const int added_at = first_added(vocab);

  JsonWriter json;
  json.begin_object().member("version", "1.0").key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array();
  for (int i = 0; i < kAddedCount; ++i) {
    json.begin_object().member("id", added_at + i);
    write_flags(json, kAdded[i]);
    json.end_object();
  }
  json.end_array();
  json.key("normalizer").begin_object().member("type", "NFC").end_object();
  json.key("pre_tokenizer").begin_object().member("type", "Sequence").key("pretokenizers").begin_array();
  json.begin_object().member("type", "Split").key("pattern").begin_object().member("Regex", kSplitPattern).end_object();
  json.member("behavior", "Isolated").member("invert", false).end_object();
  for (const char* place : {"pre_tokenizer", "post_processor", "decoder"}) {
    if (std::string_view(place) == "pre_tokenizer") {
      json.begin_object();
    } else {
      json.key(place).begin_object();
    }
    json.member("type", "ByteLevel").member("add_prefix_space", false).member("trim_offsets", false);
    json.member("use_regex", false).end_object();
    if (std::string_view(place) == "pre_tokenizer") json.end_array().end_object();
  }
  json.key("model").begin_object().member("type", "BPE").key("dropout").null().key("unk_token").null();
  json.member("continuing_subword_prefix", "").member("end_of_word_suffix", "").member("fuse_unk", false);
  json.member("byte_fallback", false).member("ignore_merges", false);
  json.key("vocab").begin_object();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const int id = static_cast<int>(i) + (static_cast<int>(i) >= added_at ? kAddedCount : 0);
    json.member(tokens[i], id);
  }
  json.end_object().key("merges").begin_array();
  for (const Words::Merge& merge : merges) json.begin_array().string(merge.left).string(merge.right).end_array();
  json.end_array().end_object().end_object();
  return json.take();
}

std::string made_tokenizer_config(int vocab, int max_context) {
  JsonWriter json;
  json.begin_object().member("add_bos_token", false).member("add_prefix_space", false);
  json.key("added_tokens_decoder").begin_object();
  for (int i = 0; i < kAddedCount; ++i) {
    json.key(std::to_string(first_added(vocab) + i)).begin_object();
    write_flags(json, kAdded[i]);
    json.end_object();
  }
  json.end_object().key("bos_token").null().member("clean_up_tokenization_spaces", false);
  json.member("eos_token", "<|im_end|>").member("errors", "replace").member("model_max_length", max_context);
  json.member("pad_token", "<|endoftext|>").member("split_special_tokens", false);
  json.member("tokenizer_class", "Qwen2Tokenizer").key("unk_token").null().end_object();
  return json.take();
}

std::string made_chat_template() {
  return R"({%- if not messages %}{{- raise_exception('The conversation has no messages.') }}{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + (message.content | trim if message.content is string else '') + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is true %}
        {{- '<think>\n' }}
    {%- else %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
)";
}

}  // namespace tandem::model
