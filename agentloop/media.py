"""Images and files, told by their bytes, as the parts of messages that hold them.

A part is that of chat completions: `image_url`, or `file` for a PDF; a text is a text part behind its name.
What it holds is a URL: one of the web, a `data:` URL, or in a log a `blob:` URL, which names by its hash what
is kept beside the log. The latter two say the name of what they hold, and its size in pixels, as parameters:

    data:image/png;name=shot.png;base64,iVBORw0…    blob:image/png;name=shot.png;size=1280x720;sha256=9f86d0…

Types and sizes are read from the headers of PNG (https://www.w3.org/TR/png-3/#11IHDR), GIF
(https://www.w3.org/Graphics/GIF/spec-gif89a.txt), JPEG (ITU-T T.81, annex B) and WebP (RFC 9649).
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote

from agentloop._plumbing.checks import shown
from agentloop._plumbing.files import beginning_of
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

Detail: TypeAlias = Literal["auto", "low", "high"]

MOST_IMAGE_BYTES = 20_000_000
"""A larger image is refused: few servers take one, and a screenshot has a tenth of it."""
MOST_FILE_BYTES = 32_000_000
"""A larger file is refused: the most that OpenAI takes as the input files of one request was 32 MB
(https://platform.openai.com/docs/guides/pdf-files)."""
MOST_TEXT_FILE_BYTES = 1_000_000
"""A longer text is refused: it is 250,000 tokens, more than most windows; a tool reads it piece by piece."""
MOST_INLINE_CHARS = 2_000
"""A longer `data:` URL is kept beside the log."""

_HELD = pattern(r"(data|blob):([\w.+-]+/[\w.+-]+)((?:;[a-z0-9]+=[\w.%x~-]*)*)(;base64,)?")
_MEDIA_URL = pattern(
    r"data:[\w.+-]+/[\w.+-]+(;[a-z0-9]+=[\w.%x~-]*)*;base64,[\w+/=\r\n-]*|blob:[\w.+;=/%~-]+"
)
_HEADER_CHARS = 400_000
"""A JPEG tells its size behind what cameras write in front of it, which seldom has more than 200 kB."""


@dataclass(frozen=True, kw_only=True)
class _Given:
    """What is given by a path, by its bytes or by a URL; a file is read at once."""

    path: str | Path | None = None
    data: bytes | None = field(default=None, repr=False)
    url: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        given = [each for each in (self.path, self.data, self.url) if each is not None]
        if len(given) != 1:
            raise UsageError(f"{kind} takes one of path=, data= and url=")
        if not isinstance(self.path, str | Path | None) or not isinstance(self.data, bytes | None):
            raise UsageError(f"{kind} takes a path, or data as bytes, not {shown(given[0])}")
        if self.url is not None and not (isinstance(self.url, str) and _WEB.match(self.url)):
            raise UsageError(f"{kind}(url=) takes an https:// address, not {shown(self.url)}")
        if not isinstance(self.name, str | None):
            raise UsageError(f"the name of an {kind} is a text, not {shown(self.name)}")
        if self.path is not None:
            object.__setattr__(self, "data", _read(Path(self.path)))
            object.__setattr__(self, "name", self.name or Path(self.path).name)


@dataclass(frozen=True, kw_only=True)
class Image(_Given):
    """An image, for a prompt or as what a tool returns: PNG, JPEG, GIF or WebP, told by its bytes.

    It is read when it is made. `detail` is how closely the model is to look, `low` for few tokens; `name` is
    what it is called, by default as its file. One at a URL is fetched by the model's server, and never here.

    Example:
        >>> Image(url="https://example.com/plan.png").parts
        ({'type': 'image_url', 'image_url': {'url': 'https://example.com/plan.png'}},)

    Raises:
        UsageError: it is none of these, larger than 20 MB, or cannot be read.
    """

    detail: Detail | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.detail not in (None, "auto", "low", "high"):
            raise UsageError(f"detail must be auto, low or high, not {shown(self.detail)}")
        if self.data is not None:
            _check_bytes(self, self.data, MOST_IMAGE_BYTES)
            if not (type_of(self.data) or "").startswith("image/"):
                raise UsageError(f"{_called(self)} is no PNG, JPEG, GIF or WebP image")

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """The parts of a message that hold it."""
        url = self.url or _data_url(self.data or b"", self.name)
        detail = {} if self.detail is None else {"detail": self.detail}
        return ({"type": "image_url", "image_url": {"url": url, **detail}},)


@dataclass(frozen=True, kw_only=True)
class File(_Given):
    """A file, for a prompt or as what a tool returns: a PDF, an image, or any text in UTF-8.

    It is read when it is made, and told by its bytes. A text stands in the message as text, behind its name.

    Raises:
        UsageError: it is none of these, larger than 32 MB (a text: 1 MB), or cannot be read; or it is given
            by a URL, which chat completions take for images alone.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.url is not None:
            raise UsageError("File takes no url: servers fetch images alone; give its path or its bytes")
        data = self.data or b""
        kind = type_of(data)
        _check_bytes(
            self, data, {None: MOST_TEXT_FILE_BYTES, _PDF: MOST_FILE_BYTES}.get(kind, MOST_IMAGE_BYTES)
        )
        if kind is None and _text_in(data) is None:
            raise UsageError(f"{_called(self)} is no PDF, no image, and no text in UTF-8")

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """The parts of a message that hold it."""
        data, kind = self.data or b"", type_of(self.data or b"")
        if kind is None:
            return ({"type": "text", "text": f"[file {self.name or 'without a name'}]\n{_text_in(data)}"},)
        if kind != _PDF:
            return Image(data=data, name=self.name).parts
        name = self.name or "file.pdf"
        return ({"type": "file", "file": {"filename": name, "file_data": _data_url(data, name)}},)


@dataclass(frozen=True, slots=True)
class Medium:
    """What the URL of a part says of what it holds; `size` is the width and height of an image in pixels.

    `sha256` is the hash of what is kept beside the log, None for any other.
    """

    type: str = ""
    name: str | None = None
    size: tuple[int, int] | None = None
    sha256: str | None = None


def media_url(part: Mapping[str, Any]) -> str | None:
    """The URL in a part that holds an image or a file; None for any other part."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return url
        case {"type": "file", "file": {"file_data": str(url)}}:
            return url
    return None


def with_url(part: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The part with another URL for what it holds."""
    if part["type"] == "file":
        return {**part, "file": {**part["file"], "file_data": url}}
    held = part["image_url"]
    return {**part, "image_url": {**held, "url": url} if isinstance(held, Mapping) else url}


def held_by(url: str) -> Medium:
    """What the URL says of what it holds; nothing where that lies in the web."""
    found = _HELD.match(url)
    if found is None:
        return Medium()
    said = dict(pair.partition("=")[::2] for pair in found[3].split(";") if pair)
    size = None
    if wide := _SIZE.fullmatch(said.get("size", "")):
        size = int(wide[1]), int(wide[2])
    elif found[1] == "data" and found[2].startswith("image/") and found[4]:
        size = size_of(_bytes_in(url[found.end() : found.end() + _HEADER_CHARS]))
    name = unquote(said["name"]) if said.get("name") else None
    return Medium(found[2], name, size, said.get("sha256") if found[1] == "blob" else None)


def bare(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part with a `data:` URL that says nothing but the type, as servers take it; any other as it is."""
    url = media_url(part)
    found = _HELD.match(url) if url else None
    if not url or found is None or found[1] != "data" or not found[3] or not found[4]:
        return part
    return with_url(part, f"data:{found[2]};base64,{url[found.end() :]}")


def named_url(url: str, name: str | None) -> str:
    """A `data:` URL that says nothing but the type, saying this name too."""
    return url.replace(";base64,", f";name={_quoted(name)};base64,", 1) if name else url


def blob_url(url: str, sha256: str) -> str:
    """The URL of what is kept by that hash in place of this `data:` URL, with all that it says."""
    held = held_by(url)
    name = f";name={_quoted(held.name)}" if held.name else ""
    size = f";size={held.size[0]}x{held.size[1]}" if held.size else ""
    return f"blob:{held.type}{name}{size};sha256={sha256}"


def is_media_url(text: str) -> bool:
    """Whether the text holds nothing but what a machine has encoded, or kept: no word of anybody's."""
    return text.startswith(("data:", "blob:")) and _MEDIA_URL.fullmatch(text) is not None


def with_words(url: str, change: Callable[[str], str]) -> str:
    """The URL of a part with the words that it says, such as a name, changed by this; what it holds stays.

    Example:
        >>> with_words("blob:image/png;name=a%20cat.png;sha256=9f86", lambda text: text.replace("cat", "dog"))
        'blob:image/png;name=a%20dog.png;sha256=9f86'
    """
    found = _HELD.match(url)
    if found is None or not found[3]:
        return url
    pairs = [pair.partition("=") for pair in found[3].split(";")[1:]]
    said = (f";{key}={value if key == 'sha256' else _changed(value, change)}" for key, _, value in pairs)
    return f"{url[: found.start(3)]}{''.join(said)}{url[found.end(3) :]}"


def _changed(quoted: str, change: Callable[[str], str]) -> str:
    words = unquote(quoted)
    clean = change(words)
    return quoted if clean == words else _quoted(clean)


def label_of(part: Mapping[str, Any]) -> str | None:
    """What a part holds that is no text, in words such as `image shot.png 1280×720`; None for any other.

    Example:
        >>> label_of({"type": "image_url", "image_url": {"url": "blob:image/png;size=64x48;sha256=0f"}})
        'image 64×48'
    """
    url = media_url(part)
    if url is None:
        return None
    held = held_by(url)
    name = held.name or (part["file"].get("filename") if part["type"] == "file" else _address(url))
    words = [
        "image" if part["type"] == "image_url" else "file",
        " ".join(str(name).split())[:_MOST_NAME_CHARS] if name else "",
        f"{held.size[0]}×{held.size[1]}" if held.size else "",
    ]
    return " ".join(filter(None, words))


def type_of(data: bytes) -> str | None:
    """The media type by the first bytes: PNG, JPEG, GIF, WebP or PDF; None for any other."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), None)


def size_of(data: bytes) -> tuple[int, int] | None:
    """The width and height in pixels that the header of an image says; None where it says none."""
    try:
        match type_of(data):
            case "image/png":
                size = struct.unpack_from(">II", data, 16)
            case "image/gif":
                size = struct.unpack_from("<HH", data, 6)
            case "image/jpeg":
                size = _size_of_jpeg(data)
            case "image/webp":
                size = _size_of_webp(data)
            case _:
                return None
    except (struct.error, IndexError):
        return None
    return (size[0], size[1]) if min(size) > 0 else None


def _size_of_jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        while data[at + 1] == 0xFF:
            at += 1
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + max(2, length)


def _size_of_webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X" if len(data) >= 30:
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L" if len(data) >= 25:
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_PATCHED: Mapping[str, float] = {
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "o4-mini": 1.72,
}
_TILED: Mapping[str, tuple[int, int]] = {
    "gpt-4o-mini": (2833, 5667),
    "gpt-5": (70, 140),
    "o1": (75, 150),
    "o3": (75, 150),
    "computer-use-preview": (65, 129),
    "": (85, 170),
}
_MOST_PATCHES = 1_536
_LARGEST = (2_048, 768)
"""What has most tokens; an image whose size nobody knows counts as one of it."""


def image_tokens(model: str, size: tuple[int, int] | None, *, low: bool = False) -> int:
    """The tokens of an image of that size, by the rules that OpenAI publishes for its models.

    Small models see patches of 32 pixels, at most 1,536 of them, times a factor. All others see tiles of 512
    pixels of the image fitted into 2,048 by 2,048 and then to 768 on its shorter side, and have a base, which
    is all that low detail costs. Source: "Images and vision", calculating costs
    (https://platform.openai.com/docs/guides/images-vision#calculating-costs). Others' models count as GPT-4o.

    Example:
        >>> [image_tokens("gpt-4o", size) for size in ((1024, 1024), (2048, 4096), None)]
        [765, 1105, 1445]
    """
    width, height = size or _LARGEST
    name = model.rpartition("/")[2]
    if factor := next((_PATCHED[known] for known in _PATCHED if name.startswith(known)), None):
        return math.ceil(_patches(width, height) * factor) if size else math.ceil(_MOST_PATCHES * factor)
    base, tile = next(_TILED[known] for known in _TILED if name.startswith(known))
    if low:
        return base
    scale = min(1.0, 2_048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return base + tile * math.prod(max(1, math.ceil(round(side * scale) / 512)) for side in (width, height))


def _patches(width: int, height: int) -> int:
    if (patches := math.ceil(width / 32) * math.ceil(height / 32)) <= _MOST_PATCHES:
        return patches
    scale = math.sqrt(32 * 32 * _MOST_PATCHES / (width * height))
    wide, high = width * scale / 32, height * scale / 32
    shrink = min(max(1, math.floor(wide)) / wide, max(1, math.floor(high)) / high)
    return min(_MOST_PATCHES, math.ceil(round(wide * shrink, 6)) * math.ceil(round(high * shrink, 6)))


_PDF = "application/pdf"
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": _PDF,
}
_WEB = pattern(r"https?://\S+\Z")
_SIZE = pattern(r"(\d{1,9})x(\d{1,9})")
_MOST_NAME_CHARS = 80
_MOST_PATH_CHARS = 200


def _read(path: Path) -> bytes:
    try:
        return bytes(beginning_of(path, MOST_FILE_BYTES + 1))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {str(path)[:_MOST_PATH_CHARS]!r}: check the path") from error
    except (OSError, ValueError) as error:
        fault = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(str(path))} cannot be read: {fault}") from error


def _check_bytes(given: _Given, data: bytes, most: int) -> None:
    if not data:
        raise UsageError(f"{_called(given)} is empty")
    if len(data) > most:
        raise UsageError(f"{_called(given)} is larger than {most // 1_000_000} MB, the most that is taken")


def _called(given: _Given) -> str:
    return shown(given.name) if given.name else f"what was given as {type(given).__name__}(data=)"


def _text_in(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _data_url(data: bytes, name: str | None) -> str:
    named = f";name={_quoted(name)}" if name else ""
    return f"data:{type_of(data)}{named};base64,{base64.b64encode(data).decode()}"


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "replace"), safe="")


def _bytes_in(text: str) -> bytes:
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _address(url: str) -> str | None:
    return url if _WEB.match(url) else None
