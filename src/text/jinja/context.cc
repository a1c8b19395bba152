#include "text/jinja/context.h"

namespace tandem::text::jinja {

thread_local Meter* Meter::current_ = nullptr;

void Meter::fail_steps() const {
  fail_limit("the template takes more than " + std::to_string(limits_.max_steps) + " steps");
}

void Meter::fail_bytes() const {
  fail_limit("the template makes more than " + std::to_string(limits_.max_value_bytes) + " bytes of values");
}

Context::~Context() {
  // First break every chain through namespaces: all of them are still held here.
  for (const auto& held : namespaces_) held->attributes.clear();
}

Value Context::resolve(const std::string& name) const {
  if (const auto it = variables_.find(name); it != variables_.end()) return it->second;
  if (const Value* global = find_global(name)) return *global;
  return {};
}

std::shared_ptr<Namespace> Context::make_namespace() {
  spend(sizeof(Namespace) + 64);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

}  // namespace tandem::text::jinja
