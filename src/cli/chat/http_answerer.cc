#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "cli/chat/answerer.h"
#include "cli/chat/harmless.h"

namespace tandem::cli::chat {
namespace {

namespace json = boost::json;

struct Address {
  std::string host, port, base;  // base: before /v1/..., "" or "/prefix"
};

Result<Address> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  std::string rest = url.starts_with(kScheme) ? url.substr(kScheme.size()) : "";
  Address address;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  address.base = rest.substr(slash);
  rest.resize(slash);
  while (address.base.ends_with('/')) address.base.pop_back();
  if (address.base.ends_with("/v1")) address.base.resize(address.base.size() - 3);
  const std::size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && rest.find(']', colon) == std::string::npos;
  address.host = has_port ? rest.substr(0, colon) : rest;
  address.port = has_port ? rest.substr(colon + 1) : "80";
  if (address.host.starts_with('[') && address.host.ends_with(']')) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || address.port.empty())
    return fail(ErrorKind::Invalid, fmt::format("[url] '{}' is not http://HOST[:PORT]; for https put a proxy or tunnel before it", url), "url");
  return address;
}

// One request over one connection. The body comes without its framing, piece by piece.
class Exchange {
 public:
  explicit Exchange(const std::atomic<bool>* stop) : stop_(stop) {}
  ~Exchange() {
    if (socket_ >= 0) close(socket_);
  }
  Exchange(const Exchange&) = delete;

  Result<void> begin(const Address& to, const std::string& method, const std::string& path, const std::string& key, const std::string& body) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int status = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found); status != 0)
      return fail(ErrorKind::Io, fmt::format("[url] {}:{}: {}", to.host, to.port, gai_strerror(status)));
    int problem = 0;
    for (const addrinfo* at = found; at && socket_ < 0; at = at->ai_next) {
      socket_ = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
      if (socket_ >= 0 && connect(socket_, at->ai_addr, at->ai_addrlen) != 0) {
        problem = errno;
        close(socket_);
        socket_ = -1;
      }
    }
    freeaddrinfo(found);
    if (socket_ < 0) return fail(ErrorKind::Io, fmt::format("[url] cannot connect to {}:{}: {}", to.host, to.port, std::strerror(problem)));
    std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n", method, to.base, path, to.host, to.port);
    if (!key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", key);
    if (!body.empty()) head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
    TANDEM_TRY(send_all(head + "\r\n" + body));
    return read_head();
  }

  int status() const { return status_; }

  // Appends what has come of the body; false at its end, or when `stop` is set.
  Result<bool> more(std::string& to) {
    for (;;) {
      if (chunked_) {
        TANDEM_ASSIGN(const bool moved, unchunk(to));
        if (moved) return true;
        if (last_chunk_) return false;
      } else if (length_left_ == 0) {
        return false;
      } else if (!raw_.empty()) {
        const std::size_t count = std::min(raw_.size(), length_left_.value_or(raw_.size()));
        to.append(raw_, 0, count);
        raw_.erase(0, count);
        if (length_left_) *length_left_ -= count;
        return true;
      }
      TANDEM_ASSIGN(const bool got, receive());
      if (got) continue;
      if (stop_ && *stop_) return false;
      if (chunked_ || length_left_) return fail(ErrorKind::Io, "the server closed the connection in mid-answer");
      return false;
    }
  }

 private:
  Result<void> send_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR && !(stop_ && *stop_)) continue;
      if (sent <= 0) return fail(ErrorKind::Io, fmt::format("sending: {}", std::strerror(errno)));
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
  }

  Result<bool> receive() {
    for (;;) {
      if (stop_ && *stop_) return false;
      pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
      const int ready = poll(&waiting, 1, 100);
      if (ready < 0 && errno != EINTR) return fail(ErrorKind::Io, fmt::format("waiting for the server: {}", std::strerror(errno)));
      if (ready <= 0) continue;
      char buffer[16384];
      const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail(ErrorKind::Io, fmt::format("receiving: {}", std::strerror(errno)));
      raw_.append(buffer, static_cast<std::size_t>(got));
      return got > 0;
    }
  }

  Result<void> read_head() {
    std::size_t end;
    while ((end = raw_.find("\r\n\r\n")) == std::string::npos) {
      TANDEM_ASSIGN(const bool got, receive());
      if (!got && stop_ && *stop_) return {};
      if (!got || raw_.size() > 65536) return fail(ErrorKind::Corrupt, "the server's answer is no HTTP");
    }
    std::string head = raw_.substr(0, end + 2);
    raw_.erase(0, end + 4);
    if (!head.starts_with("HTTP/1.") || head.size() < 12) return fail(ErrorKind::Corrupt, "the server's answer is no HTTP");
    std::from_chars(head.data() + 9, head.data() + 12, status_);
    std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::size_t coding = head.find("\r\ntransfer-encoding:");
    chunked_ = coding != std::string::npos && head.substr(coding, head.find("\r\n", coding + 2) - coding).find("chunked") != std::string::npos;
    constexpr std::string_view kLength = "\r\ncontent-length:";
    if (std::size_t at = head.find(kLength); at != std::string::npos && !chunked_) {
      at = head.find_first_not_of(" \t", at + kLength.size());
      std::size_t length = 0;
      const auto [stop, bad] = std::from_chars(head.data() + at, head.data() + head.size(), length);
      if (bad != std::errc()) return fail(ErrorKind::Corrupt, "the server's Content-Length is no number");
      length_left_ = length;
    }
    return {};
  }

  // Moves bytes of chunks from raw_ to `to`; false if there are none yet.
  Result<bool> unchunk(std::string& to) {
    bool moved = false;
    while (!last_chunk_) {
      if (chunk_left_ > 0) {
        const std::size_t count = std::min(chunk_left_, raw_.size());
        to.append(raw_, 0, count);
        raw_.erase(0, count);
        chunk_left_ -= count;
        moved |= count > 0;
        if (chunk_left_ > 0) break;
        chunk_open_ = true;
      }
      if (chunk_open_) {  // the line break behind a chunk
        if (raw_.size() < 2) break;
        raw_.erase(0, 2);
        chunk_open_ = false;
      }
      const std::size_t line = raw_.find("\r\n");
      if (line == std::string::npos) break;
      const auto [end, bad] = std::from_chars(raw_.data(), raw_.data() + line, chunk_left_, 16);
      if (bad != std::errc() || end == raw_.data()) return fail(ErrorKind::Corrupt, "the server's chunks are damaged");
      raw_.erase(0, line + 2);
      last_chunk_ = chunk_left_ == 0;
    }
    return moved;
  }

  const std::atomic<bool>* stop_;
  int socket_ = -1;
  int status_ = 0;
  bool chunked_ = false, last_chunk_ = false, chunk_open_ = false;
  std::size_t chunk_left_ = 0;
  std::optional<std::size_t> length_left_;  // of a body without chunks, if the server told
  std::string raw_;
};

Result<json::object> parse_object(std::string_view text) {
  boost::system::error_code bad;
  json::value value = json::parse(text, bad);
  if (bad || !value.is_object()) return fail(ErrorKind::Corrupt, fmt::format("the server sent no JSON object: {}", harmless(text.substr(0, 200))));
  return std::move(value.as_object());
}

std::string text_of(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::string error_message(int status, const std::string& body) {
  const auto object = parse_object(body);
  if (object) {
    const json::value* const error = object->if_contains("error");
    if (error && error->is_object()) return harmless(text_of(error->as_object(), "message"));
    if (error && error->is_string()) return harmless(std::string(error->as_string()));
  }
  return fmt::format("the server answered {}: {}", status, harmless(body.substr(0, 300)));
}

class HttpAnswerer final : public Answerer {
 public:
  HttpAnswerer(Address address, std::string model, std::string key)
      : address_(std::move(address)), model_(std::move(model)), key_(std::move(key)) {}

  Result<void> look() {
    Exchange exchange(nullptr);
    TANDEM_TRY(exchange.begin(address_, "GET", "/v1/models", key_, {}));
    std::string body;
    for (bool more = true; more;) {
      TANDEM_ASSIGN(more, exchange.more(body));
    }
    if (exchange.status() != 200) return fail(ErrorKind::Io, error_message(exchange.status(), body));
    TANDEM_ASSIGN(const json::object models, parse_object(body));
    const json::value* const data = models.if_contains("data");
    if (!model_.empty()) return {};
    if (!data || !data->is_array() || data->as_array().empty() || !data->as_array()[0].is_object())
      return fail(ErrorKind::Corrupt, "the server lists no models; name one with --model-name");
    model_ = text_of(data->as_array()[0].as_object(), "id");
    return {};
  }

  Result<Ending> answer(const json::array& messages, const Settings& settings, const Say& say, const std::atomic<bool>& stop) override {
    json::object body{{"model", model_}, {"messages", messages}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    for (const auto& [name, value] : settings.numbers) {
      if (setting_ranges().at(name).integer) body[name] = static_cast<std::int64_t>(value);
      else body[name] = value;
    }
    // Off is told too: there are templates that think unless they are told not to.
    body[kSwitches] = {{"enable_thinking", settings.thinking}};
    Result<Ending> ending = ask(body, say, stop);
    if (!ending && ending.error().field == kSwitches && !settings.thinking) {  // the model has no such switch
      body.erase(kSwitches);
      ending = ask(body, say, stop);
    }
    return ending;
  }

  std::string name() const override { return model_; }

 private:
  static constexpr std::string_view kSwitches = "chat_template_kwargs";

  // The error of a server that does not take the switches has their name as its field.
  Result<Ending> ask(const json::object& body, const Say& say, const std::atomic<bool>& stop) {
    Exchange exchange(&stop);
    TANDEM_TRY(exchange.begin(address_, "POST", "/v1/chat/completions", key_, json::serialize(body)));
    Ending ending;
    std::string received;
    for (bool more = true, done = false; more && !done;) {
      TANDEM_ASSIGN(more, exchange.more(received));
      if (stop) return Ending{.reason = "interrupted"};
      if (exchange.status() != 200) continue;
      std::size_t at = 0;
      for (std::size_t end; !done && (end = received.find('\n', at)) != std::string::npos; at = end + 1) {
        std::string_view line = std::string_view(received).substr(at, end - at);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.starts_with("data:")) continue;
        line.remove_prefix(5);
        if (line.starts_with(' ')) line.remove_prefix(1);
        done = line == "[DONE]";
        if (!done) TANDEM_TRY(take(line, say, ending));
      }
      received.erase(0, at);
    }
    if (exchange.status() != 200) {
      const bool switches = received.find(kSwitches) != std::string::npos || received.find("enable_thinking") != std::string::npos;
      return fail(ErrorKind::Invalid, error_message(exchange.status(), received), switches ? std::string(kSwitches) : "");
    }
    if (ending.reason.empty()) return fail(ErrorKind::Corrupt, "the answer was cut off");
    return ending;
  }

  static Result<void> take(std::string_view data, const Say& say, Ending& ending) {
    TANDEM_ASSIGN(const json::object event, parse_object(data));
    if (event.contains("error")) return fail(ErrorKind::Io, error_message(200, std::string(data)));
    if (const json::value* usage = event.if_contains("usage"); usage && usage->is_object()) {
      const auto count = [usage](const char* name) {
        const json::value* const value = usage->as_object().if_contains(name);
        return value && value->is_int64() ? static_cast<int>(value->as_int64()) : 0;
      };
      ending.prompt_tokens = count("prompt_tokens");
      ending.completion_tokens = count("completion_tokens");
    }
    const json::value* const choices = event.if_contains("choices");
    if (!choices || !choices->is_array() || choices->as_array().empty() || !choices->as_array()[0].is_object()) return {};
    const json::object& choice = choices->as_array()[0].as_object();
    if (const json::value* delta = choice.if_contains("delta"); delta && delta->is_object()) {
      const std::string thought = text_of(delta->as_object(), "reasoning_content"), text = text_of(delta->as_object(), "content");
      if (!thought.empty() || !text.empty()) say(thought, text);
    }
    if (std::string reason = text_of(choice, "finish_reason"); !reason.empty()) ending.reason = std::move(reason);
    return {};
  }

  Address address_;
  std::string model_, key_;
};

}  // namespace

Result<std::unique_ptr<Answerer>> make_http_answerer(const std::string& url, const std::string& model, const std::string& key) {
  TANDEM_ASSIGN(Address address, parse_url(url));
  auto made = std::make_unique<HttpAnswerer>(std::move(address), model, key);
  TANDEM_TRY(made->look());
  return made;
}

}  // namespace tandem::cli::chat
