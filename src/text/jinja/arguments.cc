#include "text/jinja/callable.h"

namespace tandem::text::jinja {

std::vector<Value> bind_arguments(std::string_view function, Arguments& given,
                                  std::initializer_list<std::string_view> parameters, std::size_t required) {
  std::vector<Value> out(parameters.size());
  if (given.positional.size() > parameters.size())
    fail_runtime(std::string(function) + "() takes at most " + std::to_string(parameters.size()) +
                 " arguments (" + std::to_string(given.positional.size()) + " given)");
  for (std::size_t i = 0; i < given.positional.size(); ++i) out[i] = std::move(given.positional[i]);
  for (auto& [name, value] : given.named) {
    std::size_t i = 0;
    for (const std::string_view parameter : parameters) {
      if (parameter == name) break;
      ++i;
    }
    if (i == parameters.size())
      fail_runtime(std::string(function) + "() got an unexpected keyword argument '" + name + "'");
    if (!out[i].is_missing())
      fail_runtime(std::string(function) + "() got multiple values for argument '" + name + "'");
    out[i] = std::move(value);
  }
  std::size_t i = 0;
  for (const std::string_view parameter : parameters) {
    if (i < required && out[i].is_missing())
      fail_runtime(std::string(function) + "() missing a required argument: '" + std::string(parameter) +
                   "'");
    ++i;
  }
  return out;
}

}  // namespace tandem::text::jinja
