#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/logger.h>

#include <memory>

namespace tandem {
namespace {

// Never destroyed: a rank thread that could not be joined may still log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("tandem", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%-5l%$ %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug: return spdlog::level::debug;
    case LogLevel::Info: return spdlog::level::info;
    case LogLevel::Warn: return spdlog::level::warn;
    case LogLevel::Error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view text) {
  logger().log(to_spdlog(level), "{}", fmt::string_view(text.data(), text.size()));
}

}  // namespace tandem
