// Filters over lists, mappings and what else can be iterated.

#include <algorithm>
#include <unordered_map>

#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

// Builds a lazy filter's result: `step` gives the next item or false at the end. An error is kept for
// the reader that gets there.
template <class Step>
Value lazily(Context& context, Step&& step) {
  std::vector<Value> values;
  std::unique_ptr<Failure> error;
  try {
    Value item;
    while (step(item)) {
      context.step();
      context.spend_items(1);
      values.push_back(std::move(item));
    }
  } catch (Failure& failure) {
    if (failure.kind == Failure::Kind::Limit) throw;
    error = std::make_unique<Failure>(std::move(failure));
  }
  const Value out = make_generator(std::move(values));
  out.as<Generator>().error = std::move(error);
  return out;
}

Value f_list(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("list", given, {}, 0);
  return Value::list(to_items(context, input));
}

Value f_items(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("items", given, {}, 0);
  std::size_t i = 0;
  return lazily(context, [&](Value& item) {
    if (input.is_undefined()) return false;
    if (!input.is(Kind::Dict)) fail_runtime("Can only get item pairs from a mapping.");
    const auto& entries = input.as<Dict>().entries;
    if (i == entries.size()) return false;
    item = Value::tuple({entries[i].first, entries[i].second});
    ++i;
    return true;
  });
}

Value f_first(Context&, const Value& input, Arguments& given) {
  (void)bind_arguments("first", given, {}, 0);
  Cursor cursor(input);
  Value item;
  if (!cursor.next(item)) return Value::undefined("No first item, sequence was empty.");
  return item;
}

// Items in reverse, for what Python's reversed() takes.
bool reversible(const Value& v) {
  return v.is_sequence() || v.is_string() || v.is(Kind::Dict) || v.is(Kind::View) || v.is(Kind::Range);
}

Value f_last(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("last", given, {}, 0);
  if (input.is_undefined()) return Value::undefined("No last item, sequence was empty.");
  if (!reversible(input)) fail_runtime("'" + std::string(type_name(input)) + "' object is not reversible");
  if (input.is_sequence() || input.is_string()) {
    if (length_of(input) == 0) return Value::undefined("No last item, sequence was empty.");
    return get_item(context, input, Value::integer(-1));
  }
  const std::vector<Value> items = to_items(context, input);
  if (items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items.back();
}

Value f_reverse(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("reverse", given, {}, 0);
  if (input.is_string()) return get_slice(context, input, {}, {}, Value::integer(-1));
  if (!is_iterable(input)) fail_runtime("argument must be iterable");
  std::vector<Value> items = to_items(context, input);
  std::reverse(items.begin(), items.end());
  if (!reversible(input) && !input.is_undefined()) return Value::list(std::move(items));
  const Value out = make_generator(std::move(items));
  out.as<Generator>().reversed_sequence = true;
  return out;
}

Value f_join(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("join", given, {"d", "attribute"}, 0);
  const std::string separator = a[0].is_missing() ? "" : text_of(a[0]);
  const AttributePath path = attribute_path(a[1]);
  Cursor cursor(input);
  std::string out;
  Value item;
  bool first = true;
  while (cursor.next(item)) {
    context.step();
    const std::string text = text_of(path.empty() ? item : follow(context, item, path));
    context.spend(text.size() + separator.size());
    if (!first) out += separator;
    first = false;
    out += text;
  }
  return Value::string(std::move(out));
}

// Sorting.

bool less(const Value& a, const Value& b) {
  Meter::pay();
  return ordered(a, Order::Less, b);
}

// std::stable_sort must not see an inconsistent order, which NaN and mixed types give; a merge written
// here only ever asks, as Python's sort does.
void merge_sort(std::vector<std::pair<Value, Value>>& items, bool reverse) {
  std::vector<std::pair<Value, Value>> other(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t i = begin, j = middle, k = begin;
      while (i < middle && j < end) {
        const bool take_right =
            reverse ? less(items[i].first, items[j].first) : less(items[j].first, items[i].first);
        other[k++] = std::move(take_right ? items[j++] : items[i++]);
      }
      while (i < middle) other[k++] = std::move(items[i++]);
      while (j < end) other[k++] = std::move(items[j++]);
    }
    items.swap(other);
  }
}

std::vector<Value> sorted(Context& context, std::vector<Value> values,
                          const std::vector<AttributePath>& paths, bool case_sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(values.size());
  context.spend_items(values.size() * 4);
  for (Value& value : values) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      Value part = follow(context, value, path);
      key.push_back(case_sensitive ? part : without_case(context, part));
    }
    keyed.emplace_back(Value::list(std::move(key)), std::move(value));
  }
  merge_sort(keyed, reverse);
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return out;
}

Value f_sort(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("sort", given, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<AttributePath> paths;
  if (!a[2].is_missing() && a[2].is_string()) {
    std::string_view rest = a[2].as_string();
    while (true) {
      const std::size_t comma = rest.find(',');
      paths.push_back(attribute_path(Value::string(std::string(rest.substr(0, comma)))));
      if (comma == kNoPosition) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(attribute_path(a[2]));
  }
  return Value::list(sorted(context, to_items(context, input), paths, flag(a[1]), flag(a[0])));
}

Value f_dictsort(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("dictsort", given, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = a[1].is_missing() ? "key" : text_of(a[1]);
  if (by != "key" && by != "value") fail_runtime("You can only sort by either \"key\" or \"value\"");
  if (!input.is(Kind::Dict))
    fail_runtime("the filter 'dictsort' needs a mapping, not " + std::string(type_name(input)));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.as<Dict>().entries) {
    const Value& part = by == "key" ? key : value;
    context.spend_items(4);
    keyed.emplace_back(flag(a[0]) ? part : without_case(context, part), Value::tuple({key, value}));
  }
  merge_sort(keyed, flag(a[2]));
  std::vector<Value> out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return Value::list(std::move(out));
}

Value f_groupby(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("groupby", given, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path = attribute_path(a[0]);
  const bool case_sensitive = flag(a[2]);
  const bool has_default = !a[1].is_missing() && !a[1].is_none();
  const auto real_key = [&](const Value& item) {
    Value key = item;
    for (const Value& part : path) {
      key = get_item(context, key, part);
      if (key.is_undefined() && has_default) key = a[1];
    }
    return key;
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_items(context, input)) {
    const Value key = real_key(item);
    keyed.emplace_back(case_sensitive ? key : without_case(context, key), std::move(item));
  }
  merge_sort(keyed, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = i;
    while (end < keyed.size() && equal(keyed[end].first, keyed[i].first))
      members.push_back(keyed[end++].second);
    const Value key = case_sensitive ? keyed[i].first : real_key(members.front());
    groups.push_back(Value::tuple({key, Value::list(std::move(members))}));
    i = end;
  }
  return Value::list(std::move(groups));
}

Value f_unique(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("unique", given, {"case_sensitive", "attribute"}, 0);
  const AttributePath path = attribute_path(a[1]);
  Dict seen;
  std::unique_ptr<Cursor> cursor;
  return lazily(context, [&](Value& item) {
    if (!cursor) cursor = std::make_unique<Cursor>(input);
    while (cursor->next(item)) {
      context.step();
      Value key = follow(context, item, path);
      if (!flag(a[0])) key = without_case(context, key);
      if (seen.find(key) != nullptr) continue;
      seen.set(std::move(key), Value::none());
      return true;
    }
    return false;
  });
}

Value extreme(Context& context, const Value& input, Arguments& given, std::string_view name, bool largest) {
  const auto a = bind_arguments(name, given, {"case_sensitive", "attribute"}, 0);
  const AttributePath path = attribute_path(a[1]);
  Cursor cursor(input);
  Value item, best, best_key;
  while (cursor.next(item)) {
    context.step();
    Value key = follow(context, item, path);
    if (!flag(a[0])) key = without_case(context, key);
    if (best.is_missing() ||
        (largest ? ordered(key, Order::Greater, best_key) : ordered(key, Order::Less, best_key))) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best.is_missing() ? Value::undefined("No aggregated item, sequence was empty.") : best;
}
Value f_min(Context& c, const Value& v, Arguments& a) { return extreme(c, v, a, "min", false); }
Value f_max(Context& c, const Value& v, Arguments& a) { return extreme(c, v, a, "max", true); }

Value f_sum(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("sum", given, {"attribute", "start"}, 0);
  const AttributePath path = attribute_path(a[0]);
  Value total = a[1].is_missing() ? Value::integer(0) : a[1];
  if (total.is_string()) fail_runtime("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(input);
  Value item;
  while (cursor.next(item)) {
    context.step();
    total = add(context, total, path.empty() ? item : follow(context, item, path));
  }
  return total;
}

Value f_batch(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("batch", given, {"linecount", "fill_with"}, 1);
  std::unique_ptr<Cursor> cursor;
  bool done = false;
  Value held;
  return lazily(context, [&](Value& out) {
    if (done) return false;
    if (!cursor) cursor = std::make_unique<Cursor>(input);
    if (!a[0].is_number()) fail_runtime("the filter 'batch' takes a number");
    std::vector<Value> line;
    if (!held.is_missing()) line.push_back(std::exchange(held, Value()));
    Value item;
    while (cursor->next(item)) {
      context.step();
      context.spend_items(1);
      if (equal(Value::integer(static_cast<std::int64_t>(line.size())), a[0])) {
        held = item;
        out = Value::list(std::move(line));
        return true;
      }
      line.push_back(item);
    }
    done = true;
    if (line.empty()) return false;
    if (!a[1].is_missing() && !a[1].is_none()) {
      const std::int64_t size = whole(a[0], 0);
      while (static_cast<std::int64_t>(line.size()) < size) {
        context.spend_items(1);
        line.push_back(a[1]);
      }
    }
    out = Value::list(std::move(line));
    return true;
  });
}

Value f_slice(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("slice", given, {"slices", "fill_with"}, 1);
  std::vector<Value> items;
  std::int64_t slices = -1, number = 0, extra = 0, each = 0, offset = 0;
  return lazily(context, [&](Value& out) {
    if (slices < 0) {
      items = to_items(context, input);
      slices = whole(a[0], 0);
      if (slices == 0) fail_runtime("integer division or modulo by zero");
      if (slices < 0) return false;
      each = static_cast<std::int64_t>(items.size()) / slices;
      extra = static_cast<std::int64_t>(items.size()) % slices;
    }
    if (number >= slices) return false;
    const std::int64_t start = offset + number * each;
    if (number < extra) ++offset;
    const std::int64_t end = offset + (number + 1) * each;
    std::vector<Value> part(items.begin() + start, items.begin() + end);
    if (!a[1].is_missing() && !a[1].is_none() && number >= extra) part.push_back(a[1]);
    ++number;
    out = Value::list(std::move(part));
    return true;
  });
}

// map, select and reject.

Arguments without_first(const Arguments& given, std::size_t count) {
  Arguments out;
  out.named = given.named;
  for (std::size_t i = count; i < given.positional.size(); ++i) out.positional.push_back(given.positional[i]);
  return out;
}

Value f_map(Context& context, const Value& input, Arguments& given) {
  std::unique_ptr<Cursor> cursor;
  const NativeFilter* filter = nullptr;
  AttributePath path;
  Value fallback;
  const auto prepare = [&] {
    const Value* attribute = nullptr;
    for (const auto& [name, value] : given.named)
      if (name == "attribute") attribute = &value;
    if (given.positional.empty() && attribute != nullptr) {
      path = attribute_path(*attribute);
      for (const auto& [name, value] : given.named) {
        if (name == "default")
          fallback = value;
        else if (name != "attribute")
          fail_runtime("Unexpected keyword argument '" + name + "'");
      }
      return;
    }
    if (given.positional.empty()) fail_runtime("map requires a filter argument");
    const std::string name = text_of(given.positional[0]);
    filter = find_filter(name);
    if (filter == nullptr) fail_runtime("No filter named '" + name + "'.");
  };
  return lazily(context, [&](Value& item) {
    if (!cursor) {
      if (!is_true(input)) return false;
      prepare();
      cursor = std::make_unique<Cursor>(input);
    }
    if (!cursor->next(item)) return false;
    if (filter != nullptr) {
      Arguments rest = without_first(given, 1);
      item = filter->apply(context, item, rest);
      return true;
    }
    for (const Value& part : path) {
      item = get_item(context, item, part);
      if (item.is_undefined() && !fallback.is_missing() && !fallback.is_none()) item = fallback;
    }
    return true;
  });
}

Value select(Context& context, const Value& input, Arguments& given, bool keep, bool by_attribute) {
  std::unique_ptr<Cursor> cursor;
  const NativeTest* test = nullptr;
  AttributePath path;
  const std::size_t offset = by_attribute ? 1 : 0;
  return lazily(context, [&](Value& item) {
    if (!cursor) {
      if (!is_true(input)) return false;
      if (by_attribute) {
        if (given.positional.empty()) fail_runtime("Missing parameter for attribute name");
        path = attribute_path(given.positional[0]);
      }
      cursor = std::make_unique<Cursor>(input);
    }
    while (cursor->next(item)) {
      context.step();
      const Value subject = follow(context, item, path);
      bool passes = false;
      if (given.positional.size() > offset) {
        if (test == nullptr) {
          const std::string name = text_of(given.positional[offset]);
          test = find_test(name);
          if (test == nullptr) fail_runtime("No test named '" + name + "'.");
        }
        Arguments rest = without_first(given, offset + 1);
        passes = test->apply(context, subject, rest);
      } else {
        passes = is_true(subject);
      }
      if (passes == keep) return true;
    }
    return false;
  });
}
Value f_select(Context& c, const Value& v, Arguments& a) { return select(c, v, a, true, false); }
Value f_reject(Context& c, const Value& v, Arguments& a) { return select(c, v, a, false, false); }
Value f_selectattr(Context& c, const Value& v, Arguments& a) { return select(c, v, a, true, true); }
Value f_rejectattr(Context& c, const Value& v, Arguments& a) { return select(c, v, a, false, true); }

}  // namespace

const std::vector<NamedFilter>& sequence_filters() {
  static const std::vector<NamedFilter> kFilters = {
      {"batch", {f_batch}},
      {"dictsort", {f_dictsort}},
      {"first", {f_first}},
      {"groupby", {f_groupby}},
      {"items", {f_items}},
      {"join", {f_join}},
      {"last", {f_last}},
      {"list", {f_list}},
      {"map", {f_map}},
      {"max", {f_max}},
      {"min", {f_min}},
      {"reject", {f_reject}},
      {"rejectattr", {f_rejectattr}},
      {"reverse", {f_reverse}},
      {"select", {f_select}},
      {"selectattr", {f_selectattr}},
      {"slice", {f_slice}},
      {"sort", {f_sort}},
      {"sum", {f_sum}},
      {"unique", {f_unique}},
  };
  return kFilters;
}

}  // namespace tandem::text::jinja
