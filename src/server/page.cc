#include "server/page.h"

#include <string>

#include "server/ids.h"

namespace tandem::server {

Response chat_page() {
  // Only the script and the style that were sent with this page run: others do not know its nonce.
  static constexpr std::string_view kPlace = "{{nonce}}";
  const std::string nonce = new_id("");
  std::string body(page_html());
  for (std::size_t at = body.find(kPlace); at != std::string::npos; at = body.find(kPlace, at)) {
    body.replace(at, kPlace.size(), nonce);
  }
  return {.content_type = "text/html; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                           "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-store"}}};
}

}  // namespace tandem::server
