#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/http_message.h"

namespace tandem::server {

// An answer that is not there yet, or comes in parts. The connection takes what there is, writes it,
// and takes again when it is woken; a slow reader therefore gets larger parts, not more of them.
//
// Thread: `take`, `close` and `abort` are called by the connection, one at a time; the waker is called
// from any thread. Ownership: shared by the connection and whoever produces.
class ResponseStream {
 public:
  struct Part {
    std::optional<Response> head;  // first of all parts that carry something
    std::string bytes;             // of a streamed body
    bool end = false;              // nothing follows
    TimePoint since{};             // when the oldest of it was produced
  };

  virtual ~ResponseStream() = default;

  // Called once, before the first take. `wake` must be cheap, must not call back, and is called at
  // least once after something new is there, never after `close`.
  virtual void on_ready(std::function<void()> wake) = 0;

  // What is new; an empty part if nothing is.
  [[nodiscard]] virtual Part take() = 0;

  // The reader fell too far behind: the connection is to be cut, nothing more is to be written.
  [[nodiscard]] virtual bool overflowed() const = 0;

  // The client has gone: nothing more will be taken, and the work behind the answer ends.
  virtual void close() = 0;

  // The server ends the answer: an error response, or an error event if the head is out.
  virtual void abort(Error error) = 0;
};

// What a handler gives back: a whole response, or a stream that will produce one.
struct Answer {
  Response response;
  std::shared_ptr<ResponseStream> stream;  // if set, `response` is unused
};

}  // namespace tandem::server
