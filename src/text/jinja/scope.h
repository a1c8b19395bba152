#pragma once

#include "text/jinja/ast.h"

namespace tandem::text::jinja {

// Gives every variable of a parsed template its slot and every filter and test its function.
//
// Jinja's scopes, as its compiler builds them: a template, a macro and a call block are functions; for,
// with, filter and block set open a scope inside one; if opens none. A scope's variables start from the
// scope around it (an assignment inside a loop therefore is not seen outside), or from the context when
// they are read before, or set in only some branches; a macro reads the variables around it when it is
// called.
//
// Throws Failure::Syntax: a filter or test that does not exist (inside `if` or `a if b else c` that is an
// error only when it is reached, as in Jinja), an assignment to `loop` inside a for.
void resolve_scopes(TemplateTree& tree);

}  // namespace tandem::text::jinja
