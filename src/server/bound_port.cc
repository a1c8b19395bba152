#include "server/bound_port.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace tandem::server {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

auto refuse(const std::string& host, std::uint16_t port, const char* why) {
  return fail(ErrorKind::Io, fmt::format("[http] cannot listen on {} port {}: {}", host, port, why), "--port");
}

Result<Addresses> resolve(const std::string& host, std::uint16_t port) {
  // An empty name would mean every address of the machine.
  if (host.empty()) return fail(ErrorKind::Invalid, "[host] '' is no address; 127.0.0.1, 0.0.0.0, :: or a name of this machine works", "--host");
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) return refuse(host, port, status == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(status));
  return Addresses(found, freeaddrinfo);
}

}  // namespace

Result<BoundPort> BoundPort::bind(const std::string& host, std::uint16_t port) {
  TANDEM_ASSIGN(const Addresses addresses, resolve(host, port));
  const addrinfo& first = *addresses;
  BoundPort made(::socket(first.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), port, first.ai_family == AF_INET6);
  // What a process that ended left in TIME_WAIT does not keep the next one from its port.
  const int on = 1;
  if (made.socket_ < 0 || setsockopt(made.socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(made.socket_, first.ai_addr, first.ai_addrlen) != 0) {
    return refuse(host, port, std::strerror(errno));
  }
  sockaddr_storage real{};
  socklen_t size = sizeof real;
  if (getsockname(made.socket_, reinterpret_cast<sockaddr*>(&real), &size) != 0) return refuse(host, port, std::strerror(errno));
  made.port_ = ntohs(made.ipv6_ ? reinterpret_cast<const sockaddr_in6&>(real).sin6_port : reinterpret_cast<const sockaddr_in&>(real).sin_port);
  return made;
}

Result<void> BoundPort::check(const std::string& host, std::uint16_t port) {
  TANDEM_TRY(resolve(host, port));
  return {};
}

BoundPort::BoundPort(BoundPort&& other) noexcept : socket_(other.release()), port_(other.port_), ipv6_(other.ipv6_) {}

BoundPort::~BoundPort() {
  if (socket_ >= 0) ::close(socket_);
}

int BoundPort::release() { return std::exchange(socket_, -1); }

std::string url_of(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port) : fmt::format("http://[{}]:{}", host, port);
}

}  // namespace tandem::server
