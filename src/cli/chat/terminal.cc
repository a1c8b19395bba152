#include "cli/chat/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "text/utf8.h"

namespace tandem::cli::chat {

std::atomic<bool> g_interrupted = false;

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = true; };
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART: a blocking read returns
  sigset_t resized;
  sigemptyset(&resized);
  sigaddset(&resized, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &resized, nullptr);
}

namespace {

// Only one RawMode lives at a time; what a signal's handler must put back stands here.
termios g_before, g_now;
volatile std::sig_atomic_t g_resized = 0, g_continued = 0;
constexpr int kDeadly[] = {SIGTERM, SIGHUP, SIGQUIT};
constexpr std::string_view kMarkPastes = "\x1b[?2004h", kMarkNoPastes = "\x1b[?2004l";

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The handlers call only what a handler may.

// Leaves the shell its terminal, then lets the signal do what it does.
void restore_and_die(int signal_number) {
  tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
  put(kMarkNoPastes);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void restore_and_stop(int);
void catch_stop() {
  struct sigaction action {};
  action.sa_handler = restore_and_stop;
  action.sa_flags = SA_RESTART | SA_NODEFER;
  sigaction(SIGTSTP, &action, nullptr);
}
// Until the shell's `fg`.
void restore_and_stop(int) {
  const int error = errno;
  tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
  put(kMarkNoPastes);
  signal(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  catch_stop();
  tcsetattr(STDIN_FILENO, TCSANOW, &g_now);
  put(kMarkPastes);
  g_continued = 1;
  errno = error;
}

}  // namespace

// Keys come one by one and unechoed, and pasted text marked, while it lives; also if the process is killed
// or stopped the terminal is as it was.
class RawMode {
 public:
  RawMode() {
    tcgetattr(STDIN_FILENO, &g_before);
    for (std::size_t i = 0; i < std::size(kDeadly); ++i) {
      struct sigaction action {};
      action.sa_handler = restore_and_die;
      sigaction(kDeadly[i], nullptr, &actions_[i]);
      if (actions_[i].sa_handler == SIG_DFL) sigaction(kDeadly[i], &action, nullptr);  // nohup's stays ignored
    }
    sigaction(SIGTSTP, nullptr, &stop_action_);
    if (stop_action_.sa_handler == SIG_DFL) catch_stop();
    struct sigaction action {};
    action.sa_handler = [](int) { g_resized = 1; };
    sigaction(SIGWINCH, &action, &resize_action_);
    nobody_reads();
    put(kMarkPastes);
  }
  ~RawMode() {
    put(kMarkNoPastes);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &g_before);
    for (std::size_t i = 0; i < std::size(kDeadly); ++i) sigaction(kDeadly[i], &actions_[i], nullptr);
    sigaction(SIGTSTP, &stop_action_, nullptr);
    sigaction(SIGWINCH, &resize_action_, nullptr);
  }
  RawMode(const RawMode&) = delete;

  // Every key is the editor's.
  void editor_reads() { set(0, ISIG); }
  // Keys wait, also when Ctrl-C interrupts (NOFLSH).
  void nobody_reads() { set(NOFLSH, 0); }

 private:
  static void set(tcflag_t more, tcflag_t less) {
    g_now = g_before;
    g_now.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON | BRKINT | INPCK | ISTRIP);
    g_now.c_lflag &= ~(static_cast<tcflag_t>(ECHO | ICANON | IEXTEN) | less);
    g_now.c_lflag |= more;
    g_now.c_cc[VMIN] = 1;
    g_now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &g_now);
  }

  struct sigaction actions_[std::size(kDeadly)] = {}, stop_action_ = {}, resize_action_ = {};
};

namespace {

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  if (size.ws_col == 0) size.ws_col = 80;
  if (size.ws_row == 0) size.ws_row = 24;
  return size;
}

// Whether keys wait already, as when a long text was pasted: drawing can wait for the last of them.
bool keys_wait() {
  pollfd waiting{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) > 0;
}

constexpr int kEnd = -1;

}  // namespace

Terminal::Terminal() : interactive_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
  const char* const term = std::getenv("TERM");
  if (term && std::string_view(term) == "dumb") interactive_ = false;
  colours_ = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR") && interactive_;
  wraps_ = !std::getenv("XTERM_VERSION");  // xterm itself cuts rows off where others wrap them
  if (interactive_) mode_ = std::make_unique<RawMode>();
}

Terminal::~Terminal() = default;

std::optional<std::string> Terminal::read_message(const std::string& prompt) {
  g_interrupted = false;
  if (!interactive_) return read_plain();
  mode_->editor_reads();
  auto message = read_edited(prompt);
  mode_->nobody_reads();
  put("\r\n");
  if (message) history_.add(*message);
  return message;
}

std::optional<std::string> Terminal::read_plain() {
  std::string message;
  for (;;) {
    std::size_t end;
    while ((end = pending_.find('\n')) == std::string::npos) {
      char buffer[4096];
      const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
      if (got <= 0) {
        if (pending_.empty() && message.empty()) return std::nullopt;
        end = pending_.size();
        break;
      }
      pending_.append(buffer, static_cast<std::size_t>(got));
    }
    const bool last = end == pending_.size();
    std::string line = pending_.substr(0, end);
    pending_.erase(0, last ? end : end + 1);
    if (line.ends_with('\r')) line.pop_back();
    const bool goes_on = line.ends_with('\\') && !last;
    if (goes_on) line.back() = '\n';
    message += line;
    if (!goes_on) return text::to_utf8(message);
  }
}

bool Terminal::wait_for_key() {
  if (unread_) return true;
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  sigdelset(&mask, SIGWINCH);
  pollfd waiting{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready = ppoll(&waiting, 1, nullptr, &mask);
    if (g_resized || g_continued) {
      if (g_continued) begin_drawing();  // below what the shell has written
      g_resized = 0;
      g_continued = 0;
      return false;
    }
    if (ready > 0) return true;
  }
}

int Terminal::read_byte() {
  if (unread_) return *std::exchange(unread_, std::nullopt);
  unsigned char byte = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 1) return byte;
    if (got == 0 || errno != EINTR) return kEnd;
  }
}

std::string Terminal::read_character(int first) {
  std::string bytes(1, static_cast<char>(first));
  const int more = first > 0xF4 ? 0 : first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
  for (int i = 0; i < more; ++i) {
    const int byte = read_byte();
    if (byte == kEnd) break;
    if ((byte & 0xC0) != 0x80) {  // the next key
      unread_ = byte;
      break;
    }
    bytes.push_back(static_cast<char>(byte));
  }
  return text::to_utf8(bytes);
}

std::string Terminal::read_paste() {
  constexpr std::string_view kStop = "\x1b[201~";
  std::string bytes;
  while (!bytes.ends_with(kStop)) {
    const int byte = read_byte();
    if (byte == kEnd) return bytes;
    bytes.push_back(static_cast<char>(byte));
  }
  bytes.resize(bytes.size() - kStop.size());
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      text += '\n';
      if (i + 1 < bytes.size() && bytes[i + 1] == '\n') ++i;
    } else if (static_cast<unsigned char>(bytes[i]) >= 0x20 || bytes[i] == '\n' || bytes[i] == '\t') {
      text += bytes[i];
    }
  }
  return text::to_utf8(text);
}

std::string Terminal::read_escape() {
  pollfd waiting{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (!unread_ && poll(&waiting, 1, 50) <= 0) return {};  // the key itself
  int byte = read_byte();
  if (byte == '\r' || byte == '\n') return "\r";
  if (byte == 'b' || byte == 'f') return byte == 'b' ? "1;5D" : "1;5C";
  if (byte != '[' && byte != 'O') return {};
  std::string found;
  do {
    byte = read_byte();
    if (byte == kEnd) return {};
    found.push_back(static_cast<char>(byte));
  } while (byte < 0x40 || byte > 0x7E);
  return found;
}

void Terminal::draw(const std::string& prompt, Part part) {
  const winsize size = terminal_size();
  if (wraps_ && drawn_columns_ != 0 && size.ws_col != drawn_columns_) drawn_row_ = cursor_row_after_wrap(drawn_, top_, size.ws_col);
  Rows rows = lay_out(buffer_, prompt, size.ws_col);
  const std::size_t shown = part == Part::Whole ? rows.rows.size() : std::min<std::size_t>(rows.rows.size(), std::max(size.ws_row - 1, 1));
  top_ = first_shown(rows, shown, top_);
  std::string out = "\x1b[?25l\r";
  if (drawn_row_ > 0) out += "\x1b[" + std::to_string(drawn_row_) + "A";
  out += "\x1b[J";
  for (std::size_t i = top_; i < top_ + shown; ++i) {
    if (i > top_) out += "\r\n";
    if (i == 0 && colours_) out += "\x1b[1;32m" + prompt + "\x1b[0m" + rows.rows[0].substr(prompt.size());
    else out += rows.rows[i];
  }
  if (const std::size_t up = top_ + shown - 1 - rows.cursor_row; up > 0) out += "\x1b[" + std::to_string(up) + "A";
  out += "\r";
  if (rows.cursor_column > 0) out += "\x1b[" + std::to_string(rows.cursor_column) + "C";
  out += "\x1b[?25h";
  drawn_row_ = rows.cursor_row - top_;
  drawn_columns_ = size.ws_col;
  drawn_ = std::move(rows);
  put(out);
}

void Terminal::leaf(const std::string* entry) {
  if (entry) buffer_.set(*entry);
}

// What stands on the screen is no row of ours: the next drawing begins at the cursor.
void Terminal::begin_drawing() { drawn_row_ = drawn_columns_ = 0; }

std::optional<std::string> Terminal::read_edited(const std::string& prompt) {
  buffer_.set({});
  begin_drawing();
  top_ = 0;
  draw(prompt, Part::Window);
  for (;;) {
    if (!wait_for_key()) {
      draw(prompt, Part::Window);
      continue;
    }
    const int key = read_byte();
    switch (key) {
      case kEnd: return std::nullopt;
      case 0x04:  // Ctrl-D
        if (buffer_.text().empty()) return std::nullopt;
        buffer_.erase_after();
        break;
      case 0x03:  // Ctrl-C
        if (buffer_.text().empty()) put("\r\n(Ctrl-D or /quit ends)\r\n");
        buffer_.set({});
        if (drawn_row_ > 0) put("\r\x1b[" + std::to_string(drawn_row_) + "A\x1b[J");
        begin_drawing();
        break;
      case '\r':
        if (buffer_.text().ends_with('\\') && buffer_.cursor() == buffer_.text().size()) {
          buffer_.erase_before();
          buffer_.insert("\n");
          break;
        }
        while (buffer_.down()) {}
        buffer_.line_end();
        draw(prompt, Part::Whole);
        return buffer_.text();
      case '\n': buffer_.insert("\n"); break;
      case 0x01: buffer_.line_begin(); break;
      case 0x02: buffer_.left(); break;
      case 0x05: buffer_.line_end(); break;
      case 0x06: buffer_.right(); break;
      case 0x08:
      case 0x7F: buffer_.erase_before(); break;
      case 0x0B: buffer_.erase_to_line_end(); break;
      case 0x0C:
        put("\x1b[H\x1b[2J");
        begin_drawing();
        break;
      case 0x15: buffer_.erase_to_line_begin(); break;
      case 0x1A:  // Ctrl-Z
        put("\r\n");
        raise(SIGTSTP);
        g_continued = 0;  // it is drawn at once
        begin_drawing();
        break;
      case 0x17: buffer_.erase_word_before(); break;
      case 0x10: leaf(history_.older(buffer_.text())); break;
      case 0x0E: leaf(history_.newer()); break;
      case 0x1B: {
        const std::string escape = read_escape();
        if (escape == "\r") buffer_.insert("\n");
        else if (escape == "200~") buffer_.insert(read_paste());
        else if (escape == "A") { if (!buffer_.up()) leaf(history_.older(buffer_.text())); }
        else if (escape == "B") { if (!buffer_.down()) leaf(history_.newer()); }
        else if (escape == "C") buffer_.right();
        else if (escape == "D") buffer_.left();
        else if (escape == "1;5C" || escape == "1;3C") buffer_.word_right();
        else if (escape == "1;5D" || escape == "1;3D") buffer_.word_left();
        else if (escape == "H" || escape == "1~" || escape == "7~") buffer_.line_begin();
        else if (escape == "F" || escape == "4~" || escape == "8~") buffer_.line_end();
        else if (escape == "3~") buffer_.erase_after();
        break;
      }
      case '\t': buffer_.insert("\t"); break;
      default:
        if (key >= 0x20) buffer_.insert(read_character(key));
    }
    if (!unread_ && !keys_wait()) draw(prompt, Part::Window);
  }
}

}  // namespace tandem::cli::chat
