#pragma once

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "server/prompt_text.h"
#include "text/utf8.h"

namespace tandem::server::testing {

inline constexpr std::array<std::string_view, 3> kFakeSpecial = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
inline constexpr TokenId kFakeEnd = 257;  // <|im_end|>
inline constexpr std::int32_t kFakeVocab = 300;

// For tests: a token is a byte, 256 to 258 are special, the rest up to 299 stand for nothing. The
// template writes turns as the model family does, with a thinking block unless enable_thinking is false.
class FakeText : public PromptText {
 public:
  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      std::size_t used = 1;
      TokenId id = static_cast<unsigned char>(text[0]);
      for (std::size_t i = 0; i < kFakeSpecial.size(); ++i) {
        if (!text.starts_with(kFakeSpecial[i])) continue;
        id = static_cast<TokenId>(256 + i);
        used = kFakeSpecial[i].size();
      }
      ids.push_back(id);
      text.remove_prefix(used);
    }
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string bytes;
    for (const TokenId id : ids)
      if (!skip_special || !is_special(id)) bytes += token_bytes(id);
    return text::to_utf8(bytes);
  }
  std::string token_bytes(TokenId id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    return is_special(id) ? std::string(kFakeSpecial[static_cast<std::size_t>(id - 256)]) : std::string();
  }
  bool is_special(TokenId id) const override { return id >= 256 && id < 259; }

  bool has_template() const override { return true; }
  bool template_reads(std::string_view variable) const override { return variable == "enable_thinking"; }
  Result<std::string> render(const text::Conversation& conversation) const override {
    std::string out;
    bool user = false;
    for (const auto& tool : conversation.tools) {
      const auto& function = tool.at("function");
      out += fmt::format("<|im_start|>system\ntool {}<|im_end|>\n", std::string_view(function.at("name").get_string()));
    }
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
      const auto& message = conversation.messages[i].get_object();
      const std::string_view role = message.at("role").get_string();
      if (role == "system" && i > 0) return fail(ErrorKind::Invalid, "System message must be at the beginning.");
      user = user || role == "user";
      out += fmt::format("<|im_start|>{}\n{}", role, std::string_view(message.at("content").get_string()));
      if (const auto* calls = message.if_contains("tool_calls")) {
        for (const auto& call : calls->as_array()) {
          const auto& function = call.at("function");
          out += fmt::format("<call {}", std::string_view(function.at("name").get_string()));
          const auto& given = function.at("arguments");
          const auto arguments = given.is_object() ? given : boost::json::parse(given.as_string());
          for (const auto& argument : arguments.as_object())
            out += fmt::format(" {}={}", std::string_view(argument.key()), boost::json::serialize(argument.value()));
          out += '>';
        }
      }
      out += "<|im_end|>\n";
    }
    if (!user) return fail(ErrorKind::Invalid, "No user query found in messages.");
    if (conversation.add_generation_prompt) {
      const auto* thinking = conversation.variables.if_contains("enable_thinking");
      out += "<|im_start|>assistant\n<think>\n";
      if (thinking == nullptr || !thinking->as_bool()) out += "\n</think>\n\n";
    }
    return out;
  }
};

}  // namespace tandem::server::testing
