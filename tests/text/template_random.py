"""Random small templates: expressions over values of every kind, and statements around them."""

import random

VARIABLES = {
    "s": "Hello, Wörld", "t": "  a b  c\n", "e": "", "i": 7, "n": -3, "z": 0, "f": 2.5, "g": -0.125, "b": True, "no": False,
    "nil": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "m": {"k": "v", "x": 1, "items": [1], "n": {"d": [None, 1.0, "q"]}},
    "rows": [{"name": "x", "age": 3, "tag": "p"}, {"name": "Y", "age": 1, "tag": "q"}, {"name": "z", "age": 2, "tag": "p"}, {"name": "w"}],
    "big": 2**80, "p": [["a", 1], ["b", 2]], "mixed": [1, "1", 1.0, None, True, [1], {"a": 1}],
}
NAMES = list(VARIABLES) + ["missing"]
STRINGS = ["'a'", "'b'", "','", "' '", "'\\n'", '"l"', "'o, W'", "''", "'é'", "'%s-%s'", "'{}:{}'", "'1_0'", "' 12 '", "'3.7e1'", "'\\u00fc\\x41\\t'", "'A b-c d'",
           "'%5d|%-4s|%.2f'", "'it''s'", "'ǆß'", "'k'"]
INTS = ["0", "1", "2", "3", "5", "-1", "-2", "10", "1_000", "0x1f", "100"]
FLOATS = ["1.5", "0.1", "2.0", "1e3", "1e-5", "1e16", "123456789.125", "3.0e2"]
BINARY = ["+", "+", "-", "*", "/", "//", "%", "**", "~", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true",
         "false", "odd", "even", "lower", "upper", "callable", "escaped", "divisibleby 3", "eq 1", "in [1, 'a']", "sameas none", "gt 2",
         "ne none", "lessthan(5)", "divisibleby(2)", "filter", "test"]
FILTERS = ["abs", "capitalize", "count", "default('d')", "default('d', true)", "d", "first", "float", "int", "int(5)", "items|list", "join",
           "join(', ')", "join('-', attribute='name')", "last", "length", "list", "lower", "map('upper')|list", "map(attribute='name')|list",
           "map(attribute='age', default=0)|list", "map('string')|join('/')", "max", "min", "reject('odd')|list", "rejectattr('tag', 'eq', 'p')|list",
           "replace('a', 'XX')", "replace('l', '', 1)", "reverse|list", "round", "round(1)", "round(1, 'floor')", "round(0, 'ceil')", "safe", "select|list",
           "select('string')|list", "selectattr('age')|list", "selectattr('age', 'gt', 1)|list", "sort", "sort(reverse=true)", "sort(attribute='age')",
           "sort(case_sensitive=true)", "string", "sum", "sum(attribute='age')", "sum(start=10)", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "trim", "trim('H ')", "truncate(5)", "truncate(8, true, '..', 0)", "unique|list", "upper",
           "urlencode", "wordcount", "batch(2)|list", "batch(2, 'x')|list", "slice(2)|list", "dictsort", "dictsort(by='value')", "groupby('tag')", "groupby('tag', default='zz')|list",
           "indent", "indent(2, true)", "indent('> ', blank=true)", "center(20)", "format(1, 'x', 2.0)", "format('x', 'y')", "e", "escape", "forceescape", "attr('upper')|string is string", "items|first",
           "sort|first", "list|length", "join|length", "map('length')|list", "map('int')|sum", "min(attribute='age')", "max(case_sensitive=true)", "unique(attribute='tag')|list",
           "selectattr('name', 'in', ['x', 'z'])|map(attribute='name')|join", "select('in', s)|list", "reverse", "items", "first|upper", "last|tojson", "float|round(2)", "string|length", "indent|e"]
METHODS = ["upper()", "lower()", "strip()", "strip('Hd')", "lstrip()", "rstrip('\\n')", "split()", "split(',')", "split(' ', 1)", "rsplit(None, 1)", "rsplit('l', 1)", "splitlines()",
           "startswith('H')", "endswith('d')", "startswith(('a', 'H'))", "replace('l', 'L')", "replace('', '.')", "replace('l', 'L', 1)", "title()", "capitalize()", "swapcase()",
           "find('o')", "rfind('o')", "find('o', 5)", "count('l')", "count('')", "index('l')", "partition(', ')", "rpartition('l')", "join(['x', 'y'])", "join(w)", "center(21, '*')", "ljust(15, '.')", "rjust(15)",
           "zfill(15)", "removeprefix('Hel')", "removesuffix('rld')", "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "istitle()", "isalnum()", "format(1, 2)", "format(s, w)",
           "items()", "keys()", "values()", "get('k')", "get('nope')", "get('nope', 5)", "items()|list", "keys()|list", "values()|list", "copy()", "count(1)", "index(1)", "expandtabs(4)", "append(1)", "pop()", "nope()"]
ATTRIBUTES = [".k", ".n.d", ".x", ".nope", "['k']", "['nope']", "['n']['d']", "[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[5]", ".name", "[0].name", "[-5:2]", "[none:2]", ".items", "['items']", "[1.0]", "[true]", ".0", "[i]", "[n:]", ".__class__", "['__len__']", "[1:5:2]", "[-1:0:-1]"]


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def literal(self, depth):
        r = self.rng
        kind = r.randrange(12)
        if kind < 4:
            return r.choice(STRINGS)
        if kind < 7:
            return r.choice(INTS)
        if kind == 7:
            return r.choice(FLOATS)
        if kind == 8:
            return r.choice(["true", "false", "none", "True", "None", "[]", "{}", "()"])
        items = [self.expression(depth - 1) for _ in range(r.randint(0, 3))]
        if kind == 9:
            return "[" + ", ".join(items) + "]"
        if kind == 10:
            return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"
        keys = ["'k'", "'x'", "1", "1.0", "true", "none", "(1, 2)", "s", "missing", "l"]
        return "{" + ", ".join(f"{r.choice(keys[:3] if r.random() < .7 else keys)}: {item}" for item in items) + "}"

    def atom(self, depth):
        return self.rng.choice(NAMES) if self.rng.random() < 0.65 else self.literal(depth)

    def expression(self, depth):
        r = self.rng
        if depth <= 0:
            return self.atom(0)
        kind = r.randrange(16)
        if kind < 3:
            return self.atom(depth)
        if kind < 6:
            op = r.choice(BINARY)
            right = r.choice(["2", "3", "-1", "0"]) if op == "**" else self.expression(depth - 1)
            return f"{self.expression(depth - 1)} {op} {right}"
        if kind < 7:
            return "(" + self.expression(depth - 1) + ")"
        if kind < 10:
            return f"{self.primary(depth - 1)}|{r.choice(FILTERS)}"
        if kind < 11:
            return f"{self.primary(depth - 1)} is {r.choice(['', '', 'not '])}{r.choice(TESTS)}"
        if kind < 12:
            return f"{self.primary(depth - 1)}.{r.choice(METHODS)}"
        if kind < 13:
            attribute = r.choice(ATTRIBUTES)
            # Jinja folds a slice of a constant with other rules ((10)[1:] is undefined there, an error elsewhere).
            return (r.choice(NAMES) if ":" in attribute else self.primary(depth - 1)) + attribute
        if kind < 14:
            return f"{self.expression(depth - 1)} if {self.expression(depth - 1)}" + (f" else {self.expression(depth - 1)}" if r.random() < .8 else "")
        if kind < 15:
            return r.choice(["not ", "-", "+", "not not ", "- -"]) + self.primary(depth - 1)
        return r.choice([f"range({r.choice(INTS)})|list", f"range({r.choice(INTS)}, {r.choice(INTS)}, {r.choice(['1', '2', '-1', '-3', '0'])})|list", "dict(a=1, b=s)", "dict(m, z=i)",
                         "namespace(a=1).a", "strftime_now('%d %b %Y')", f"1 < {self.atom(0)} <= 3 != 4", "range(3)", "range(5)[1:3]", "m.items()", "cycler('a', 'b').next()", "dict(p)", "joiner()()"])

    def primary(self, depth):
        return self.rng.choice(NAMES) if self.rng.random() < 0.6 else "(" + self.expression(depth) + ")"

    def tag(self, inside):
        r = self.rng
        return "{%" + r.choice(["", "", "-", "+"]) + " " + inside + " " + r.choice(["", "", "-", "+"]) + "%}"

    def output(self, depth=2):
        r = self.rng
        return "{{" + r.choice(["", "", "-"]) + " " + self.expression(depth) + " " + r.choice(["", "", "-"]) + "}}"

    def text(self):
        return self.rng.choice(["", "x", " ", "\n", "  \n", "\n  ", "a\n\n  b", "\t", "\r\n", "}", "{", "# ", "%", "é"])

    def block(self, depth, in_loop=False):
        r = self.rng
        parts = []
        for _ in range(r.randint(1, 3)):
            parts.append(self.text())
            parts.append(self.statement(depth - 1, in_loop))
        parts.append(self.text())
        return "".join(parts)

    def iterable(self):
        return self.rng.choice(["l", "w", "rows", "m", "s", "e", "missing", "range(3)", "[]", "mixed", "m|items", "p", "l|map('string')", "rows|selectattr('age')", "i", "l[::-1]"])

    def statement(self, depth, in_loop):
        r = self.rng
        if depth <= 0:
            return self.output(1 if r.random() < 0.5 else 2)
        kind = r.randrange(19)
        name = r.choice(["a", "c", "x", "l", "s"])
        if kind < 4:
            return self.output()
        if kind < 6:
            return self.tag(f"set {name} = {self.expression(2)}")
        if kind < 9:
            out = self.tag(f"if {self.expression(1)}") + self.block(depth, in_loop)
            if r.random() < 0.4:
                out += self.tag(f"elif {self.expression(1)}") + self.block(depth, in_loop)
            if r.random() < 0.5:
                out += self.tag("else") + self.block(depth, in_loop)
            return out + self.tag("endif")
        if kind < 12:
            target = r.choice([name, name, "v", "k, v", "(k, v)"])
            iterable = r.choice(["m.items()", "p", "m|items", "rows|groupby('tag')"]) if "," in target else self.iterable()
            condition = r.choice(["", "", f" if {r.choice(['v', 'loop', name, 'x'])}", " if v != 1"]) if "," in target or r.random() < 0.3 else ""
            loop = r.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.first }}", "{{ loop.length }}/{{ loop.revindex }}", "{{ loop.previtem }}<{{ loop.nextitem }}",
                             "{{ loop.cycle('o', 'e') }}", "{{ loop.changed(" + name + ") }}", "{{ loop.depth }}{{ loop.nope }}", "{{ loop.revindex0 }}"])
            out = self.tag(f"for {target} in {iterable}{condition}") + loop + self.block(depth, True)
            if r.random() < 0.3:
                out += self.tag("else") + self.block(depth, in_loop)
            return out + self.tag("endfor")
        if kind < 13:
            parameters = r.choice(["", "a", "a, c=2", "a=1, c=a", "c=x"])
            arguments = r.choice(["", "1", "s", "a=3", "1, 2", "c=5", "*l", "**m", "1, a=2"])
            extra = r.choice(["", "", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}"])
            return self.tag(f"macro f({parameters})") + extra + self.block(depth) + self.tag("endmacro") + "{{ f(" + arguments + ") }}"
        if kind < 14:
            return self.tag(f"set ns = namespace(v={self.expression(1)})") + self.tag(f"for q in {self.iterable()}") + self.tag(f"set ns.v = {r.choice(['q', 'ns.v ~ 1', 'loop.index', self.expression(1)])}") + self.tag("endfor") + "{{ ns.v }}"
        if kind < 15 and in_loop:
            return self.tag(f"if {self.expression(1)}") + self.tag(r.choice(["break", "continue"])) + self.tag("endif")
        if kind < 16:
            return self.tag(f"set {name}{r.choice(['', '', ' | upper', ' | trim | length'])}") + self.block(depth, in_loop) + self.tag("endset") + "{{ " + name + " }}"
        if kind < 17:
            return self.tag(f"filter {r.choice(['upper', 'trim', 'replace(s, i)', 'indent(2)'])}") + self.block(depth, in_loop) + self.tag("endfilter")
        if kind < 18:
            return r.choice([self.tag(f"with {name} = {self.expression(1)}, h = {name}") + self.block(depth, in_loop) + self.tag("endwith"),
                             self.tag("macro g(a='d')") + "<{{ caller(a) }}>" + self.tag("endmacro") + self.tag(r.choice(["call(y) g()", "call(y='q') g(1)", "call g()"])) + "{{ y }}" + self.block(depth) + self.tag("endcall"),
                             self.tag("generation") + self.block(depth) + self.tag("endgeneration")])
        return r.choice(["{# note #}", "{#- note -#}", "\n  {# note #}\n", "{% raw %}{{ x }}{% endraw %}", "  {%- raw -%} {% x %} {%- endraw %}\n", "{{ raise_exception('no ' ~ " + self.atom(0) + ") }}",
                         self.tag("print " + self.expression(1)), self.tag("set a, c = " + r.choice(["1, 2", "l", "'xy'", "p[0]", "s"])) + "{{ a }}{{ c }}", "{{ x }}{% if b %}{% set x = i %}{% endif %}{{ x }}"])


BROKEN = ["{{ x", "{% if %}{% endif %}", "{% for x in %}{% endfor %}", "{{ 'a }}", "{{ (1 }}", "{{ 1) }}", "{{ a..b }}", "{% endif %}", "{% if x %}", "{% else %}", "{{ x|nofilter }}", "{{ x is notest }}",
          "{% if false %}{{ x|nofilter }}{% endif %}ok", "{% if true %}{{ x|nofilter }}{% endif %}", "{{ 1|nofilter if false else 2 }}", "{% macro %}{% endmacro %}", "{% set true = 1 %}", "{% for loop in l %}{% endfor %}",
          "{% for a in l %}{% set loop = 1 %}{% endfor %}", "{% break %}", "{% set x = %}", "{{ [1, 2 }}", "{{ {1: 2] }}", "{# open", "{% raw %}x", "{{ 1 2 }}", "{{ a b }}", "{{ f(a=1, 2) }}", "{{ f(*a, *b) }}",
          "{% call x %}{% endcall %}", "{% nope %}", "{{ x is }}", "{{ not }}", "{{ }}", "{% %}", "{{ a if }}", "{% for x in l %}{% if x %}{% endfor %}", "{{ x is a is b }}", "{{ 'a' 'b' }}", "{{ - }}", "{{ 1 if 0 }}", "{{ (1 if 0).x }}",
          "{% set a.b = 1 %}", "{% set l.b = 1 %}", "{% with %}{% endwith %}", "{{ a[1:2:3:4] }}", "{{ a[] }}", "{{ ! }}", "{{ a ? b }}", "{{ '\\x4' }}", "{{ 0x }}", "{{ 1__0 }}", "{{ 07 }}", "{{ 1.e5 }}", "{{ .5 }}", "{{ 5.real }}", "}}", "%}", "{",
          "{%- -%}", "{{- -}}", "{% if x -%}\n{% endif %}", "a {%- if true %} b {% endif -%} c", "\n", "\n\n", "", "a\n", "{% filter upper %}x", "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% set x %}a{% endset x %}"]


def templates(seed, count):
    """(source, [variables]) pairs, `count` of them and the broken ones."""
    for source in BROKEN:
        yield source, [VARIABLES]
    rng = random.Random(seed)
    generator = Generator(rng)
    for i in range(count):
        if i % 2 == 0:
            yield "{{ " + generator.expression(rng.randint(1, 4)) + " }}", [VARIABLES]
        else:
            yield generator.block(rng.randint(1, 4)), [VARIABLES]
