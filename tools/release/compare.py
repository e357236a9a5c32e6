"""Compares two programs byte by byte, and prints which sections differ and where.

  python3 tools/release/compare.py FIRST SECOND
"""

import hashlib
import struct
import sys
from pathlib import Path

CONTEXT = 24


def sections(program):
    """Name, offset and content of every section of a 64-bit little-endian ELF file."""
    if program[:6] != b"\x7fELF\x02\x01":
        sys.exit("failed to compare: not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", program, 0x28)
    size, count, names = struct.unpack_from("<HHH", program, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", program, table + size * number) for number in range(count)]
    for name, kind, _, _, offset, length in headers:
        start = headers[names][4] + name
        text = program[start : program.index(b"\0", start)].decode()
        # A section of type NOBITS has no content in the file.
        yield text, offset, b"" if kind == 8 else program[offset : offset + length]


def differences(first, second):
    """One line per section that differs. Bytes outside of sections are headers and padding."""
    others = {name: (offset, content) for name, offset, content in sections(second)}
    for name, offset, content in sections(first):
        if name not in others:
            yield f"{name or 'section 0'}: only in the first"
            continue
        other_offset, other = others.pop(name)
        if content == other:
            continue
        different = [place for place, (a, b) in enumerate(zip(content, other)) if a != b]
        place = different[0] if different else min(len(content), len(other))
        around = slice(max(0, place - CONTEXT), place + CONTEXT)
        yield (
            f"{name}: {len(content)} and {len(other)} bytes, {len(different)} of them differ\n"
            f"  first at byte {offset + place} and {other_offset + place} of the files\n"
            f"  {content[around]}\n"
            f"  {other[around]}"
        )
    yield from (f"{name}: only in the second" for name in others)


def main():
    first, second = (Path(name).read_bytes() for name in sys.argv[1:3])
    for name, program in zip(sys.argv[1:3], (first, second)):
        print(f"{hashlib.sha256(program).hexdigest()}  {name}, {len(program)} bytes")
    if first == second:
        print("the programs are identical")
        return
    lines = list(differences(first, second))
    print("\n".join(lines or ["only headers or padding differ"]))
    different = sum(a != b for a, b in zip(first, second)) + abs(len(first) - len(second))
    sys.exit(f"the programs differ in {different} bytes and {len(lines)} sections")


main()
