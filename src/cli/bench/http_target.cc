#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "base/json_writer.h"
#include "cli/bench/target.h"

namespace tandem::cli::bench {
namespace {

// One blocking TCP connection, closed at the end of its scope.
class Connection {
 public:
  ~Connection() {
    if (socket_ >= 0) close(socket_);
  }
  Result<void> open(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int status = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); status != 0)
      return fail(ErrorKind::Io, fmt::format("[url] {}:{}: {}", host, port, gai_strerror(status)));
    for (const addrinfo* at = found; at && socket_ < 0; at = at->ai_next) {
      socket_ = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
      if (socket_ >= 0 && connect(socket_, at->ai_addr, at->ai_addrlen) != 0) {
        close(socket_);
        socket_ = -1;
      }
    }
    freeaddrinfo(found);
    if (socket_ < 0) return fail(ErrorKind::Io, fmt::format("[url] cannot connect to {}:{}: {}", host, port, std::strerror(errno)));
    return {};
  }
  Result<void> send_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return fail(ErrorKind::Io, fmt::format("sending: {}", std::strerror(errno)));
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
  }
  // Appends what has come; false at the end.
  Result<bool> receive(std::string& to) {
    char buffer[16384];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got < 0) return fail(ErrorKind::Io, fmt::format("receiving: {}", std::strerror(errno)));
    to.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }

 private:
  int socket_ = -1;
};

class HttpTarget final : public Target {
 public:
  HttpTarget(std::string host, std::string port, std::string model)
      : host_(std::move(host)), port_(std::move(port)), model_(std::move(model)) {}

  Result<Timeline> run(const BenchRequest& request) override {
    JsonWriter body;
    body.begin_object().member("model", model_).member("max_tokens", request.output_tokens).member("temperature", 0);
    body.member("ignore_eos", true).member("stream", true).key("stream_options").begin_object().member("include_usage", true).end_object();
    body.key("prompt").begin_array();
    for (const TokenId id : request.prompt) body.number(id);
    body.end_array().end_object();
    const std::string text = body.take();

    Connection connection;
    Timeline timeline{.sent = std::chrono::steady_clock::now(), .tokens = {}, .prompt_tokens = static_cast<int>(request.prompt.size())};
    TANDEM_TRY(connection.open(host_, port_));
    TANDEM_TRY(connection.send_all(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
                                               "Content-Length: {}\r\nConnection: close\r\n\r\n",
                                               host_, port_, text.size())));
    TANDEM_TRY(connection.send_all(text));
    // Events are lines that begin with "data: "; the framing of chunks lies between them and does not matter.
    std::string received;
    std::int64_t completion_tokens = -1;
    bool more = true;
    while (more) {
      TANDEM_ASSIGN(more, connection.receive(received));
      const Time now = std::chrono::steady_clock::now();
      if (received.starts_with("HTTP/1.") && received.find("\r\n\r\n") != std::string::npos && received.find(" 200 ") > 12)
        return fail(ErrorKind::Invalid, fmt::format("the server answered {}", received.substr(0, 600)));
      std::size_t at = 0;
      for (std::size_t end; (end = received.find("\n\n", at)) != std::string::npos; at = end + 2) {
        const std::size_t data = received.find("data: ", at);
        if (data >= end) continue;
        const std::string_view event = std::string_view(received).substr(data + 6, end - data - 6);
        if (event == "[DONE]") continue;
        boost::system::error_code bad;
        const boost::json::value json = boost::json::parse(event, bad);
        if (bad || !json.is_object() || json.as_object().contains("error"))
          return fail(ErrorKind::Corrupt, fmt::format("the server sent {}", event.substr(0, 300)));
        const boost::json::object& object = json.as_object();
        if (object.contains("usage") && object.at("usage").is_object())
          completion_tokens = object.at("usage").at("completion_tokens").to_number<std::int64_t>();
        if (object.contains("choices") && !object.at("choices").as_array().empty()) timeline.tokens.push_back(now);
      }
      received.erase(0, at);
    }
    if (completion_tokens != request.output_tokens)
      return fail(ErrorKind::Corrupt, fmt::format("{} tokens came for {} asked for", completion_tokens, request.output_tokens));
    // Some servers send several tokens in an event, or none; times then stand for the events.
    timeline.tokens.resize(static_cast<std::size_t>(request.output_tokens), timeline.tokens.empty() ? timeline.sent : timeline.tokens.back());
    return timeline;
  }

 private:
  std::string host_, port_, model_;
};

}  // namespace

Result<std::unique_ptr<Target>> make_http_target(const std::string& url, const std::string& model) {
  constexpr std::string_view kScheme = "http://";
  std::string rest = url.starts_with(kScheme) ? url.substr(kScheme.size()) : "";
  rest = rest.substr(0, rest.find('/'));
  const std::size_t colon = rest.rfind(':');
  const std::string host = rest.substr(0, colon), port = colon == std::string::npos ? "80" : rest.substr(colon + 1);
  if (host.empty() || port.empty())
    return fail(ErrorKind::Invalid, fmt::format("[url] '{}' is not http://HOST[:PORT]", url), "url");
  return std::make_unique<HttpTarget>(host, port, model);
}

}  // namespace tandem::cli::bench
