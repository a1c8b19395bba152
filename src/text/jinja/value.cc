#include "text/jinja/value.h"

#include <algorithm>
#include <functional>

#include "text/jinja/callable.h"
#include "text/jinja/meter.h"
#include "text/jinja/number.h"

namespace tandem::text::jinja {
namespace {

constexpr std::size_t kIndexFrom = 9;

Value make_list(Kind kind, std::vector<Value> items) {
  auto list = std::make_shared<List>();
  list->depth = depth_above(items);
  list->values = std::move(items);
  return Value::object(kind, std::move(list));
}

}  // namespace

Value Value::list(std::vector<Value> items) { return make_list(Kind::List, std::move(items)); }
Value Value::tuple(std::vector<Value> items) { return make_list(Kind::Tuple, std::move(items)); }

const std::vector<Value>& Value::items() const { return as<List>().values; }

const Value* Dict::find(std::string_view key) const {
  if (entries.size() < kIndexFrom) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.as_string() == key) return &v;
    return nullptr;
  }
  const auto [from, to] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = from; it != to; ++it) {
    const auto& [k, v] = entries[it->second];
    if (k.is_string() && k.as_string() == key) return &v;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.as_string()));
  const std::size_t hash = hash_of(key);
  if (entries.size() < kIndexFrom) {
    for (const auto& [k, v] : entries)
      if (equal(k, key)) return &v;
    return nullptr;
  }
  const auto [from, to] = index_.equal_range(hash);
  for (auto it = from; it != to; ++it)
    if (equal(entries[it->second].first, key)) return &entries[it->second].second;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  const std::size_t hash = hash_of(key);
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() > kIndexFrom) {
    index_.emplace(hash, static_cast<std::uint32_t>(entries.size() - 1));
  } else if (entries.size() == kIndexFrom) {
    for (std::uint32_t i = 0; i < kIndexFrom; ++i) index_.emplace(hash_of(entries[i].first), i);
  }
}

std::int64_t Range::size() const {
  // Bounds are checked where ranges are made, so that the differences cannot overflow.
  if (step > 0) return start >= stop ? 0 : (stop - start - 1) / step + 1;
  return start <= stop ? 0 : (start - stop - 1) / -step + 1;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [k, v] : attributes)
    if (k == name) return &v;
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [k, v] : attributes) {
    if (k == name) {
      v = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

std::uint32_t depth_of(const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Generator:
    case Kind::Method:
    case Kind::Cycler:
      return value.as<Object>().depth;
    default:
      return 0;
  }
}

std::uint32_t depth_above(const std::vector<Value>& values) {
  std::uint32_t depth = 0;
  for (const Value& v : values) depth = std::max(depth, depth_of(v));
  if (depth >= kMaxValueDepth)
    fail_limit("values are nested deeper than " + std::to_string(kMaxValueDepth) + " levels");
  return depth + 1;
}

Value make_dict(std::shared_ptr<Dict> dict) {
  std::uint32_t depth = 0;
  for (const auto& [k, v] : dict->entries) depth = std::max({depth, depth_of(k), depth_of(v)});
  if (depth >= kMaxValueDepth)
    fail_limit("values are nested deeper than " + std::to_string(kMaxValueDepth) + " levels");
  dict->depth = depth + 1;
  return Value::object(Kind::Dict, std::move(dict));
}

Value make_generator(std::vector<Value> values) {
  auto generator = std::make_shared<Generator>();
  generator->depth = depth_above(values);
  generator->values = std::move(values);
  return Value::object(Kind::Generator, std::move(generator));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::BigInt:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::String:
      return value.is_markup() ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::Range:
      return "range";
    case Kind::View:
      switch (value.as<View>().what) {
        case ViewKind::Keys:
          return "dict_keys";
        case ViewKind::Values:
          return "dict_values";
        case ViewKind::Items:
          return "dict_items";
      }
      return "dict_items";
    case Kind::Generator:
      return value.as<Generator>().reversed_sequence ? "list_reverseiterator" : "generator";
    case Kind::Namespace:
      return "Namespace";
    case Kind::Macro:
      return "Macro";
    case Kind::Loop:
      return "LoopContext";
    case Kind::Method:
    case Kind::Function:
      return "builtin_function_or_method";
    case Kind::Cycler:
      return "Cycler";
    case Kind::Joiner:
      return "Joiner";
  }
  return "object";
}

std::string described(const Value& value) {
  if (value.is_none()) return "None";
  return std::string(type_name(value)) + " object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_float() != 0;
    case Kind::String:
      return !value.as_string().empty();
    case Kind::List:
    case Kind::Tuple:
      return !value.items().empty();
    case Kind::Dict:
      return !value.as<Dict>().entries.empty();
    case Kind::View:
      return !value.as<View>().dict.as<Dict>().entries.empty();
    case Kind::Range:
      return value.as<Range>().size() != 0;
    default:
      return true;
  }
}

std::size_t hash_of(const Value& value) {
  Meter::pay();
  switch (value.kind()) {
    case Kind::String:
      Meter::pay(value.as_string().size() / 64);
      return std::hash<std::string_view>{}(value.as_string());
    case Kind::Bool:
    case Kind::Int:
      return std::hash<std::int64_t>{}(value.as_int());
    case Kind::Float: {
      // A float equal to an integer is the same key as that integer.
      const double d = value.as_float();
      if (d >= -9.2e18 && d <= 9.2e18 && d == static_cast<double>(static_cast<std::int64_t>(d)))
        return std::hash<std::int64_t>{}(static_cast<std::int64_t>(d));
      return std::hash<double>{}(d);
    }
    case Kind::BigInt:
      return std::hash<double>{}(to_double(value));
    case Kind::Tuple: {
      std::size_t hash = 0x345678;
      for (const Value& v : value.items()) hash = hash * 1000003 ^ hash_of(v);
      return hash;
    }
    case Kind::None:
      return 0x4e6f6e65;
    case Kind::Missing:
    case Kind::Undefined:
      return 0x556e6465;
    case Kind::Range:
      return static_cast<std::size_t>(value.as<Range>().size());
    case Kind::List:
    case Kind::Dict:
    case Kind::View:
      fail_runtime("unhashable type: '" + std::string(type_name(value)) + "'");
    default:
      return std::hash<const void*>{}(value.identity());
  }
}

}  // namespace tandem::text::jinja
