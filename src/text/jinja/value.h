#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/failure.h"

namespace tandem::text::jinja {

// What an expression of a template evaluates to: Python's values as a chat template can meet them.
enum class Kind : std::uint8_t {
  Missing,  // a variable slot nothing was stored in; never the result of an expression
  Undefined,
  None,
  Bool,
  Int,
  BigInt,  // beyond 64 bits
  Float,
  String,
  List,
  Tuple,
  Dict,
  Range,
  View,       // what .keys(), .values() and .items() give
  Generator,  // what filters such as map and select give: can be read once
  Namespace,
  Macro,
  Loop,
  Method,    // a method of a value, not yet called
  Function,  // range, namespace, raise_exception ...
  Cycler,
  Joiner,
};

class Value;
class BigInt;

// The objects behind values. All but Generator, Namespace, Loop, Cycler and Joiner are immutable once
// they are in a Value. `depth` is the nesting of containers below, bounded so that recursion over
// values (printing, comparing, freeing) is bounded.
struct Object {
  virtual ~Object() = default;
  std::uint32_t depth = 0;
};

inline constexpr std::uint32_t kMaxValueDepth = 200;

struct List;
struct Dict;
struct Range;
struct View;
struct Generator;
struct Namespace;
struct Macro;
struct Loop;
struct Method;
struct Function;

// Thread: a value belongs to one rendering; only constants of a parsed template are shared, and those
// are immutable. Copying is cheap (a counted reference).
class Value {
 public:
  Value() = default;  // Missing
  static Value undefined(std::string message) {
    return Value(Kind::Undefined, std::make_shared<std::string>(std::move(message)));
  }
  static Value none() { return Value(Kind::None); }
  static Value boolean(bool b) {
    Value v(Kind::Bool);
    v.int_ = b;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Kind::Int);
    v.int_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::Float);
    v.float_ = d;
    return v;
  }
  static Value string(std::string text, bool markup = false) {
    Value v(Kind::String, std::make_shared<std::string>(std::move(text)));
    v.markup_ = markup;
    return v;
  }
  // Lists and tuples. Limit when nested deeper than kMaxValueDepth.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  template <class T>
  static Value object(Kind kind, std::shared_ptr<T> object) {
    return Value(kind, std::move(object));
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool is_missing() const { return kind_ == Kind::Missing; }
  [[nodiscard]] bool is_undefined() const { return kind_ == Kind::Undefined; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::None; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::String; }
  [[nodiscard]] bool is_integer() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }  // fits 64 bits
  [[nodiscard]] bool is_number() const {
    return is_integer() || kind_ == Kind::Float || kind_ == Kind::BigInt;
  }
  [[nodiscard]] bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
  [[nodiscard]] bool is_markup() const { return markup_; }  // a string that `safe` has marked

  // The caller has looked at kind().
  [[nodiscard]] bool as_bool() const { return int_ != 0; }
  [[nodiscard]] std::int64_t as_int() const { return int_; }  // Bool too
  [[nodiscard]] double as_float() const { return float_; }
  [[nodiscard]] const std::string& as_string() const { return *static_cast<const std::string*>(ref_.get()); }
  [[nodiscard]] const std::string& why_undefined() const { return as_string(); }
  [[nodiscard]] const std::vector<Value>& items() const;  // List and Tuple
  template <class T>
  [[nodiscard]] T& as() const {
    return *static_cast<T*>(ref_.get());
  }
  [[nodiscard]] const void* identity() const { return ref_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<void> ref) : kind_(kind), ref_(std::move(ref)) {}

  Kind kind_ = Kind::Missing;
  bool markup_ = false;
  union {
    std::int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<void> ref_;
};

struct List : Object {  // tuples too
  std::vector<Value> values;
};

// Insertion order kept; keys are any hashable values, equal as Python's `==` says (1, 1.0 and true are
// one key).
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  // nullptr if absent. Runtime failure for a key that cannot be one (a list).
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  // A key that is already there keeps its place and gets the new value.
  void set(Value key, Value value);

 private:
  std::unordered_multimap<std::size_t, std::uint32_t> index_;  // hash to entry; built from 9 entries on
};

struct Range : Object {
  std::int64_t start = 0, stop = 0, step = 1;  // step != 0
  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::int64_t at(std::int64_t i) const { return start + i * step; }
};

enum class ViewKind : std::uint8_t { Keys, Values, Items };
struct View : Object {
  Value dict;
  ViewKind what = ViewKind::Keys;
};

// A filter's lazy result. The items were computed at once; an error met on the way is kept and raised
// only when a reader gets that far, which is when Python's generator would meet it.
struct Generator : Object {
  std::vector<Value> values;
  std::size_t next = 0;
  std::unique_ptr<Failure> error;
  bool reversed_sequence = false;  // from `reverse`: Python's list_reverseiterator
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  [[nodiscard]] const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

[[nodiscard]] std::uint32_t depth_of(const Value& value);
// 1 + the deepest of `values`; Limit failure beyond kMaxValueDepth.
[[nodiscard]] std::uint32_t depth_above(const std::vector<Value>& values);
[[nodiscard]] Value make_dict(std::shared_ptr<Dict> dict);  // fills in the depth
[[nodiscard]] Value make_generator(std::vector<Value> values);

// Python's type name: "str", "int", "NoneType" ... and as Jinja words it in messages: "dict object".
[[nodiscard]] std::string_view type_name(const Value& value);
[[nodiscard]] std::string described(const Value& value);

[[nodiscard]] bool is_true(const Value& value);
[[nodiscard]] bool equal(const Value& a, const Value& b);
// a < b and so on as Python orders; Runtime failure for types that have no order.
enum class Order : std::uint8_t { Less, LessEqual, Greater, GreaterEqual };
[[nodiscard]] bool ordered(const Value& a, Order order, const Value& b);
// Runtime failure for lists, dicts and what else cannot be a key.
[[nodiscard]] std::size_t hash_of(const Value& value);

// str(value) and repr(value). `out` grows; nothing else is kept.
[[nodiscard]] std::string to_text(const Value& value);
void append_text(std::string& out, const Value& value);
void append_repr(std::string& out, const Value& value);
[[nodiscard]] std::string repr_of_float(double d);  // Python's repr: "1.0", "1e+16", "inf"
void append_string_repr(std::string& out, std::string_view text);

}  // namespace tandem::text::jinja
