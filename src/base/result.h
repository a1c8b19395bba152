#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tandem {

// What kind of thing went wrong. Callers branch on the kind; people read the message.
enum class ErrorKind {
  Invalid,      // the caller's input: bad value, bad shape, bad file. HTTP 400
  Unsupported,  // well-formed, but nothing here can do it. HTTP 400
  NotFound,     // a named thing does not exist. HTTP 404
  Capacity,     // does not fit now (waits) or can never fit (refused). HTTP 400 or 503
  Overloaded,   // a queue is full; try again. HTTP 503 with Retry-After
  Duplicate,    // an id that is already in use: a bug of the caller
  NotHeld,      // an id that nobody holds: divergence, fatal for the replica
  Corrupt,      // books that do not balance, a file that contradicts itself
  Protocol,     // a rank broke rules R1 to R3: fatal for the replica
  Device,       // the device or its library failed: fatal for the replica
  Io,           // the operating system said no; the message has errno's text
  Deadline,     // a wait ended without an answer (R3.2)
  Poisoned,     // an earlier failure ended the replica; its reason is repeated (R3.1)
  Cancelled,    // the client went away or asked for it
};

[[nodiscard]] std::string_view name(ErrorKind kind);

// An error says who, what came and what would work:
//   "[tp] linear_num_key_heads = 16 does not divide over 3 ranks; this model runs on 1, 2, 4 or 8"
struct Error {
  ErrorKind kind = ErrorKind::Invalid;
  std::string message;
  std::string field = {};  // the request field or flag it is about, if one is to blame
};

template <class T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorKind kind, std::string message, std::string field = {}) {
  return tl::unexpected<Error>(Error{kind, std::move(message), std::move(field)});
}
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace tandem

// Returns the error of `expression` (a Result) from the enclosing function; its value is dropped.
#define TANDEM_TRY(expression)                                                           \
  do {                                                                                   \
    if (auto tandem_result_ = (expression); !tandem_result_)                             \
      return ::tandem::fail(std::move(tandem_result_.error()));                          \
  } while (false)

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

// TANDEM_ASSIGN(auto x, make_x()): x is the value, or the enclosing function returns the error.
#define TANDEM_ASSIGN(declaration, expression)                                           \
  auto TANDEM_CONCAT(tandem_result_, __LINE__) = (expression);                           \
  if (!TANDEM_CONCAT(tandem_result_, __LINE__))                                          \
    return ::tandem::fail(std::move(TANDEM_CONCAT(tandem_result_, __LINE__).error()));   \
  declaration = std::move(*TANDEM_CONCAT(tandem_result_, __LINE__))
