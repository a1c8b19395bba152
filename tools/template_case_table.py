"""Prints src/text/jinja/special_case.inc: the case mappings that yield more than one character.

Usage: python tools/template_case_table.py > src/text/jinja/special_case.inc
"""

import sys


def escaped(text):
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode("utf-8")) + '"'


def main():
    print("// Written by tools/template_case_table.py. {code point, upper, title}")
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code <= 0xDFFF:
            continue
        c = chr(code)
        if len(c.upper()) > 1 or len(c.title()) > 1:
            print(f"{{0x{code:04x}, {escaped(c.upper())}, {escaped(c.title())}}},")


if __name__ == "__main__":
    main()
