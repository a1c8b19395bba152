#include "executor/fault_flag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "rank/rank_model.h"

namespace tandem::executor {
namespace {

enum class Kind : std::uint8_t {
  Error,
  Exception,
  OutOfMemory,
  Hang,
  Silence,
  LostCommand,
  LateCommand,
  LostReply,
  LateReply,
  WrongReply,
  Nan,
};

constexpr std::array<std::string_view, 11> kKinds = {
    "error",        "exception",  "out-of-memory", "hang",        "silence", "lost-command",
    "late-command", "lost-reply", "late-reply",    "wrong-reply", "nan"};
constexpr std::array<std::string_view, 8> kCommands = {"Open",     "Load", "WarmUp",       "Measure",
                                                       "Allocate", "Ping", "DropRequests", "Shutdown"};
constexpr std::string_view kStep = "RunStep";
constexpr std::uint64_t kMostNumber = 1'000'000'000;

struct Fault {
  std::string spec;
  Kind kind = Kind::Error;
  int rank = 0;
  std::string_view command = kStep;
  std::uint64_t at = 1;  // the rank's how-manieth such command
  std::chrono::milliseconds delay{1000};

  // Each side counts the commands that it sees; they are the same ones.
  std::uint64_t delivered = 0;  // controller's thread
  std::uint64_t run = 0;        // rank's thread
  std::uint64_t number = 0;     // rank's thread: of the command that it fired at
};

void report(const Fault& fault, const rank::Command& command) {
  log_warn("[fault] fires: {} (command number {})", fault.spec, command.number);
}

bool at_delivery(Kind kind) { return kind == Kind::LostCommand; }

class ArmedFaults final : public rank::Faults {
 public:
  explicit ArmedFaults(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  Delivery deliver(RankId rank, const rank::Command& command) override {
    for (Fault& fault : faults_) {
      if (!at_delivery(fault.kind) || fault.rank != rank.value || name(command.body) != fault.command)
        continue;
      if (++fault.delivered != fault.at) continue;
      report(fault, command);
      return Delivery::Lost;
    }
    return Delivery::Normal;
  }

  Result<void> before(RankId rank, const rank::Command& command, rank::RankModel& model) override {
    for (Fault& fault : faults_) {
      if (at_delivery(fault.kind) || fault.rank != rank.value || name(command.body) != fault.command)
        continue;
      if (++fault.run != fault.at) continue;
      fault.number = command.number;
      report(fault, command);
      TANDEM_TRY(act(fault, command, model));
    }
    return {};
  }

  std::vector<rank::Reply> send(RankId rank, rank::Reply reply) override {
    for (Fault& fault : faults_) {
      if (fault.rank != rank.value || fault.number == 0 || fault.number > reply.number) continue;
      if (fault.kind == Kind::Silence) return {};
      if (fault.number != reply.number) continue;
      if (fault.kind == Kind::LostReply) return {};
      if (fault.kind == Kind::LateReply) std::this_thread::sleep_for(fault.delay);
      if (fault.kind == Kind::WrongReply) reply.number += 1;
    }
    return Faults::send(rank, std::move(reply));
  }

 private:
  static Result<void> act(const Fault& fault, const rank::Command& command, rank::RankModel& model) {
    switch (fault.kind) {
      case Kind::Error:
        return fail(ErrorKind::Device, "a device error on purpose (--fault)");
      case Kind::Exception:
        throw std::runtime_error("on purpose (--fault)");
      case Kind::OutOfMemory:
        return fail(ErrorKind::Capacity, "no memory, on purpose (--fault)");
      case Kind::LateCommand:
        std::this_thread::sleep_for(fault.delay);
        return {};
      case Kind::Hang:
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      case Kind::Nan:
        if (const auto* step = std::get_if<rank::RunStepCommand>(&command.body)) {
          for (const rank::Row& row : step->step->rows)
            if (row.base_pos > 0) return model.spoil(row.request);
          log_warn("[fault] nothing to spoil: no request of this step has a state yet");
        }
        return {};
      default:
        return {};  // the replies' part
    }
  }

  std::vector<Fault> faults_;
};

Result<std::uint64_t> parse_number(std::string_view spec, std::string_view key, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value <= kMostNumber) return value;
  return fail(ErrorKind::Invalid, fmt::format("[fault] {} = {} in '{}'; 0 to {} works", key, text, spec, kMostNumber), "--fault");
}

Result<void> parse(Fault& fault, int world) {
  const std::string_view spec = fault.spec;
  const auto refuse = [&](std::string what) {
    return fail(ErrorKind::Invalid, fmt::format("[fault] '{}': {}", spec, what), "--fault");
  };
  bool has_kind = false, has_rank = false, has_place = false;
  std::set<std::string_view> seen;
  for (std::string_view rest = spec; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return refuse(fmt::format("{} is not name=value", item));
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    if (!seen.insert(key).second) return refuse(fmt::format("{} stands there twice", key));
    if (key == "kind") {
      const auto* const found = std::find(kKinds.begin(), kKinds.end(), value);
      if (found == kKinds.end())
        return refuse(fmt::format("kind = {}; {} work", value, fmt::join(kKinds, ", ")));
      fault.kind = static_cast<Kind>(found - kKinds.begin());
      has_kind = true;
    } else if (key == "rank") {
      TANDEM_ASSIGN(const std::uint64_t rank, parse_number(spec, key, value));
      if (rank >= static_cast<std::uint64_t>(world))
        return refuse(fmt::format("rank = {} of {} ranks; 0 to {} works", rank, world, world - 1));
      fault.rank = static_cast<int>(rank);
      has_rank = true;
    } else if (key == "step") {
      TANDEM_ASSIGN(fault.at, parse_number(spec, key, value));
      if (fault.at == 0) return refuse("steps count from 1");
      has_place = true;
    } else if (key == "command") {
      const auto* const found = std::find(kCommands.begin(), kCommands.end(), value);
      if (found == kCommands.end()) {
        return refuse(fmt::format("command = {}; {} work, or step = N", value, fmt::join(kCommands, ", ")));
      }
      fault.command = *found;
      has_place = true;
    } else if (key == "delay-ms") {
      TANDEM_ASSIGN(const std::uint64_t delay, parse_number(spec, key, value));
      fault.delay = std::chrono::milliseconds(delay);
    } else {
      return refuse(fmt::format("{} is unknown; kind, rank, step, command and delay-ms work", key));
    }
  }
  if (!has_kind || !has_rank || !has_place) return refuse("kind, rank, and step or command are needed");
  if (seen.contains("step") && seen.contains("command"))
    return refuse("step counts RunStep commands and command is one of the others; only one of them works");
  if (fault.kind == Kind::Nan && fault.command != kStep) return refuse("nan needs a step");
  return {};
}

}  // namespace

Result<std::shared_ptr<rank::Faults>> arm_faults(std::span<const std::string> specs, int world) {
  if (specs.empty()) return std::shared_ptr<rank::Faults>();
  std::vector<Fault> faults;
  for (const std::string& spec : specs) {
    Fault& fault = faults.emplace_back();
    fault.spec = spec;
    TANDEM_TRY(parse(fault, world));
    log_warn("[fault] armed: {}. This process will fail on purpose", spec);
  }
  return std::make_shared<ArmedFaults>(std::move(faults));
}

}  // namespace tandem::executor
