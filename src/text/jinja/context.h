#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/meter.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {

// What one rendering may use and has used, and the variables that are not local. Operators, filters,
// tests and methods get it to pay for their work before they do it.
//
// Thread: the rendering's. Lifetime: one call of Template::render.
class Context {
 public:
  Context(const Limits& limits, const std::tm& now) : limits_(limits), now_(now), meter_(limits) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void step(std::uint64_t count = 1) { meter_.step(count); }
  // Before `bytes` of text or list are made. Work in proportion counts as steps too.
  void spend(std::size_t bytes) { meter_.spend(bytes); }
  // Before a list of `count` values is made.
  void spend_items(std::size_t count) {
    if (count > kTooMany) meter_.spend(kTooMany * sizeof(Value));
    meter_.spend(count * sizeof(Value));
  }
  [[nodiscard]] Value text(std::string made, bool markup = false) {
    spend(made.size());
    return Value::string(std::move(made), markup);
  }

  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] const std::tm& now() const { return now_; }

  // Variables: what the caller passed and what the top level has set, over the built-in functions.
  [[nodiscard]] Value resolve(const std::string& name) const;  // Missing if nobody defines it
  void set(const std::string& name, Value value) { variables_[name] = std::move(value); }

  // Namespaces can hold themselves; the context keeps all of them and empties them at its end.
  [[nodiscard]] std::shared_ptr<Namespace> make_namespace();

  Position at;              // of the node that is being evaluated
  std::uint32_t depth = 0;  // nested evaluations

 private:
  static constexpr std::size_t kTooMany = std::size_t{1} << 40;

  const Limits& limits_;
  const std::tm& now_;
  Meter meter_;
  std::unordered_map<std::string, Value> variables_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// The built-in global functions by name; nullptr if there is none.
[[nodiscard]] const Value* find_global(std::string_view name);

}  // namespace tandem::text::jinja
