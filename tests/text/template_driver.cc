// Renders Jinja templates for template_diff.py, which compares the results with Python's jinja2.
//
// Standard input: one JSON object a line, {"template": text, "variables": {name: value}}; a line with
// only "variables" uses the template of the line before. strftime_now is always 2024-07-26 13:14:15.
// Standard output: one line each, {"text": rendered} or {"error": message, "where": "parse"|"render"}.

#include <ctime>
#include <iostream>
#include <optional>
#include <string>

#include "base/json_writer.h"
#include "text/jinja/template.h"
#include "text/json_value.h"

namespace {

using tandem::text::jinja::Dict;
using tandem::text::jinja::Kind;
using tandem::text::jinja::Template;

std::tm fixed_time() {
  std::tm t{};
  t.tm_year = 124;
  t.tm_mon = 6;
  t.tm_mday = 26;
  t.tm_hour = 13;
  t.tm_min = 14;
  t.tm_sec = 15;
  t.tm_isdst = -1;
  std::mktime(&t);  // fills in the day of the week and of the year
  return t;
}

void answer(std::string_view key, std::string_view text, std::string_view where = {}) {
  tandem::JsonWriter out;
  out.begin_object().member(key, text);
  if (!where.empty()) out.member("where", where);
  out.end_object();
  std::cout << out.take() << '\n';
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::optional<tandem::Result<Template>> current;
  const tandem::text::jinja::RenderOptions options{.limits = {}, .now = fixed_time};
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = tandem::text::parse_json(line);
    if (!request || !request->is(Kind::Dict)) {
      answer("error", request ? "not an object" : request.error().message, "input");
      continue;
    }
    const Dict& members = request->as<Dict>();
    if (const auto* source = members.find("template")) current = Template::parse(source->as_string());
    if (!current || !*current) {
      answer("error", current ? current->error().message : "no template", "parse");
      continue;
    }
    tandem::text::jinja::Variables variables;
    if (const auto* given = members.find("variables"))
      for (const auto& [name, value] : given->as<Dict>().entries)
        variables.emplace_back(name.as_string(), value);
    const auto rendered = (*current)->render(variables, options);
    if (rendered) {
      answer("text", *rendered);
    } else {
      answer("error", rendered.error().message, "render");
    }
  }
  std::cout.flush();
}
