// Methods of the values that are not strings, and which methods the sandbox keeps away.

#include <algorithm>

#include "text/jinja/operations.h"
#include "text/jinja/registry.h"
#include "text/jinja/string_methods.h"

namespace tandem::text::jinja {
namespace {

Value view_of(const Value& self, ViewKind what) {
  auto view = std::make_shared<View>();
  view->depth = depth_of(self) + 1;
  view->dict = self;
  view->what = what;
  return Value::object(Kind::View, std::move(view));
}

Value dict_items(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("items", given, {}, 0);
  return view_of(self, ViewKind::Items);
}
Value dict_keys(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("keys", given, {}, 0);
  return view_of(self, ViewKind::Keys);
}
Value dict_values(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("values", given, {}, 0);
  return view_of(self, ViewKind::Values);
}
Value dict_get(Context&, const Value& self, Arguments& given) {
  if (!given.named.empty()) fail_runtime("dict.get() takes no keyword arguments");
  const auto a = bind_arguments("get", given, {"key", "default"}, 1);
  if (const Value* found = self.as<Dict>().find(a[0])) return *found;
  return a[1].is_missing() ? Value::none() : a[1];
}
Value same(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("copy", given, {}, 0);
  return self;  // immutable here
}

Value sequence_count(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("count", given, {"value"}, 1);
  std::int64_t n = 0;
  Cursor cursor(self);
  Value item;
  while (cursor.next(item)) {
    context.step();
    n += equal(item, a[0]);
  }
  return Value::integer(n);
}
Value sequence_index(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("index", given, {"value"}, 1);
  std::int64_t i = 0;
  Cursor cursor(self);
  Value item;
  while (cursor.next(item)) {
    context.step();
    if (equal(item, a[0])) return Value::integer(i);
    ++i;
  }
  fail_runtime("the value is not in the " + std::string(type_name(self)));
}

Value loop_cycle(Context&, const Value& self, Arguments& given) {
  if (!given.named.empty()) fail_runtime("cycle() takes no keyword arguments");
  if (given.positional.empty()) fail_runtime("no items for cycling given");
  const auto i = static_cast<std::size_t>(std::max<std::int64_t>(self.as<Loop>().index0, 0));
  return given.positional[i % given.positional.size()];
}
Value loop_changed(Context&, const Value& self, Arguments& given) {
  if (!given.named.empty()) fail_runtime("changed() takes no keyword arguments");
  const Value now = Value::tuple(given.positional);
  Loop& loop = self.as<Loop>();
  if (!loop.last_changed.is_missing() && equal(loop.last_changed, now)) return Value::boolean(false);
  loop.last_changed = now;
  return Value::boolean(true);
}

Value cycler_next(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("next", given, {}, 0);
  Cycler& cycler = self.as<Cycler>();
  const Value item = cycler.items[cycler.next];
  cycler.next = (cycler.next + 1) % cycler.items.size();
  return item;
}
Value cycler_reset(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("reset", given, {}, 0);
  self.as<Cycler>().next = 0;
  return Value::none();
}

constexpr NamedMethod kDict[] = {{"items", dict_items}, {"keys", dict_keys}, {"values", dict_values},
                                 {"get", dict_get},     {"copy", same},      {"fromkeys", nullptr}};
constexpr NamedMethod kList[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", same}};
constexpr NamedMethod kSequence[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr NamedMethod kView[] = {{"isdisjoint", nullptr}, {"mapping", nullptr}};
constexpr NamedMethod kInt[] = {{"as_integer_ratio", nullptr}, {"bit_count", nullptr},
                                {"bit_length", nullptr},       {"conjugate", nullptr},
                                {"from_bytes", nullptr},       {"to_bytes", nullptr}};
constexpr NamedMethod kFloat[] = {{"as_integer_ratio", nullptr},
                                  {"conjugate", nullptr},
                                  {"fromhex", nullptr},
                                  {"hex", nullptr},
                                  {"is_integer", nullptr}};
constexpr NamedMethod kLoop[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
constexpr NamedMethod kCycler[] = {{"next", cycler_next}, {"reset", cycler_reset}};
constexpr NamedMethod kGenerator[] = {{"send", nullptr}, {"throw", nullptr}, {"close", nullptr}};

// Methods that change their value, which the immutable sandbox hides.
constexpr NamedMethod kDictMutators[] = {
    {"clear", nullptr}, {"pop", nullptr}, {"popitem", nullptr}, {"setdefault", nullptr}, {"update", nullptr}};
constexpr NamedMethod kListMutators[] = {{"append", nullptr},  {"clear", nullptr},  {"pop", nullptr},
                                         {"reverse", nullptr}, {"insert", nullptr}, {"sort", nullptr},
                                         {"extend", nullptr},  {"remove", nullptr}};

template <std::size_t N>
const NamedMethod* in(const NamedMethod (&methods)[N], std::string_view name) {
  for (const NamedMethod& method : methods)
    if (method.name == name) return &method;
  return nullptr;
}

const NamedMethod* method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::String:
      return find_string_method(name);
    case Kind::Dict:
      if (const auto* found = in(kDict, name)) return found;
      return in(kDictMutators, name);
    case Kind::List:
      if (const auto* found = in(kList, name)) return found;
      return in(kListMutators, name);
    case Kind::Tuple:
    case Kind::Range:
      return in(kSequence, name);
    case Kind::View:
      return in(kView, name);
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
      return in(kInt, name);
    case Kind::Float:
      return in(kFloat, name);
    case Kind::Loop:
      return in(kLoop, name);
    case Kind::Cycler:
      return in(kCycler, name);
    case Kind::Generator:
      return self.as<Generator>().reversed_sequence ? nullptr : in(kGenerator, name);
    default:
      return nullptr;
  }
}

}  // namespace

const NativeMethod* find_method(const Value& self, std::string_view name, std::string_view& interned) {
  const NamedMethod* found = method(self, name);
  if (found == nullptr) return nullptr;
  interned = found->name;
  return &found->call;
}

bool is_mutator(const Value& self, std::string_view name) {
  return (self.is(Kind::Dict) && in(kDictMutators, name) != nullptr) ||
         (self.is(Kind::List) && in(kListMutators, name) != nullptr);
}

}  // namespace tandem::text::jinja
