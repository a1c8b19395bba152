#include "model/geometry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/fabricate_text.h"
#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::replace_all;
using testing::small_geometry;
using testing::TempFolder;
using testing::write_file;

std::string flat() { return made_config({.geometry = small_geometry()}); }

std::string nested(std::string_view size) {
  return made_config({.geometry = *published(size), .layout = FabricatedLayout::Published});
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  EXPECT_NE(text.find(from), std::string::npos) << from << " is not in " << text;
  replace_all(text, from, to);
  return text;
}

TEST(Geometry, PublishedSizesAreThoseOfTheSpecification) {  // spec 1.1
  struct Row {
    std::string_view size;
    int hidden, linear, full, intermediate, query, kv, value, channels;
    bool tied;
  };
  for (const Row& r : {Row{"0.8B", 1024, 18, 6, 3584, 8, 2, 16, 6144, true}, Row{"2B", 2048, 18, 6, 6144, 8, 2, 16, 6144, true},
                       Row{"4B", 2560, 24, 8, 9216, 16, 4, 32, 8192, true}, Row{"9B", 4096, 24, 8, 12288, 16, 4, 32, 8192, false},
                       Row{"27B", 5120, 48, 16, 17408, 24, 4, 48, 10240, false}}) {
    const auto g = published(r.size);
    ASSERT_TRUE(g);
    EXPECT_EQ(g->hidden, r.hidden);
    EXPECT_EQ(g->linear_layers(), r.linear);
    EXPECT_EQ(g->full_layers(), r.full);
    EXPECT_EQ(g->intermediate, r.intermediate);
    EXPECT_EQ(g->query_heads, r.query);
    EXPECT_EQ(g->kv_heads, r.kv);
    EXPECT_EQ(g->key_heads, 16);
    EXPECT_EQ(g->value_heads, r.value);
    EXPECT_EQ(g->conv_channels(), r.channels);
    EXPECT_EQ(g->tied, r.tied);
    EXPECT_EQ(g->layers[3], LayerKind::Full);
    EXPECT_EQ(g->layers[4], LayerKind::Linear);
    Geometry read = *parse_geometry(nested(r.size), "config.json");
    read.name = std::string(r.size);
    EXPECT_EQ(read, *g) << r.size;
  }
  EXPECT_EQ(published("5B").error().message, "no published size is called \"5B\"; there are 0.8B, 2B, 4B, 9B, 27B");
}

TEST(Geometry, AFlatConfigIsReadLikeANestedOne) {
  Geometry read = *parse_geometry(flat(), "config.json");
  read.name = "small";
  EXPECT_EQ(read, small_geometry());
}

TEST(Geometry, TheTextModelsOwnWordOnTyingCountsThenTheRootsThenFalse) {  // B170
  const std::string own = R"("tie_word_embeddings":true,"use_cache")";
  const std::string root = R"("tie_word_embeddings":true,"video)";
  const std::string text = nested("4B");
  EXPECT_TRUE(parse_geometry(text, "c")->tied);
  EXPECT_FALSE(parse_geometry(with(text, own, R"("tie_word_embeddings":false,"use_cache")"), "c")->tied);
  EXPECT_TRUE(parse_geometry(with(text, root, R"("tie_word_embeddings":false,"video)"), "c")->tied);
  EXPECT_TRUE(parse_geometry(with(text, own, R"("use_cache")"), "c")->tied);
  EXPECT_TRUE(parse_geometry(with(text, own, R"("tie_word_embeddings":null,"use_cache")"), "c")->tied);
  EXPECT_FALSE(parse_geometry(with(with(text, own, R"("use_cache")"), root, R"("video)"), "c")->tied);
}

TEST(Geometry, TheIntervalCountsOnlyWithoutAListOfLayers) {
  std::string text = flat();
  const std::size_t begin = text.find("\"layer_types\""), end = text.find(']', begin) + 2;
  EXPECT_EQ(parse_geometry(with(flat(), R"("head_dim")", R"("full_attention_interval":2,"head_dim")"), "c")->full_layers(), 1);
  text.erase(begin, end - begin);
  EXPECT_EQ(parse_geometry(text, "c")->layers, layer_pattern(4, 4));
  EXPECT_EQ(parse_geometry(with(text, R"("head_dim")", R"("full_attention_interval":2,"head_dim")"), "c")->layers, layer_pattern(4, 2));
}

TEST(Geometry, EndIdsOfBothFilesAndBothLevelsJoin) {  // spec 5.6
  const TempFolder folder;
  write_file(folder.path() / "config.json", nested("4B"));
  EXPECT_EQ(read_geometry(folder.path())->eos_ids, (std::vector<TokenId>{248044}));
  write_file(folder.path() / "generation_config.json", R"({"eos_token_id":[248046,248044],"temperature":1.0})");
  EXPECT_EQ(read_geometry(folder.path())->eos_ids, (std::vector<TokenId>{248044, 248046}));
  write_file(folder.path() / "generation_config.json", R"({"eos_token_id":99999999})");
  EXPECT_NE(read_geometry(folder.path()).error().message.find("outside the vocabulary"), std::string::npos);
  write_file(folder.path() / "generation_config.json", R"({"eos_token_id":"</s>"})");
  EXPECT_FALSE(read_geometry(folder.path()));
}

struct Bad {
  std::string_view from, to;
  std::vector<std::string_view> message;  // parts that the refusal must have
};

class BadConfig : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithFieldValueAndWhatWorks) {
  const Bad& bad = GetParam();
  const auto parsed = parse_geometry(with(flat(), bad.from, bad.to), "dir/config.json");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("dir/config.json"), std::string::npos) << parsed.error().message;
  for (const std::string_view part : bad.message) {
    EXPECT_NE(parsed.error().message.find(part), std::string::npos) << parsed.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachField, BadConfig,
    ::testing::Values(
        Bad{R"("head_dim":256)", R"("head_dim":128)", {"head_dim = 128", "256"}},
        Bad{R"("linear_key_head_dim":128)", R"("linear_key_head_dim":64)", {"linear_key_head_dim = 64", "128"}},
        Bad{R"("linear_conv_kernel_dim":4)", R"("linear_conv_kernel_dim":3)", {"linear_conv_kernel_dim = 3", "4"}},
        Bad{R"("hidden_size":64)", R"("hidden_size":-64)", {"hidden_size = -64", "from 1 to 2147483647"}},
        Bad{R"("hidden_size":64)", R"("hidden_size":64.5)", {"hidden_size", "an integer from 1 to 2147483647"}},
        Bad{R"("hidden_size":64)", R"("hidden_size":"64")", {"hidden_size = \"64\"", "an integer from 1 to 2147483647"}},
        Bad{R"("hidden_size":64)", R"("hidden_size":99999999999)", {"hidden_size", "an integer from 1 to 2147483647"}},
        Bad{R"("hidden_size":64,)", "", {"hidden_size is missing; it must be an integer from 1 to 2147483647"}},
        Bad{R"("hidden_size":64)", R"("hidden_size":65)", {"hidden_size = 65", "multiple of 8"}},
        Bad{R"("hidden_act":"silu")", R"("hidden_act":"gelu")", {"hidden_act = \"gelu\"", "silu"}},
        Bad{R"("attention_bias":false)", R"("attention_bias":true)", {"attention_bias = true"}},
        Bad{R"("attn_output_gate":true)", R"("attn_output_gate":false)", {"attn_output_gate = false"}},
        Bad{R"("dtype":"bfloat16")", R"("dtype":"float16")", {"dtype = \"float16\"", "bfloat16"}},
        Bad{R"("head_dim")", R"("output_gate_type":"sigmoid","head_dim")", {"output_gate_type = \"sigmoid\"", "silu or swish"}},
        Bad{R"("head_dim")", R"("num_experts":256,"head_dim")", {"num_experts = 256", "dense"}},
        Bad{R"("head_dim")", R"("mlp_only_layers":[1],"head_dim")", {"mlp_only_layers = [1]", "[]"}},
        Bad{R"("head_dim")", R"("quantization_config":{"bits":4},"head_dim")", {"quantization_config", "bf16"}},
        Bad{R"("head_dim")", R"("rope_scaling":{"type":"yarn"},"head_dim")", {"rope_scaling", "yarn", "default"}},
        Bad{R"("rope_type":"default")", R"("rope_type":"yarn")", {"rope_type = \"yarn\"", "default"}},
        Bad{R"("partial_rotary_factor":0.25)", R"("partial_rotary_factor":1.0)", {"partial_rotary_factor = 1", "0.25"}},
        Bad{R"([11,11,10])", R"([16,24,24])", {"mrope_section", "32"}},
        Bad{R"("Qwen3_5ForCausalLM")", R"("LlamaForCausalLM")", {"architectures", "LlamaForCausalLM", "Qwen3_5ForConditionalGeneration and Qwen3_5ForCausalLM"}},
        Bad{R"("model_type":"qwen3_5_text")", R"("model_type":"qwen3_5_moe_text")", {"model_type", "qwen3_5_moe_text"}},
        Bad{R"("num_hidden_layers":4)", R"("num_hidden_layers":5)", {"layer_types has 4 entries, num_hidden_layers = 5"}},
        Bad{R"(["linear_attention")", R"(["sliding_attention")", {"layer_types[0] = \"sliding_attention\""}},
        Bad{R"("linear_num_value_heads":4)", R"("linear_num_value_heads":3)", {"linear_num_value_heads = 3", "multiple of linear_num_key_heads = 2"}},
        Bad{R"("num_attention_heads":2)", R"("num_attention_heads":0)", {"num_attention_heads = 0"}},
        Bad{R"("eos_token_id":487)", R"("eos_token_id":520)", {"eos_token_id 520", "vocabulary of 520"}},
        Bad{R"("tie_word_embeddings":true)", R"("tie_word_embeddings":"yes")", {"tie_word_embeddings = \"yes\"", "true or false"}},
        Bad{R"("rms_norm_eps":1e-06)", R"("rms_norm_eps":0)", {"rms_norm_eps = 0; it must be more than 0 and less than 1"}},
        Bad{R"("vocab_size":520)", R"("vocab_size":2147483648)", {"vocab_size = 2147483648", "from 1 to 2147483647"}}));

TEST(Geometry, AQuantizedTextModelIsRefusedByNameWhereverItSaysSo) {
  for (const std::string_view name : {"quantization_config", "compression_config"}) {
    const std::string field = fmt::format("\"{}\":{{\"bits\":4}},", name);
    const auto inner = parse_geometry(with(nested("4B"), R"("text_config":{)", R"("text_config":{)" + field), "c.json");
    ASSERT_FALSE(inner);
    EXPECT_EQ(inner.error().message, fmt::format("c.json: text_config: {} is given; this server runs bf16 checkpoints", name));
    const auto outer = parse_geometry(with(nested("4B"), R"("text_config":{)", field + R"("text_config":{)"), "c.json");
    ASSERT_FALSE(outer);
    EXPECT_EQ(outer.error().message, fmt::format("c.json: {} is given; this server runs bf16 checkpoints", name));
  }
}

TEST(Geometry, WhatIsNotAConfigIsSaidToBeNone) {
  EXPECT_NE(parse_geometry("{", "c.json").error().message.find("c.json is not JSON"), std::string::npos);
  EXPECT_EQ(parse_geometry("[]", "c.json").error().message, "c.json is not a JSON object");
  EXPECT_NE(parse_geometry("{}", "c.json").error().message.find("neither model_type nor architectures"), std::string::npos);
  EXPECT_FALSE(parse_geometry(R"({"model_type":"qwen3_5","text_config":7})", "c.json"));
  EXPECT_FALSE(parse_geometry(std::string(100000, '['), "c.json"));
  const TempFolder folder;
  EXPECT_EQ(read_geometry(folder.path()).error().kind, ErrorKind::NotFound);
  std::filesystem::create_directory(folder.path() / "config.json");
  EXPECT_NE(read_geometry(folder.path()).error().message.find("not a regular file"), std::string::npos);
  std::filesystem::remove(folder.path() / "config.json");
  write_file(folder.path() / "config.json", "");
  EXPECT_EQ(read_geometry(folder.path()).error().message, (folder.path() / "config.json").string() + " is empty");
}

}  // namespace
}  // namespace tandem::model
