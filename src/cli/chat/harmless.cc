#include "cli/chat/harmless.h"

#include "text/utf8.h"

namespace tandem::cli::chat {

std::string harmless(std::string_view bytes) {
  const std::string text = text::to_utf8(bytes);  // a stray byte may be a control of its own (0x9B)
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) ++i;
    else if ((byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t') out += text[i];
  }
  return out;
}

}  // namespace tandem::cli::chat
