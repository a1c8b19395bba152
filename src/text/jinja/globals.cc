// The functions every template can call.

#include <limits>

#include "text/jinja/operations.h"
#include "text/jinja/registry.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100000;  // Jinja's sandbox bound

Value range(Context&, Arguments& given) {
  if (!given.named.empty()) fail_runtime("range() takes no keyword arguments");
  if (given.positional.empty() || given.positional.size() > 3)
    fail_runtime("range expected 1 to 3 arguments");
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < given.positional.size(); ++i) {
    const Value& v = given.positional[i];
    if (v.is_undefined()) fail_runtime(v.why_undefined());
    if (!v.is_integer() && !v.is(Kind::BigInt))
      fail_runtime("'" + std::string(type_name(v)) + "' object cannot be interpreted as an integer");
    // Far more than a range may hold, and far from overflowing.
    constexpr std::int64_t kFar = std::int64_t{1} << 60;
    if (v.is(Kind::BigInt) || v.as_int() > kFar || v.as_int() < -kFar)
      fail_runtime("the bounds of range() are too large");
    bounds[i] = v.as_int();
  }
  auto out = std::make_shared<Range>();
  if (given.positional.size() == 1) {
    out->stop = bounds[0];
  } else {
    out->start = bounds[0];
    out->stop = bounds[1];
    out->step = bounds[2];
  }
  if (out->step == 0) fail_runtime("range() arg 3 must not be zero");
  if (out->size() > kMaxRange)
    fail_runtime("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                 std::to_string(kMaxRange) + ").");
  return Value::object(Kind::Range, std::move(out));
}

std::shared_ptr<Dict> dict_of(Context& context, Arguments& given, std::string_view function) {
  if (given.positional.size() > 1) fail_runtime(std::string(function) + " expected at most 1 argument");
  auto out = std::make_shared<Dict>();
  if (!given.positional.empty()) {
    const Value& source = given.positional[0];
    if (source.is_undefined()) fail_runtime(source.why_undefined());
    if (source.is(Kind::Dict)) {
      context.spend_items(source.as<Dict>().entries.size() * 2);
      for (const auto& [key, value] : source.as<Dict>().entries) out->set(key, value);
    } else {
      for (const Value& pair : to_items(context, source)) {
        const std::vector<Value> both = to_items(context, pair);
        if (both.size() != 2) fail_runtime("dictionary update sequence element has a length other than 2");
        out->set(both[0], both[1]);
      }
    }
  }
  for (auto& [name, value] : given.named) out->set(Value::string(name), value);
  return out;
}

Value dict(Context& context, Arguments& given) { return make_dict(dict_of(context, given, "dict")); }

Value make_namespace(Context& context, Arguments& given) {
  const auto attributes = dict_of(context, given, "namespace");
  auto out = context.make_namespace();
  for (const auto& [key, value] : attributes->entries) {
    if (!key.is_string()) continue;  // unreachable as an attribute
    if (key.as_string().starts_with('_'))
      fail_runtime("namespaces take no attributes that start with an underscore, got '" + key.as_string() +
                   "'");
    out->set(key.as_string(), value);
  }
  return Value::object(Kind::Namespace, std::move(out));
}

Value raise_exception(Context&, Arguments& given) {
  const auto a = bind_arguments("raise_exception", given, {"message"}, 1);
  throw Failure{Failure::Kind::Raised, to_text(a[0])};
}

Value strftime_now(Context& context, Arguments& given) {
  const auto a = bind_arguments("strftime_now", given, {"format"}, 1);
  if (!a[0].is_string())
    fail_runtime("strftime() argument 1 must be str, not " + std::string(type_name(a[0])));
  const std::string& format = a[0].as_string();
  if (format.empty()) return Value::string("");
  if (format.size() > 1024) fail_limit("the format of strftime_now is longer than 1024 bytes");
  std::string out(format.size() * 64 + 64, '\0');
  const std::size_t size = std::strftime(out.data(), out.size(), format.c_str(), &context.now());
  out.resize(size);
  if (!is_valid_utf8(out)) fail_runtime("strftime_now gave text that is not UTF-8");
  return context.text(std::move(out));
}

Value cycler(Context&, Arguments& given) {
  if (!given.named.empty()) fail_runtime("cycler() takes no keyword arguments");
  if (given.positional.empty()) fail_runtime("at least one item has to be provided");
  auto out = std::make_shared<Cycler>();
  out->depth = depth_above(given.positional);
  out->items = std::move(given.positional);
  return Value::object(Kind::Cycler, std::move(out));
}

Value joiner(Context&, Arguments& given) {
  const auto a = bind_arguments("joiner", given, {"sep"}, 0);
  auto out = std::make_shared<Joiner>();
  if (!a[0].is_missing() && !a[0].is_string()) fail_runtime("the separator of joiner() must be a string");
  out->separator = a[0].is_missing() ? Value::string(", ") : a[0];
  return Value::object(Kind::Joiner, std::move(out));
}

struct NamedGlobal {
  std::string_view name;
  Value value;
};

NamedGlobal global(std::string_view name, NativeFunction call) {
  return {name, Value::object(Kind::Function, std::make_shared<Function>(name, call))};
}

}  // namespace

const Value* find_global(std::string_view name) {
  static const NamedGlobal kGlobals[] = {
      global("range", range),
      global("dict", dict),
      global("namespace", make_namespace),
      global("raise_exception", raise_exception),
      global("strftime_now", strftime_now),
      global("cycler", cycler),
      global("joiner", joiner),
  };
  for (const NamedGlobal& g : kGlobals)
    if (g.name == name) return &g.value;
  return nullptr;
}

}  // namespace tandem::text::jinja
