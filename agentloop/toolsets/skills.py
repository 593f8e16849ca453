"""Skills: folders of instructions, which a model reads when it needs them.

A skill is a folder with a `SKILL.md`: its name and description between two lines of `---`, then the text
(https://agentskills.io/specification).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import few
from agentloop.context import results_of
from agentloop.errors import RetryTool, UsageError
from agentloop.messages import SeenMessage
from agentloop.prompts import (
    SKILL,
    SKILL_FILE,
    SKILL_FILES,
    SKILL_NOT_KEPT,
    SKILLS,
    SKILLS_MORE,
    first_given,
)
from agentloop.tools import Tool, ToolSet, tool, tools_of
from agentloop.workspace import Folder, WorkspaceError

READ_SKILL = "read_skill"
SKILL_MD = "SKILL.md"

MOST_DESCRIPTION_CHARS = 1_024
MOST_FILES_NAMED = 100
MOST_LISTED_CHARS = 40_000
"""So much of the instructions is of skills, at most: about ten thousand tokens. Our own figure."""

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT = pattern(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.S | re.M)
_LINE_END = pattern(r"\r\n?")
_CONTROL = pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FIELD = pattern(r"([A-Za-z0-9_-]+):[ \t]*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill: what it is for, and the folder that it may read from."""

    name: str
    description: str
    folder: Folder


@dataclass(frozen=True)
class Skills(ToolSet):
    """The skills in the folders below `folder`, and the tool `read_skill` that reads them.

    Names and descriptions stand in the instructions of every request; the text is read when the model asks
    for it. So are other files of a skill, and nothing outside of its folder. What was read stays in sight
    over compactions, the newest first, as far as it has room; of others the name is told.

    The folder is looked through once, here. A folder in it without a `SKILL.md` is none of a skill. Of many
    those are listed that fit into `MOST_LISTED_CHARS`, by their folders; `read_skill` tells the names
    of others that hold a word.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> from tempfile import TemporaryDirectory
        >>> text = "---\\nname: tea\\ndescription: How tea is made here.\\n---\\nBoil the water."
        >>> with TemporaryDirectory() as place:
        ...     Path(place, "tea").mkdir()
        ...     _ = Path(place, "tea", "SKILL.md").write_text(text)
        ...     skills = Skills(place)
        >>> print(skills.instructions.splitlines()[-1])
        - tea: How tea is made here.

    Raises:
        UsageError: there is no such folder, or no skill in it; a `SKILL.md` has no name or no description, or
            lies outside by a link; two skills have one name.
    """

    folder: Path | str
    skills: Mapping[str, Skill] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | Path) or self.folder == "":
            raise UsageError(f"folder must be the path of a folder with skills, not {shown(self.folder)}")
        if not Path(self.folder).is_dir():
            what = "is no folder" if Path(self.folder).exists() else "is not there"
            raise UsageError(f"folder {shown(str(self.folder))} {what}: name a folder with skills")
        found: dict[str, Skill] = {}
        for skill in _skills_in(Path(os.path.realpath(self.folder))):
            if skill.name in found:
                raise UsageError(f"two skills in {shown(str(self.folder))} are called {skill.name!r}")
            found[skill.name] = skill
        if not found:
            is_one = Path(self.folder, SKILL_MD).is_file()
            way = (
                "it is one itself, so name the folder above it"
                if is_one
                else "one is a folder with a SKILL.md"
            )
            raise UsageError(f"there is no skill in {shown(str(self.folder))}: {way}")
        object.__setattr__(self, "skills", MappingProxyType(found))

    @property
    def tools(self) -> Sequence[Tool]:
        """The one tool."""
        return tools_of(self.read_skill)

    @property
    def instructions(self) -> str:
        """What each skill is for."""
        lines, left = list[str](), MOST_LISTED_CHARS
        for skill in self.skills.values():
            lines.append(f"- {skill.name}: {skill.description}")
            left -= len(lines[-1])
            if left < 0:
                lines[-1] = SKILLS_MORE.format(count=len(self.skills) - len(lines) + 1)
                break
        return SKILLS.format(skills="\n".join(lines))

    @tool(idempotent=True, keep=True)
    def read_skill(self, name: str, file: str = SKILL_MD) -> str:
        """Read a skill by its name, or a file that the skill speaks of.

        Args:
            name: The name of the skill.
            file: A file in its folder; the skill itself without one.

        Raises:
            RetryTool: there is no such skill, or no such file of text in its folder.
        """
        if (skill := self.skills.get(name)) is None:
            near = sorted(self.skills, key=lambda each: name.lower() not in each.lower())
            raise RetryTool(f"there is no skill {name[:100]!r}: there are {few(near, MOST_FILES_NAMED)}")
        try:
            text = skill.folder.read(file).decode("utf-8-sig")
            if skill.folder.inside(file) != (SKILL_MD,):
                return f"{SKILL_FILE.format(file=file, name=name)}\n{text}"
            others = sorted(each for each in skill.folder.walk("") if each != SKILL_MD)
        except WorkspaceError as error:
            raise RetryTool(str(error)) from error
        except UnicodeDecodeError as error:
            raise RetryTool(f"{file!r} is no text in UTF-8 and cannot be read") from error
        files = f"\n{SKILL_FILES.format(files=', '.join(others[:MOST_FILES_NAMED]))}" if others else ""
        return f"{SKILL.format(name=name)}\n{_FRONT.sub('', _plain(text)).strip()}{files}"

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """The skills that were read and are out of sight, newest first: whole, or by name."""
        read = list(_read_in(said))
        done = {name for name, result in read if result.in_sight}
        kept = ""
        for name, result in read:
            if name not in done:
                done.add(name)
                for text in (first_given(result.message.text), SKILL_NOT_KEPT.format(name=name)):
                    longer = f"{kept}\n\n{text}".strip()
                    if fits(longer):
                        kept = longer
                        break
        return kept


def _skills_in(root: Path) -> Iterator[Skill]:
    for path in sorted(root.iterdir()):
        if not (path / SKILL_MD).is_file():
            continue
        where = f"{path.name}/{SKILL_MD}"
        try:
            home = root.joinpath(*Folder(root=root).inside(path.name))
            text = Folder(root=home).read(SKILL_MD).decode("utf-8-sig")
        except (WorkspaceError, UnicodeDecodeError) as error:
            raise UsageError(f"{where} cannot be read: {error}") from error
        front = _fields(text)
        name, description = front.get("name", ""), front.get("description", "")
        if not _NAME.fullmatch(name):
            wanted = "a name of 1 to 64 letters, digits and hyphens"
            raise UsageError(f"{where} must have {wanted} between two lines of ---, not {shown(name)}")
        if not description:
            raise UsageError(f"{where} must have a description between two lines of ---")
        yield Skill(name=name, description=description[:MOST_DESCRIPTION_CHARS], folder=Folder(root=home))


def _fields(text: str) -> Mapping[str, str]:
    """The fields at the head of a file, each on one line; an indented line goes on with the one before."""
    found: dict[str, str] = {}
    name = ""
    head = _FRONT.match(_plain(text))
    for line in head[1].split("\n") if head else ():
        if line[:1] in (" ", "\t") and name:
            found[name] = f"{found[name]} {line.strip()}".strip()
        elif pair := _FIELD.match(line):
            name, value = pair[1], pair[2].strip()
            found[name] = "" if value in ("|", ">", "|-", ">-") else value
    return {name: _unquoted(" ".join(_CONTROL.sub(" ", value).split())) for name, value in found.items()}


def _plain(text: str) -> str:
    """The text without marks of its encoding, its lines ended as we end them."""
    return _LINE_END.sub("\n", text.lstrip("\ufeff"))


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _read_in(said: Sequence[SeenMessage]) -> Iterator[tuple[str, SeenMessage]]:
    """The skills that were read, by their names, with the result of each reading; newest first."""
    for call, result in results_of(READ_SKILL, said):
        name = str((call.decoded() or {}).get("name"))
        if result.message.text.startswith(SKILL.format(name=name)):
            yield name, result
