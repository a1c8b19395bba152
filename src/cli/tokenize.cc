#include <cstdio>
#include <iostream>

#include "base/json_writer.h"
#include "cli/commands.h"
#include "cli/model_folder.h"
#include "text/tokenizer.h"
#include "text/tokenizer_lines.h"

namespace tandem::cli {
namespace {

constexpr char kExamples[] =
    "Text to token ids and back, with a model's tokenizer.\n\n"
    "  tandem tokenize 'Hello world'                       ids and tokens, with the bundled model's tokenizer\n"
    "  tandem tokenize --model ~/models/Qwen3.5-4B 'Hi'\n"
    "  tandem tokenize --lines < requests.jsonl            one JSON object a line: {\"text\": ...} or {\"ids\": [...]}";

struct TokenizeFlags {
  std::string model, text;
  bool lines = false;
};

Result<int> tokenize(const TokenizeFlags& flags) {
  TANDEM_ASSIGN(const std::filesystem::path folder, find_model(flags.model));
  TANDEM_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
  if (flags.lines) {
    TANDEM_TRY(text::tokenize_lines(tokenizer, std::cin, std::cout));
    return 0;
  }
  for (const TokenId id : tokenizer.encode(flags.text, text::SpecialTokens::Parse)) {
    JsonWriter token;
    token.string(tokenizer.decode({&id, 1}, false));
    std::printf("%7d  %s\n", id, token.take().c_str());
  }
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* const command = app.add_subcommand("tokenize", kExamples);
  command->add_option("text", flags->text, "The text");
  command->add_option("--model", flags->model, "Folder with tokenizer.json (default: the bundled model)");
  command->add_flag("--lines", flags->lines, "JSON lines from standard input to standard output");
  command->callback([flags, &action] { action = [flags] { return tokenize(*flags); }; });
}

}  // namespace tandem::cli
