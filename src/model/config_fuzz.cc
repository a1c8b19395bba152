// Reads an input as config.json. Promises: a geometry that is taken passes its own check, and a refusal names
// the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/geometry.h"
#include "tests/fuzz/driver.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto geometry = tandem::model::parse_geometry(input, "config.json");
  if (!geometry) {
    if (geometry.error().message.find("config.json") == std::string::npos) std::abort();
    return 0;
  }
  if (!tandem::model::check_geometry(*geometry, "config.json")) std::abort();
  if (geometry->full_layers() + geometry->linear_layers() != geometry->layer_count()) std::abort();
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string text =
      R"({"model_type":"qwen3_5_text","attention_bias":false,"attn_output_gate":true,"eos_token_id":[3,4],"full_attention_interval":4,)"
      R"("head_dim":256,"hidden_act":"silu","hidden_size":160,"intermediate_size":512,"layer_types":["linear_attention",)"
      R"("linear_attention","linear_attention","full_attention"],"linear_conv_kernel_dim":4,"linear_key_head_dim":128,)"
      R"("linear_num_key_heads":4,"linear_num_value_heads":8,"linear_value_head_dim":128,"max_position_embeddings":32768,)"
      R"("num_attention_heads":4,"num_hidden_layers":4,"num_key_value_heads":2,"rms_norm_eps":1e-06,"vocab_size":4096,)"
      R"("mamba_ssm_dtype":"float32","rope_parameters":{"mrope_interleaved":true,"mrope_section":[11,11,10],)"
      R"("rope_type":"default","rope_theta":10000000,"partial_rotary_factor":0.25},"tie_word_embeddings":true)";
  return {text + "}", R"({"architectures":["Qwen3_5ForConditionalGeneration"],"model_type":"qwen3_5","text_config":)" + text +
                          R"(},"tie_word_embeddings":true,"vision_config":{"depth":2},"quantization_config":null})"};
}
