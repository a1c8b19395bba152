#include "text/jinja/scope.h"

#include <map>
#include <optional>
#include <set>

#include "text/jinja/walk.h"

namespace tandem::text::jinja {
namespace {

// One function of the template: its activations have `slots` variables.
struct FunctionInfo {
  std::uint32_t level = 0;
  std::uint32_t slots = 0;
};

// The variables of one scope. The branches of an `if` are analysed on copies that share the slots.
class Symbols {
 public:
  Symbols(const Symbols* parent, FunctionInfo* function)
      : parent_(parent),
        function_(function),
        slots_(std::make_shared<std::map<std::string, std::uint32_t>>()) {}

  [[nodiscard]] FunctionInfo* function() const { return function_; }

  void read(const std::string& name) {
    if (!find(name)) define(name, Load{.from = Load::From::Context, .name = name});
  }

  void write(const std::string& name) {
    stores_.insert(name);
    if (refs_.contains(name)) return;
    if (const auto outer = parent_ != nullptr ? parent_->find(name) : std::nullopt) {
      define(name, Load{.from = Load::From::Outer, .outer = relative(*outer)});
    } else {
      define(name, Load{.from = Load::From::Nothing});
    }
  }

  std::uint32_t parameter(const std::string& name) {
    stores_.insert(name);
    const std::uint32_t slot = slot_of(name);
    refs_[name] = slot;
    loads_.erase(slot);
    return slot;
  }

  // A variable written in some branch only keeps, in the others, what it was before.
  void join(std::initializer_list<const Symbols*> branches) {
    std::set<std::string> written;
    for (const Symbols* branch : branches)
      for (const std::string& name : branch->stores_)
        if (!stores_.contains(name)) written.insert(name);
    for (const Symbols* branch : branches) {
      for (const auto& [name, slot] : branch->refs_) refs_[name] = slot;
      for (const auto& [slot, load] : branch->loads_) loads_[slot] = load;
      stores_.insert(branch->stores_.begin(), branch->stores_.end());
    }
    for (const std::string& name : written) {
      const std::uint32_t slot = refs_.at(name);
      const auto outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
      loads_[slot] = outer ? Load{.slot = slot, .from = Load::From::Outer, .outer = relative(*outer)}
                           : Load{.slot = slot, .from = Load::From::Context, .name = name};
    }
  }

  [[nodiscard]] Variable variable(const std::string& name) const {
    const auto found = find(name);
    // The analysis has met every name, so this does not happen.
    if (!found) throw Failure{Failure::Kind::Syntax, "the variable '" + name + "' has no place"};
    return relative(*found);
  }

  [[nodiscard]] std::vector<Load> loads() const {
    std::vector<Load> out;
    for (const auto& [slot, load] : loads_) out.push_back(load);
    return out;
  }

 private:
  struct Found {
    const FunctionInfo* function;
    std::uint32_t slot;
  };

  [[nodiscard]] std::optional<Found> find(const std::string& name) const {
    for (const Symbols* s = this; s != nullptr; s = s->parent_)
      if (const auto it = s->refs_.find(name); it != s->refs_.end()) return Found{s->function_, it->second};
    return std::nullopt;
  }

  [[nodiscard]] Variable relative(Found found) const {
    return {function_->level - found.function->level, found.slot};
  }

  std::uint32_t slot_of(const std::string& name) {
    const auto [it, is_new] = slots_->try_emplace(name, function_->slots);
    if (is_new) ++function_->slots;
    return it->second;
  }

  void define(const std::string& name, Load load) {
    load.slot = slot_of(name);
    refs_[name] = load.slot;
    loads_[load.slot] = std::move(load);
  }

  const Symbols* parent_;
  FunctionInfo* function_;
  std::shared_ptr<std::map<std::string, std::uint32_t>> slots_;
  std::map<std::string, std::uint32_t> refs_;
  std::map<std::uint32_t, Load> loads_;
  std::set<std::string> stores_;
};

// Analysis: which names a scope reads and writes. Inner scopes are not entered.

class Analysis {
 public:
  explicit Analysis(Symbols& symbols) : symbols_(&symbols) {}

  void block(const Block& statements) {
    for (const auto& s : statements) statement(*s);
  }

  void expression(const Expression* node) {
    walk_names(node, [&](const std::string& name, Access, Position) { symbols_->read(name); });
  }

  void target(const Target& to) {
    switch (to.kind) {
      case Target::Kind::Name:
        symbols_->write(to.name);
        return;
      case Target::Kind::NamespaceAttribute:
        symbols_->read(to.name);
        return;
      case Target::Kind::Tuple:
        for (const Target& item : to.items) target(item);
    }
  }

 private:
  void statement(const Statement& s) {
    switch (s.kind) {
      case StatementKind::Output:
        expression(static_cast<const OutputStatement&>(s).expression.get());
        return;
      case StatementKind::Set:
        expression(static_cast<const SetStatement&>(s).value.get());
        target(static_cast<const SetStatement&>(s).target);
        return;
      case StatementKind::SetBlock:
        target(static_cast<const SetBlockStatement&>(s).target);
        return;
      case StatementKind::If:
        branches(static_cast<const IfStatement&>(s));
        return;
      case StatementKind::For:
        expression(static_cast<const ForStatement&>(s).iterable.get());
        return;
      case StatementKind::Macro:
        symbols_->write(static_cast<const MacroStatement&>(s).name);
        return;
      case StatementKind::CallBlock:
        expression(static_cast<const CallBlockStatement&>(s).call.get());
        return;
      case StatementKind::FilterBlock:
        expression(static_cast<const FilterBlockStatement&>(s).filter.get());
        return;
      case StatementKind::With:
        for (const auto& value : static_cast<const WithStatement&>(s).values) expression(value.get());
        return;
      default:
        return;
    }
  }

  Symbols branch(const Symbols& before, const Block& body) {
    Symbols copy = before;
    Symbols* const saved = std::exchange(symbols_, &copy);
    block(body);
    symbols_ = saved;
    return copy;
  }

  // An elif is an if of its own inside the second branch.
  void branches(const IfStatement& s) {
    expression(s.branches.front().first.get());
    const Symbols first = branch(*symbols_, s.branches.front().second);
    Symbols elifs = *symbols_;
    Symbols* const saved = std::exchange(symbols_, &elifs);
    for (std::size_t i = 1; i < s.branches.size(); ++i) {
      expression(s.branches[i].first.get());
      const Symbols body = branch(elifs, s.branches[i].second);
      elifs.join({&body});
    }
    symbols_ = saved;
    const Symbols last = branch(*symbols_, s.otherwise);
    symbols_->join({&first, &elifs, &last});
  }

  Symbols* symbols_;
};

// Resolution: with the scope's symbols known, fills in the tree; inner scopes are analysed on the way.

struct Frame {
  Symbols& symbols;
  bool top_level = false;  // the template's own scope: assignments reach the context
  bool soft = false;       // under an if: unknown filters may stand
};

class Resolution {
 public:
  void tree(TemplateTree& t) {
    FunctionInfo function;
    Symbols symbols(nullptr, &function);
    Analysis(symbols).block(t.body);
    block(t.body, Frame{symbols, true, false});
    t.loads = loads(symbols);
    t.slots = function.slots;
    t.reads = std::move(reads_);
  }

 private:
  std::vector<Load> loads(const Symbols& symbols) {
    std::vector<Load> out = symbols.loads();
    for (const Load& load : out)
      if (load.from == Load::From::Context) reads_.insert(load.name);
    return out;
  }

  void block(Block& statements, const Frame& frame) {
    for (auto& s : statements) statement(*s, frame);
  }

  static Frame soft(const Frame& frame) { return Frame{frame.symbols, frame.top_level, true}; }

  void arguments(CallArguments& a, const Frame& frame) {
    for (auto& value : a.positional) expression(value.get(), frame);
    for (auto& [name, value] : a.named) expression(value.get(), frame);
    expression(a.star.get(), frame);
    expression(a.star_star.get(), frame);
  }

  void expression(Expression* node, const Frame& frame) {
    if (node == nullptr) return;
    switch (node->kind) {
      case ExpressionKind::Constant:
        return;
      case ExpressionKind::Name: {
        auto& name = *static_cast<NameExpression*>(node);
        name.variable = frame.symbols.variable(name.name);
        return;
      }
      case ExpressionKind::Attribute:
        expression(static_cast<AttributeExpression*>(node)->object.get(), frame);
        return;
      case ExpressionKind::Call: {
        auto& call = *static_cast<CallExpression*>(node);
        expression(call.callee.get(), frame);
        arguments(call.arguments, frame);
        return;
      }
      case ExpressionKind::Filter:
        filter(*static_cast<FilterExpression*>(node), frame);
        return;
      case ExpressionKind::Test:
        test(*static_cast<TestExpression*>(node), frame);
        return;
      case ExpressionKind::Binary:
        expression(static_cast<BinaryExpression*>(node)->left.get(), frame);
        expression(static_cast<BinaryExpression*>(node)->right.get(), frame);
        return;
      case ExpressionKind::Compare: {
        auto& compare = *static_cast<CompareExpression*>(node);
        expression(compare.first.get(), frame);
        for (auto& [op, operand] : compare.rest) expression(operand.get(), frame);
        return;
      }
      case ExpressionKind::Conditional:
        for (auto& operand : static_cast<OperandsExpression*>(node)->operands)
          expression(operand.get(), soft(frame));
        return;
      default:
        for (auto& operand : static_cast<OperandsExpression*>(node)->operands)
          expression(operand.get(), frame);
    }
  }

  void filter(FilterExpression& f, const Frame& frame) {
    f.filter = find_filter(f.name);
    if (f.filter == nullptr && is_unsupported_filter(f.name))
      throw Failure{Failure::Kind::Syntax, "the filter '" + f.name + "' is not supported in chat templates",
                    f.at};
    if (f.filter == nullptr && !frame.soft)
      throw Failure{Failure::Kind::Syntax, "no filter named '" + f.name + "'", f.at};
    expression(f.input.get(), frame);
    arguments(f.arguments, frame);
  }

  void test(TestExpression& t, const Frame& frame) {
    t.test = find_test(t.name);
    if (t.test == nullptr && !frame.soft)
      throw Failure{Failure::Kind::Syntax, "no test named '" + t.name + "'", t.at};
    expression(t.input.get(), frame);
    arguments(t.arguments, frame);
  }

  void target(Target& to, const Frame& frame) {
    if (to.kind != Target::Kind::Tuple) to.variable = frame.symbols.variable(to.name);
    for (Target& item : to.items) target(item, frame);
  }

  static void declare(const Target& to, Symbols& symbols) {
    if (to.kind == Target::Kind::Name) symbols.parameter(to.name);
    for (const Target& item : to.items) declare(item, symbols);
  }

  void statement(Statement& s, const Frame& frame) {
    switch (s.kind) {
      case StatementKind::Output:
        expression(static_cast<OutputStatement&>(s).expression.get(), frame);
        return;
      case StatementKind::Set: {
        auto& set = static_cast<SetStatement&>(s);
        expression(set.value.get(), frame);
        target(set.target, frame);
        set.exported = frame.top_level;
        return;
      }
      case StatementKind::SetBlock:
        set_block(static_cast<SetBlockStatement&>(s), frame);
        return;
      case StatementKind::If: {
        auto& branch = static_cast<IfStatement&>(s);
        for (auto& [condition, body] : branch.branches) {
          expression(condition.get(), soft(frame));
          block(body, soft(frame));
        }
        block(branch.otherwise, soft(frame));
        return;
      }
      case StatementKind::For:
        loop(static_cast<ForStatement&>(s), frame);
        return;
      case StatementKind::Macro: {
        auto& m = static_cast<MacroStatement&>(s);
        macro(m.macro, m.at, frame);
        m.variable = frame.symbols.variable(m.name);
        m.exported = frame.top_level;
        return;
      }
      case StatementKind::CallBlock:
      case StatementKind::Generation: {
        auto& call = static_cast<CallBlockStatement&>(s);
        macro(call.caller, call.at, frame);
        expression(call.call.get(), frame);
        return;
      }
      case StatementKind::FilterBlock: {
        auto& f = static_cast<FilterBlockStatement&>(s);
        Symbols inner(&frame.symbols, frame.symbols.function());
        Analysis analysis(inner);
        analysis.block(f.body);
        analysis.expression(f.filter.get());
        block(f.body, Frame{inner});
        expression(f.filter.get(), Frame{inner});
        f.loads = loads(inner);
        return;
      }
      case StatementKind::With: {
        auto& with = static_cast<WithStatement&>(s);
        Symbols inner(&frame.symbols, frame.symbols.function());
        for (const Target& to : with.targets) declare(to, inner);
        Analysis(inner).block(with.body);
        for (auto& value : with.values) expression(value.get(), frame);
        for (Target& to : with.targets) target(to, Frame{inner});
        block(with.body, Frame{inner});
        with.loads = loads(inner);
        return;
      }
      case StatementKind::Break:
      case StatementKind::Continue:
        return;
    }
  }

  void set_block(SetBlockStatement& set, const Frame& frame) {
    Symbols inner(&frame.symbols, frame.symbols.function());
    Analysis analysis(inner);
    analysis.block(set.body);
    analysis.expression(set.filter.get());
    block(set.body, Frame{inner});
    if (set.filter) expression(set.filter.get(), Frame{inner});
    target(set.target, frame);
    set.loads = loads(inner);
    set.exported = frame.top_level;
  }

  void loop(ForStatement& loop, const Frame& frame) {
    walk_names(loop, [&](const std::string& name, Access access, Position at) {
      if (access == Access::Write && name == "loop")
        throw Failure{Failure::Kind::Syntax, "can't assign to 'loop' inside a for loop", at};
    });
    FunctionInfo* const function = frame.symbols.function();
    Symbols body(&frame.symbols, function);
    walk_names(loop.body,
               [&](const std::string& name, Access, Position) { loop.has_loop |= name == "loop"; });
    if (loop.has_loop) loop.loop_slot = body.parameter("loop");
    declare(loop.target, body);
    Analysis(body).block(loop.body);
    expression(loop.iterable.get(), frame);
    target(loop.target, Frame{body});
    block(loop.body, Frame{body});
    loop.body_loads = loads(body);
    if (loop.test) {
      Symbols test(&frame.symbols, function);
      declare(loop.test_target, test);
      Analysis(test).expression(loop.test.get());
      target(loop.test_target, Frame{test});
      expression(loop.test.get(), Frame{test});
      loop.test_loads = loads(test);
    }
    Symbols otherwise(&frame.symbols, function);
    Analysis(otherwise).block(loop.otherwise);
    block(loop.otherwise, Frame{otherwise});
    loop.otherwise_loads = loads(otherwise);
  }

  void macro(MacroBody& m, Position at, const Frame& frame) {
    FunctionInfo function{.level = frame.symbols.function()->level + 1};
    Symbols symbols(&frame.symbols, &function);
    std::set<std::string> special = {"caller", "kwargs", "varargs"};
    std::set<std::string> used;
    walk_names(m.body, [&](const std::string& name, Access access, Position) {
      if (access == Access::Read && special.contains(name))
        used.insert(name);
      else if (access != Access::Read)
        special.erase(name);
    });
    bool has_caller = false, has_kwargs = false, has_varargs = false;
    for (std::size_t i = 0; i < m.parameters.size(); ++i) {
      const std::string& name = m.parameters[i];
      m.parameter_slots.push_back(symbols.parameter(name));
      has_kwargs |= name == "kwargs";
      has_varargs |= name == "varargs";
      if (name != "caller") continue;
      has_caller = true;
      if (used.contains("caller") && m.parameters.size() - i > m.defaults.size())
        throw Failure{Failure::Kind::Syntax, "the parameter 'caller' needs a default", at};
    }
    m.uses_caller = used.contains("caller");
    if (m.uses_caller && !has_caller) m.caller_slot = symbols.parameter("caller");
    m.uses_kwargs = used.contains("kwargs") && !has_kwargs;
    if (m.uses_kwargs) m.kwargs_slot = symbols.parameter("kwargs");
    m.uses_varargs = used.contains("varargs") && !has_varargs;
    if (m.uses_varargs) m.varargs_slot = symbols.parameter("varargs");
    Analysis analysis(symbols);
    for (const auto& value : m.defaults) analysis.expression(value.get());
    analysis.block(m.body);
    for (auto& value : m.defaults) expression(value.get(), Frame{symbols});
    block(m.body, Frame{symbols});
    m.loads = loads(symbols);
    m.slots = function.slots;
  }

  std::set<std::string> reads_;
};

}  // namespace

void resolve_scopes(TemplateTree& tree) { Resolution().tree(tree); }

}  // namespace tandem::text::jinja
