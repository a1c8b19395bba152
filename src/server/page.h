#pragma once

#include <string_view>

#include "server/http_message.h"

namespace tandem::server {

// page/index.html, put into the program when it was built.
[[nodiscard]] std::string_view page_html();

// The page with a policy that lets it talk to this server only and load nothing else.
[[nodiscard]] Response chat_page();

}  // namespace tandem::server
