#pragma once

#include <boost/json.hpp>
#include <string>

#include "base/result.h"
#include "cli/chat/answerer.h"
#include "cli/chat/terminal.h"

namespace tandem::cli::chat {

// One conversation at a terminal: messages and /commands in, answers out. Thread: one.
class Session {
 public:
  // Both outlive the session. `system` may be empty.
  Session(Answerer& answerer, Terminal& terminal, std::string system, Settings settings)
      : answerer_(answerer), terminal_(terminal), system_(std::move(system)), settings_(std::move(settings)) {}

  // Until /quit or the end of the input. The status: 0, or 1 if the input was no terminal and an answer failed.
  [[nodiscard]] int run();

 private:
  // False: the session ends.
  bool command(const std::string& line);
  void help() const;
  void change_setting(const std::string& rest);
  void show_settings() const;
  // Without a new answer the conversation stays as it was.
  void retry();
  Result<void> save(const std::string& file) const;
  Result<void> load(const std::string& file);
  // Adds the answer to the last message. False: there is none, or only the begin of one that an error cut off.
  bool ask();
  // What is told behind an answer whose first piece came `seconds` ago.
  void tell_ending(const Ending& ending, double seconds) const;
  // Of the program, not of the model. What others put into `said` cannot control the terminal.
  void tell(const std::string& said) const;
  void refuse(const std::string& said);

  Answerer& answerer_;
  Terminal& terminal_;
  std::string system_;
  Settings settings_;
  boost::json::array messages_;  // without the system message
  bool failed_ = false;
};

}  // namespace tandem::cli::chat
