#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem::server {

// Every limit of the HTTP side in one place. Read once by Server::start, constant afterwards.
struct ServerOptions {
  std::string host = "127.0.0.1";  // name or address to bind
  std::uint16_t port = 8000;       // 0: the system chooses; Server::port() tells
  int io_threads = 2;              // parse small bodies, write events
  int text_threads = 2;            // parse, render and tokenize the bodies above `inline_body_bytes`
  int max_connections = 8192;      // one more is answered 503 and closed

  std::size_t max_header_bytes = 16 << 10;         // 431
  std::size_t max_body_bytes = 16 << 20;           // 413, before it is read
  std::size_t max_body_bytes_total = 256 << 20;    // of all bodies being read or worked on: 503
  std::size_t inline_body_bytes = 16 << 10;        // larger bodies go to the text threads
  std::chrono::milliseconds header_limit{10'000};  // first byte to end of header: 408
  std::chrono::milliseconds body_limit{60'000};    // end of header to end of body: 408
  std::chrono::milliseconds idle_limit{75'000};    // between requests of one connection: closed

  // A reader further behind than either is cut off and its request cancelled.
  std::size_t behind_bytes = 4 << 20;
  std::chrono::milliseconds behind_limit{60'000};

  std::chrono::milliseconds drain_limit{60'000};  // then the requests still open end with an error
  std::chrono::milliseconds failed_linger{4'000};  // 503 answers after a fatal failure, then the end (R3.5)

  int max_choices = 16;          // `n`
  bool handle_signals = true;    // SIGTERM and SIGINT drain, the second one stops
};

}  // namespace tandem::server
