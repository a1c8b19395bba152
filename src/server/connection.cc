// The one file that knows Beast: a unit with it takes half a minute to compile.
#include "server/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/http_message.h"

namespace tandem::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// Bytes of further requests read while an answer is pending, to notice when the client leaves.
constexpr std::size_t kReadAhead = 64 << 10;
constexpr milliseconds kLookInterval{250};

ApiError http_error(int status, std::string message, std::string code) {
  return {status, std::move(message), "invalid_request_error", "", std::move(code)};
}

// What a header may not say here. What is read behind a body of unknown coding would be taken for the next request.
std::optional<ApiError> refuse_head(const http::request_header<>& head) {
  const auto count = head.count(http::field::host);
  if (count > 1 || (count == 0 && head.version() >= 11)) {
    return http_error(400, fmt::format("A request has one Host header, this one has {}.", count), "bad_http");
  }
  const auto codings = head.equal_range(http::field::transfer_encoding);
  for (auto coding = codings.first; coding != codings.second; ++coding) {
    if (boost::beast::iequals(coding->value(), "chunked") && std::next(coding) == codings.second) continue;
    return http_error(501, fmt::format("Transfer-Encoding can only be chunked, got {}.", shown({coding->value().data(), coding->value().size()}, 60)),
                      "transfer_encoding");
  }
  const auto encoding = head[http::field::content_encoding];
  if (!encoding.empty() && !boost::beast::iequals(encoding, "identity")) {
    return http_error(415, fmt::format("Content-Encoding is {}; send the body as it is.", shown({encoding.data(), encoding.size()}, 60)),
                      "unsupported_media_type");
  }
  return std::nullopt;
}

// Everything runs on the connection's strand; `self` keeps it alive in each coroutine.
class BeastConnection final : public Connection, public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(tcp::socket socket, ConnectionHost& shared)
      : shared_(shared), socket_(std::move(socket)), deadline_(socket_.get_executor()), pause_(socket_.get_executor()), wake_(socket_.get_executor()) {
    wake_.expires_at(asio::steady_timer::time_point::max());
    shared_.metrics.connections(++shared_.connections);
  }
  ~BeastConnection() override {
    release_body();
    shared_.metrics.connections(--shared_.connections);
  }

  void start() override { asio::co_spawn(socket_.get_executor(), serve(shared_from_this()), asio::detached); }

  void close_if_idle() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->idle_) self->close();
    });
  }
  void abort_answer(Error error) override {
    asio::post(socket_.get_executor(), [self = shared_from_this(), error = std::move(error)] {
      if (self->stream_) self->stream_->abort(error);
    });
  }
  void shut() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  enum class Read { Ready, Answered, Closed };  // Answered: a refusal was written, the connection ends

  asio::awaitable<void> serve(std::shared_ptr<BeastConnection> /*self*/) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    while (!gone_) {
      if (!co_await wait_for_request()) break;
      busy(true);
      Request request;
      HeadForm form;
      const Read read = co_await read_request(request, form);
      if (read == Read::Ready) co_await answer(request, form);
      release_body();
      busy(false);
      if (read != Read::Ready || !form.keep_alive) break;
    }
    set_deadline_off();
    if (!gone_) co_await linger();
    close();
  }

  // Until the next request's first byte is there. False: the connection is over.
  asio::awaitable<bool> wait_for_request() {
    while (buffer_.size() == 0 || skip_empty_line()) {
      if (buffer_.size() > 0) continue;
      idle_ = true;
      set_deadline(shared_.options.idle_limit);
      const auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(4096), kAwait);
      idle_ = false;
      if (error) co_return false;
      buffer_.commit(bytes);
    }
    co_return true;
  }

  // Some clients end a body with a line break that is no part of it (RFC 9112, 2.2).
  bool skip_empty_line() {
    const std::string_view read(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (!read.starts_with("\r\n")) return false;
    buffer_.consume(2);
    return true;
  }

  asio::awaitable<Read> read_request(Request& request, HeadForm& form) {
    const ServerOptions& options = shared_.options;
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
    parser.body_limit(options.max_body_bytes);
    set_deadline(options.header_limit);
    error_code error;
    std::tie(error, std::ignore) = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
    if (error) co_return co_await refuse_read(error, "header", options.header_limit);

    const auto& message = parser.get();
    form.http10 = message.version() < 11;
    form.keep_alive = parser.keep_alive() && !shared_.draining;
    if (message.version() / 10 != 1) {
      co_return co_await refuse(http_error(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.", "http_version"));
    }
    if (auto refusal = refuse_head(message)) co_return co_await refuse(std::move(*refusal));
    const auto expect = message[http::field::expect];
    if (!expect.empty() && !parser.is_done()) {
      if (!boost::beast::iequals(expect, "100-continue")) {
        co_return co_await refuse(http_error(417, "Expect can only be 100-continue.", "expectation_failed"));
      }
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      if (!form.http10) co_await asio::async_write(socket_, asio::buffer(kContinue), kAwait);
    }
    // The whole length is reserved at once if it is told, else as the bytes come.
    if (const auto length = parser.content_length(); length && !reserve_body(*length)) co_return co_await refuse_budget();
    set_deadline(options.body_limit);
    while (!parser.is_done()) {
      std::tie(error, std::ignore) = co_await http::async_read_some(socket_, buffer_, parser, kAwait);
      if (error) co_return co_await refuse_read(error, "body", options.body_limit);
      if (!reserve_body(parser.get().body().size())) co_return co_await refuse_budget();
    }
    set_deadline_off();
    auto received = parser.release();
    request.method = std::string(received.method_string());
    request.target = origin_form({received.target().data(), received.target().size()});
    request.content_type = std::string(received[http::field::content_type]);
    request.body = std::move(received.body());
    co_return Read::Ready;
  }

  asio::awaitable<Read> refuse_read(error_code error, std::string_view what, milliseconds limit) {
    if (timed_out_) {
      timed_out_ = false;
      co_return co_await refuse(http_error(
          408, fmt::format("The request's {} did not arrive within {:g} s.", what, static_cast<double>(limit.count()) / 1000.0), "timeout"));
    }
    if (error == http::error::header_limit) {
      co_return co_await refuse(http_error(431, fmt::format("The header is larger than {} bytes.", shared_.options.max_header_bytes), "header_too_large"));
    }
    if (error == http::error::body_limit) {
      co_return co_await refuse(http_error(413, fmt::format("The body is larger than {} bytes.", shared_.options.max_body_bytes), "body_too_large"));
    }
    const bool malformed = error.category() == http::make_error_code(http::error::bad_method).category() &&
                           error != http::error::end_of_stream && error != http::error::partial_message;
    if (!malformed) co_return Read::Closed;  // the client left
    co_return co_await refuse(http_error(400, fmt::format("This is not HTTP as it should be: {}.", error.message()), "bad_http"));
  }

  asio::awaitable<Read> refuse_budget() {
    // A named object: g++ 12 destroys a braced temporary in an awaited call twice.
    ApiError error{503, "Too many long requests at once; try again.", "server_error", "", "overloaded"};
    co_return co_await refuse(std::move(error));
  }

  // Writes an error and gives up the connection: what follows in it cannot be trusted to be a request.
  asio::awaitable<Read> refuse(ApiError error) {
    const Response response = error_response(error);
    shared_.metrics.http_answer("unread", response.status);
    std::string out = head_text(response, {.http10 = false, .keep_alive = false}) + response.body;
    co_await write(std::move(out));
    co_return Read::Answered;
  }

  asio::awaitable<void> answer(Request& request, HeadForm& form) {
    const bool head_only = request.method == "HEAD";
    Answer answer;
    if (request.body.size() <= shared_.options.inline_body_bytes) {
      answer = shared_.handle(request);
    } else {
      start_watch();
      asio::post(shared_.text_pool, [&, self = shared_from_this()] {
        Answer made = self->shared_.handle(request);
        asio::post(self->socket_.get_executor(), [self, &answer, made = std::move(made)]() mutable {
          answer = std::move(made);
          self->handled_ = true;
          self->wake_.cancel();
        });
      });
      while (!handled_) co_await wake_.async_wait(kAwait);
      handled_ = false;
    }
    request.body = {};
    release_body();
    if (answer.stream) {
      co_await write_stream(std::move(answer.stream), form);
    } else if (!gone_) {
      co_await write_whole(answer.response, form, head_only);
    }
    co_await end_watch();
  }

  asio::awaitable<void> write_whole(const Response& response, HeadForm& form, bool head_only) {
    form.keep_alive = form.keep_alive && !shared_.draining;
    std::string out = head_text(response, form);
    if (!head_only) out += response.body;
    co_await write(std::move(out));
  }

  asio::awaitable<void> write_stream(std::shared_ptr<ResponseStream> stream, HeadForm& form) {
    shared_.metrics.open_answers(++shared_.open_answers);
    stream_ = std::move(stream);
    stream_->on_ready([weak = weak_from_this(), executor = socket_.get_executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->woken();
      });
    });
    start_watch();
    bool chunked = false;
    while (!gone_) {
      ResponseStream::Part part = stream_->take();
      if (!part.head && part.bytes.empty() && !part.end) {
        if (stream_->overflowed()) break;
        if (!std::exchange(woken_, false)) co_await wake_.async_wait(kAwait);
        continue;
      }
      std::string out;
      if (part.head) {
        chunked = part.head->streamed && !form.http10;
        form.keep_alive = form.keep_alive && !shared_.draining && (!part.head->streamed || chunked);
        out = head_text(*part.head, form) + part.head->body;
      }
      if (chunked) {
        append_chunk(out, part.bytes);
        if (part.end) append_last_chunk(out);
      } else {
        out += part.bytes;
      }
      set_deadline_at(part.since + shared_.options.behind_limit);
      co_await write(std::move(out), /*deadline_set=*/true);
      if (part.end) break;
    }
    if (gone_ || stream_->overflowed()) {
      // Nothing more can be said here, and a chunked body without its end mark says that it is cut.
      gone_ = true;
      form.keep_alive = false;
    }
    stream_->close();
    stream_.reset();
    shared_.metrics.open_answers(--shared_.open_answers);
  }

  void woken() {
    woken_ = true;
    wake_.cancel();
    // A write that the reader does not take must not outlive the overflow.
    if (stream_ && stream_->overflowed()) leave();
  }

  asio::awaitable<void> write(std::string bytes, bool deadline_set = false) {
    if (!deadline_set) set_deadline(shared_.options.behind_limit);
    const auto [error, written] = co_await asio::async_write(socket_, asio::buffer(bytes), kAwait);
    set_deadline_off();
    if (error) leave();
  }

  // While an answer is pending, a read tells when the client goes. What it sends meanwhile is its
  // next request, and is kept.
  void start_watch() {
    if (watching_) return;
    watching_ = true;
    stop_watch_ = false;
    asio::co_spawn(socket_.get_executor(), watch(shared_from_this()), asio::detached);
  }

  asio::awaitable<void> watch(std::shared_ptr<BeastConnection> /*self*/) {
    while (!stop_watch_) {
      if (buffer_.size() >= kReadAhead) {
        // No more is kept. Whether the client has gone is asked without reading.
        pause_.expires_after(kLookInterval);
        co_await pause_.async_wait(kAwait);
        pollfd gone{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
        if (!stop_watch_ && ::poll(&gone, 1, 0) > 0) {
          leave();
          break;
        }
        continue;
      }
      const auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(4096), kAwait);
      buffer_.commit(bytes);
      if (error && !stop_watch_) {
        leave();
        break;
      }
      if (error) break;
    }
    watching_ = false;
    wake_.cancel();
  }

  asio::awaitable<void> end_watch() {
    if (!watching_) co_return;
    stop_watch_ = true;
    error_code ignored;
    socket_.cancel(ignored);
    pause_.cancel();
    while (watching_) co_await wake_.async_wait(kAwait);
  }

  // The client has left, or is cut off: what it has not read is dropped. Closing, not cancelling: a
  // composed write is between two system calls at times, and would go on after a cancel.
  void leave() {
    if (gone_) return;
    gone_ = true;
    if (stream_) stream_->close();
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
    wake_.cancel();
  }

  // Takes in what the client still sends after a last answer, for a short time: closing
  // with unread bytes would reset the connection and could destroy the answer on its way.
  asio::awaitable<void> linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    set_deadline(milliseconds(2000));
    std::vector<char> sink(16 << 10);
    std::size_t total = 0;
    while (total < (256u << 20)) {
      const auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(sink), kAwait);
      if (error) break;
      total += bytes;
    }
    set_deadline_off();
  }

  void close() {
    gone_ = true;
    if (stream_) stream_->close();
    error_code ignored;
    socket_.close(ignored);
    wake_.cancel();
  }

  void set_deadline(milliseconds from_now) { set_deadline_at(std::chrono::steady_clock::now() + from_now); }
  void set_deadline_at(std::chrono::steady_clock::time_point when) { arm_deadline(when, ++deadline_number_); }
  void arm_deadline(std::chrono::steady_clock::time_point when, std::uint64_t number) {
    deadline_.expires_at(when);
    deadline_.async_wait([self = shared_from_this(), number](error_code error) {
      if (error || number != self->deadline_number_) return;
      self->timed_out_ = true;
      if (self->stream_) return self->leave();
      // An answer may still be given, so the socket stays open. Until the operation has noticed: between
      // two of its system calls there is nothing to cancel.
      error_code ignored;
      self->socket_.cancel(ignored);
      self->arm_deadline(std::chrono::steady_clock::now() + milliseconds(10), number);
    });
  }
  void set_deadline_off() {
    ++deadline_number_;
    deadline_.cancel();
  }

  bool reserve_body(std::size_t bytes) {
    if (bytes <= reserved_) return true;
    if (!shared_.budget.take(bytes - reserved_)) return false;
    reserved_ = bytes;
    return true;
  }
  void release_body() { shared_.budget.give(std::exchange(reserved_, 0)); }

  void busy(bool now) { shared_.busy += now ? 1 : -1; }

  ConnectionHost& shared_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  asio::steady_timer pause_;  // between two looks at a client whose read-ahead is full
  asio::steady_timer wake_;  // never expires; cancelled to wake the coroutine that waits on it
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<ResponseStream> stream_;
  std::size_t reserved_ = 0;
  std::uint64_t deadline_number_ = 0;
  bool timed_out_ = false;
  bool idle_ = false;
  bool gone_ = false;
  bool handled_ = false;
  bool woken_ = false;
  bool watching_ = false;
  bool stop_watch_ = false;
};

}  // namespace

std::shared_ptr<Connection> Connection::make(tcp::socket socket, ConnectionHost& host) {
  return std::make_shared<BeastConnection>(std::move(socket), host);
}

}  // namespace tandem::server
