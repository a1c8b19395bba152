#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tandem::server {

// An address that this process holds and does not listen on yet: a start that loads for minutes learns at once
// that its port is taken, and until somebody listens connections are refused instead of left waiting.
//
// Thread: one. Owns the socket until `release`.
class BoundPort {
 public:
  // The first address that `host` means; port 0 lets the system choose.
  // Error: Io, with host, port and the system's reason.
  [[nodiscard]] static Result<BoundPort> bind(const std::string& host, std::uint16_t port);
  // Whether `host` means an address, without taking it. Errors as above.
  [[nodiscard]] static Result<void> check(const std::string& host, std::uint16_t port);

  BoundPort(BoundPort&& other) noexcept;
  BoundPort& operator=(BoundPort&&) = delete;
  ~BoundPort();

  [[nodiscard]] std::uint16_t port() const { return port_; }  // the real one
  [[nodiscard]] bool ipv6() const { return ipv6_; }
  // The socket, which is the caller's from now on.
  [[nodiscard]] int release();

 private:
  BoundPort(int socket, std::uint16_t port, bool ipv6) : socket_(socket), port_(port), ipv6_(ipv6) {}

  int socket_;  // -1: released
  std::uint16_t port_;
  bool ipv6_;
};

// As an URL has it: http://127.0.0.1:8000, http://[::1]:8000.
[[nodiscard]] std::string url_of(const std::string& host, std::uint16_t port);

}  // namespace tandem::server
