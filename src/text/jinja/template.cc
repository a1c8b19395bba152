#include "text/jinja/template.h"

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/scope.h"

namespace tandem::text::jinja {
namespace {

std::string placed(const Failure& failure, Position fallback) {
  const Position at = failure.at.line != 0 ? failure.at : fallback;
  return "line " + std::to_string(at.line) + ", column " + std::to_string(at.column) + ": " + failure.message;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  try {
    auto tree = std::make_shared<TemplateTree>(Parser(source).parse());
    resolve_scopes(*tree);
    return Template(std::move(tree));
  } catch (const Failure& failure) {
    return fail(ErrorKind::Invalid, placed(failure, {1, 1}));
  }
}

bool Template::reads(std::string_view name) const { return tree_->reads.contains(std::string(name)); }

Result<std::string> Template::render(const Variables& variables, const RenderOptions& options) const {
  const std::tm now = options.now ? options.now() : local_time();
  Context context(options.limits, now);
  try {
    for (const auto& [name, value] : variables) context.set(name, value);
    return Evaluator(context).render(*tree_);
  } catch (const Failure& failure) {
    if (failure.kind == Failure::Kind::Raised) return fail(ErrorKind::Invalid, failure.message);
    return fail(ErrorKind::Invalid, placed(failure, context.at));
  }
}

}  // namespace tandem::text::jinja
