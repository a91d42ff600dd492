"""Write cython_kernels/unicode_classes.h: ``unicode_classes.py [--check]``.

Token ids depend on which characters are letters, numbers and punctuation (columns.md 13.4), and these change from one
version of Unicode to the next. The library that defines the format uses Unicode 17, CPython what its release ships;
the table therefore comes from the package ``unicodedata2`` of exactly that version (``pip install
unicodedata2==17.0.0``). It is needed only here, by whoever regenerates the table.

Two levels: a code point's block of 128 names one of the distinct blocks, which holds two classes per byte.
"""

from __future__ import annotations

import sys
from pathlib import Path

import unicodedata2

VERSION = "17.0.0"
TARGET = Path(__file__).resolve().parents[1] / "cython_kernels" / "unicode_classes.h"
BLOCK = 128
OTHER, LETTER, NUMBER, SPACE, PUNCTUATION = range(5)
WHITE_SPACE = {
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
}
ASCII_PUNCTUATION = {*range(0x21, 0x30), *range(0x3A, 0x41), *range(0x5B, 0x61), *range(0x7B, 0x7F)}


def class_of(code: int) -> int:
    """Return the class of one code point; the classes exclude each other (columns.md 13.4, steps 3 and 4)."""
    if code in WHITE_SPACE:
        return SPACE
    category = unicodedata2.category(chr(code))
    if code in ASCII_PUNCTUATION or (code >= 0x80 and category[0] == "P"):
        return PUNCTUATION
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def lines(values: list[int]) -> str:
    """Return `values` as the inside of a C initialiser, in lines of about 118 characters."""
    out, line = [], ""
    for value in values:
        item = f"{value},"
        if len(line) + len(item) > 116:
            out.append(line)
            line = ""
        line += item
    return "\n".join(f"  {text}" for text in [*out, line])


def header() -> str:
    """Return the text of the header."""
    classes = [class_of(code) for code in range(0x110000)]
    numbers: dict[tuple[int, ...], int] = {}
    index = [
        numbers.setdefault(tuple(classes[start : start + BLOCK]), len(numbers))
        for start in range(0, len(classes), BLOCK)
    ]
    packed = [low | high << 4 for block in numbers for low, high in zip(block[::2], block[1::2], strict=True)]
    kind = "uint8_t" if len(numbers) <= 256 else "uint16_t"
    return f"""/* Classes of characters, Unicode {VERSION}. Written by tools/unicode_classes.py; do not edit. */
#ifndef COLSTORE_UNICODE_CLASSES_H
#define COLSTORE_UNICODE_CLASSES_H

#include <stdint.h>

#define UNICODE_CLASSES_VERSION "{VERSION}"

enum {{ CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_PUNCTUATION }};

static const {kind} class_blocks[{len(index)}] = {{
{lines(index)}
}};

static const uint8_t class_pairs[{len(packed)}] = {{
{lines(packed)}
}};

/* `code` must be below 0x110000. */
static inline int class_of(uint32_t code) {{
  return class_pairs[((uint32_t)class_blocks[code >> 7] << 6) + ((code & 127) >> 1)] >> ((code & 1) << 2) & 15;
}}

#endif
"""


if __name__ == "__main__":
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, wanted {VERSION}")
    text = header()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text() == text else f"{TARGET} is not what this script writes")
    TARGET.write_text(text)
