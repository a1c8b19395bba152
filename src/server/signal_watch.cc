#include "server/signal_watch.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <thread>
#include <utility>

namespace tandem::server {
namespace {

namespace asio = boost::asio;

class AsioSignalWatch final : public SignalWatch {
 public:
  explicit AsioSignalWatch(std::function<void(int)> on_signal)
      : on_signal_(std::move(on_signal)), signals_(io_, SIGINT, SIGTERM) {
    wait();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~AsioSignalWatch() override {
    io_.stop();
    thread_.join();
  }

 private:
  void wait() {
    signals_.async_wait([this](boost::system::error_code error, int number) {
      if (error) return;
      on_signal_(number);
      wait();
    });
  }

  const std::function<void(int)> on_signal_;
  asio::io_context io_;
  asio::signal_set signals_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SignalWatch> SignalWatch::start(std::function<void(int)> on_signal) {
  return std::make_unique<AsioSignalWatch>(std::move(on_signal));
}

}  // namespace tandem::server
