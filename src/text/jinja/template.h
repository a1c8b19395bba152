#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace tandem::text::jinja {

struct TemplateTree;

// What a rendering can see: named values. Later ones win.
using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderOptions {
  Limits limits;
  // What strftime_now formats; the wall clock's local time if empty.
  std::function<std::tm()> now;
};

// A template in the Jinja language as Hugging Face renders chat templates: sandboxed and immutable
// values, trim_blocks and lstrip_blocks, break and continue, {% generation %} as its body, tojson without
// HTML escaping, raise_exception, strftime_now. Not there, and refused by name when read: inheritance and
// imports, recursive for, autoescape, and the filters that make HTML.
//
// Thread: any; a parsed template is immutable and may be rendered by many threads at once.
// Lifetime: copies share the tree. A rendering needs at most about 1 MiB of stack at the default Limits.
class Template {
 public:
  // Error: Invalid, "line 3, column 14: ..."
  [[nodiscard]] static Result<Template> parse(std::string_view source);

  // Whether the template asks its caller for a variable of that name (it may be one of the built-in
  // functions, if nobody passes it).
  [[nodiscard]] bool reads(std::string_view name) const;

  // Errors, all Invalid: the text given to raise_exception, as it is; everything else as
  // "line 3, column 14: ...". The output is UTF-8 if the variables are.
  [[nodiscard]] Result<std::string> render(const Variables& variables,
                                           const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const TemplateTree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const TemplateTree> tree_;
};

}  // namespace tandem::text::jinja
