"""Images made by hand: headers that say a size, and as many bytes as a test wants."""

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, bytes_more: int = 0) -> bytes:
    """A PNG of that size; its text chunk makes it longer."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + _chunk(b"tEXt", b"x" * bytes_more) + _chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """A JPEG of that size, behind what a camera writes."""
    camera = b"\xff\xe1" + struct.pack(">H", 2 + 70_000 % 65_000) + b"e" * (70_000 % 65_000)
    return b"\xff\xd8" + camera + b"\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + b"\x03" * 12


def gif(width: int, height: int) -> bytes:
    """A GIF of that size."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 9


def webp(width: int, height: int, form: str) -> bytes:
    """A WebP of that size: extended (`VP8X`), lossless (`VP8L`) or lossy (`VP8 `)."""
    body = {
        "VP8X": b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        "VP8L": b"\x2f" + (width - 1 | (height - 1) << 14).to_bytes(4, "little"),
        "VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[form]
    return b"RIFF\0\0\0\0WEBP" + form.encode() + struct.pack("<I", len(body)) + body


PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n%%EOF\n"
