"""What keys of known providers look like: one table of shapes, and what is found in a text without a pattern.

The prefixes and lengths are what providers document or show, and what secret scanning at GitHub
(https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns)
and GitLab (https://docs.gitlab.com/security/tokens/#token-prefixes), gitleaks
(https://github.com/gitleaks/gitleaks) and TruffleHog (https://github.com/trufflesecurity/trufflehog) name.
A shape with few fixed letters asks for more: `sk-` and words with hyphens is a CSS class or a package, `sk-`
and a long run of letters and digits a key. They are looked for in views of a text that have its escapes read
and its colours gone, so no pattern knows of any.

Each pattern takes time linear in the text: it begins with letters that stand for themselves, or can begin
only where a run of such characters does; what repeats is bounded, or is never given back. A run behind a
prefix is taken to its end, so that no key begins right behind another one.

`Shape` comes first, then what patterns are put together from, then the table. Behind it stand the blocks in
PEM form that no pattern finds in linear time, and the words that a text in pieces is parted at.
"""

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError
from agentloop.redaction.views import BREAK, UNSEEN_LETTERS

MOST_WORDS = 40
"""So many words of one line a match may have, with at most eight blanks between them: a header of cookies."""

_FEW_WORDS = 6
"""So many if nothing else is said: an assignment has three, the head of a block in PEM form up to five."""


class Anchor(NamedTuple):
    """A pattern of what stands in the middle of each match, and how many letters of it stand before that."""

    pattern: str
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of secret: a regular expression, and letters of which one stands in whatever it matches.

    Of a match the group `secret` is what is replaced, or all of it where there is none. `hints` are compared
    without regard to case; a text that holds none of them is not searched. A match must be printable ASCII,
    at most `words` words (40 is the most) with at most eight blanks between them, a hint in the first of
    them, else it may be missed where it is split over chunks; only blocks in PEM form may be longer.

    Example:
        >>> from agentloop import Secrets
        >>> badge = Shape(kind="badge", pattern=r"badge-[0-9]{6}", hints=("badge-",))
        >>> Secrets(shapes=[badge])("My badge-123456!")
        'My [redacted: badge]!'

    Raises:
        UsageError: the kind is not of up to 40 letters, digits, blanks and hyphens, the pattern is none, or
            `words` is no whole number from 1 to 40.
    """

    kind: str
    pattern: str = field(repr=False)
    hints: tuple[str, ...] = field(default=(), repr=False)
    words: int = field(default=_FEW_WORDS, repr=False)
    anchor: Anchor | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not re.fullmatch(r"[A-Za-z0-9 -]{1,40}", self.kind):
            raise UsageError(f"kind must be 1 to 40 letters, digits, blanks and hyphens, not {self.kind!r}")
        try:
            compiled(self.pattern)
        except (re.error, TypeError) as error:
            raise UsageError(f"pattern must be a regular expression: {error}") from error
        if self.words not in range(1, MOST_WORDS + 1):
            raise UsageError(f"words must be a whole number from 1 to {MOST_WORDS}, not {self.words!r}")
        object.__setattr__(self, "hints", tuple(hint.lower() for hint in self.hints))


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed, its classes as in ASCII."""
    return re.compile(pattern, re.ASCII)


def _ours(
    *, kind: str, pattern: str, hints: Iterable[str], words: int = _FEW_WORDS, anchor: Anchor | None = None
) -> Shape:
    """A shape of our own table, made unchecked: its pattern is compiled when a text holds a hint of it."""
    shape = object.__new__(Shape)
    lowered = tuple(hint.lower() for hint in hints)
    made = {"kind": kind, "pattern": pattern, "hints": lowered, "words": words, "anchor": anchor}
    for name, value in made.items():
        object.__setattr__(shape, name, value)
    return shape


RUN = r"[A-Za-z0-9_-]"
HEX = "[0-9a-f]"
_UUID = rf"{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}"


def _by_first_letter(
    *, kind: str, pattern: str, hints: Iterable[str], words: int = _FEW_WORDS
) -> Iterator[Shape]:
    """A shape for each letter of the class that the pattern begins with: that is found ten times as fast."""
    letters, rest = pattern.removeprefix("[").split("]", 1)
    for letter in letters:
        its = [hint for hint in hints if hint[0] == letter.lower()]
        yield _ours(kind=kind, pattern=f"{letter}{rest}", hints=its, words=words)


def _begun(*, kind: str, begins: str, rest: str, words: int = _FEW_WORDS) -> Iterator[Shape]:
    """A shape for each of these beginnings, which are letters, and the rest."""
    for begin in begins.split():
        yield _ours(kind=kind, pattern=f"{begin}{rest}", hints=(begin,), words=words)


def apart(begun: str, behind: str = "[A-Za-z0-9]") -> str:
    """That what has just begun stands not behind a character of this class."""
    return f"(?<!{behind}{begun})"


def prefixed(kind: str, prefixes: str, rest: str, behind: str = "[A-Za-z0-9]") -> Iterator[Shape]:
    """One of these prefixes, not in the middle of a word of characters of this class, and the rest.

    There is a shape for each first letter, too.
    """
    for _, alike in groupby(prefixes.split(), key=itemgetter(0)):
        hints = list(alike)
        starts = "|".join(f"{prefix}{apart(prefix, behind)}" for prefix in map(re.escape, hints))
        yield _ours(kind=kind, pattern=f"(?:{starts}){rest}", hints=hints, words=1)


_NEVER_SECRET = (
    r"(?![bru]?[\"'`]?(?:\$[\w{(]|\{\{|\{[\w.]{1,60}\}|<|%\w{0,60}%|\*{3}|\.{3}|(?i:your)[_-]|(?i:x{4})))"
)
"""What stands for a value that is filled in later."""

_UNQUOTED = r"[!#-&(-\[\]-_a-~]"
"""No blank, quote or backslash."""
_OPEN = r"(?:[bru]{0,2}[\"'`])?+"
_MIXED = rf"(?={_OPEN}[!#-&(-/:-\[\]-_a-~]{{0,80}}+[0-9])(?={_OPEN}[!#-&(-@\[\]^_{{-~]{{0,80}}+[A-Za-z])"
"""A digit and a letter soon, all before them such as no quote is."""
_BARE = r"[!#$%*+./0-9:=?@A-Z^_a-z|~-]"
"""Nor a bracket, comma, semicolon or `&`, which end a value that has no quotes."""
_NO_CODE = r"(?![A-Za-z_][\w.]{0,80}+[(\[])"
"""A call or an index is no value."""
_NO_TYPE = r"(?![\w.]{1,80}?(?:Key|Token|Secret|Type)s?(?![\w+/=-]))"
"""The name of a type behind a parameter is none either."""

_WHOLE = r"(?P<secret>[!#-&(-\[\]-~]{4,200}+)"
"""All up to a blank, a quote or a backslash."""
_ARGUMENT = rf"[\"']?{_WHOLE}"
_GAP = r"[ \t]{0,8}+"
_BLANKS = r"[ \t]{1,8}+"
_OTHERS = rf"(?:{_BLANKS}[!-~]{{1,100}}+){{0,6}}?{_BLANKS}"
"""What stands between a command and the option that matters."""
_TYPE = rf"(?::{_GAP}(?:&|&'static )?[Ss]tr(?:ing)?\??{_GAP}(?==))?+"
_IS = rf"[\"'`*\]]{{0,3}}+{_GAP}{_TYPE}(?:=>|:=|[:=])\*{{0,2}}+{_GAP}"
"""Behind a name, also one in bold, in code, in brackets, or with its type."""
# A run of 20 letters and digits, or of 12 with a digit among them, somewhere behind the prefix.
_PART = r"(?:[A-Za-z0-9]{20}|(?=[A-Za-z]{0,11}+[0-9])[A-Za-z0-9]{12})"
_DENSE = rf"(?=(?:(?!{_PART})[A-Za-z0-9]{{0,19}}+[_-]){{0,8}}+{_PART})"

_AS_VALUE = (
    rf"[\"'],?{_GAP}(?:[a-z-]{{1,20}}=\"[ !#-~]{{0,60}}\" ){{0,3}}"
    rf"[\"']?(?i:value|content)[\"']?{_GAP}[:=]{_GAP}(?=[\"'])"
)
"""Behind the name of a pair that says name and value."""
_ODD = r"[^\s!-~]"
"""What ends a match in any case: a text in pieces may be parted behind it."""
# What says that a value stands behind the name: a call's last argument, an element, a cell of a table.
_IN_CALL = rf"[\"'],{_GAP}(?=[\"'][!#-&(-~]{{8,200}}(?:[\"'] ?\)|{_ODD}))"
_IN_MARKUP = rf"(?:[\"']?>|</key>{_GAP}<string>)(?=[!-;=-~]{{6,200}}(?:</|{_ODD}))"
_IN_CELL = rf"[`*]{{0,3}}+{_BLANKS}\|{_BLANKS}`?"
_IN_PLACE = r"[!#-&(-;=?-\[\]-_a-~]"
_KEY_PLACE = (
    rf"(?:{_AS_VALUE}|{_IN_CALL}(?=.{_DENSE})|{_IN_MARKUP}|{_IN_CELL}(?=[!-~]{{16,200}}[ \t])){_MIXED}"
)
_PASSWORD_PLACE = (
    rf"(?:(?:{_AS_VALUE}|{_IN_CALL}|\((?:(?<=etPassword.)|(?<=et_password.))(?=[\"'])|{_IN_MARKUP}(?!(?i:pass)))"
    rf"{_MIXED}|>(?=[!-;=-~]{{6,200}}(?:</|{_ODD})))"
)
_OPTION_ENDS = r"(?:[\"'],(?=[ \"'])|(?=[ \t=]))"
"""Behind the name of an option, on a command line or in a list of its words."""
_CRUMB = r"[!#-&(-:<-\[\]-~]"
"""What the value of a cookie is made of."""
_TOKEN = r"[!#$%&*+.^_`|~0-9A-Za-z-]{1,80}+"
"""The name of a cookie."""
_LABEL_OF_ONE = (
    r"(?i:[^\"'\n]{0,120}?(?:pass|pwd|your|enter|requir|must|invalid|incorrect|please|forgot|reset|chang|secret"
    r"|minimum|at least|characters|optional|string|the user))"
)
"""What is said about passwords in messages and descriptions."""

_UNQUOTED_WORD = r"(?:(?!(?P=quote))[!-\[\]-~]){1,60}+"

_64 = "[A-Za-z0-9+/]"
_NAME_AND_PASSWORD = (
    rf"(?=(?:{_64}{{4}}){{0,40}}?(?:O[g-v]|{_64}[DTjz][op]|{_64}{{2}}[AEIMQUYcgkosw048]6))"
    rf"(?P<secret>(?:[I-Za-f]{_64}{{3}}){{3,200}}+(?:[I-Za-f](?:{_64}==|{_64}{{2}}=))?)(?![A-Za-z0-9+/=])"
)
"""ASCII in base64 with a colon in it, which looks otherwise in each of the three places of a group."""

_WORD = r"(?:[a-z]{1,20}+|[A-Z]{1,20}+|(?=[0-9]))[0-9]{0,4}+"
_NO_PROSE = rf"(?![a-z]{{2,10}}+://|[A-Za-z_.-]{{2,60}}+=|{_WORD}(?:-{_WORD}){{1,5}}+[ \t\r]{{0,8}}(?:\n|$))"
"""An address, a setting and hyphenated words are what one writes about passwords."""

_OF_LOGIN = "db smtp mail user ssh become sudo root admin ftp login mysql postgres redis mongo ldap proxy"
_PASSWORD = (
    r"[Pp](?i:ass(?:wor[dt]|wd|phrase|(?=[\"'`* \t:=\]])(?:"
    + "|".join(f"(?<={name}{sign}pass)" for name in _OF_LOGIN.split() for sign in ("", "[_-]"))
    + r"))|wd(?![\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?(?:[/~]|[A-Za-z]:[/\\])))"
)
"""`PWD=/…` is the folder that a shell is in."""
_OF_LOGIN_IN_CAPITALS = "|".join(f"(?<={name.upper()}_PASS)" for name in _OF_LOGIN.split())
_OF_ACCESS = (
    "api[._-] api access[._-] access secret[._-] secret private[_-] private auth[_-] auth"
    " encryption[_-] signing[_-] account[_-] account master[_-]"
)
_OF_PAGES = "page[_-] page next[_-] next ation[_-] ation sync[_-] sync"
_KEY = (
    r"[KSTkst](?i:(?<=k)ey(?=[\"'`* \t:=|>\]])(?<=[ehginrst_.-]key)(?:"
    + "|".join(f"(?<={name}key)" for name in _OF_ACCESS.split())
    + ")|(?<=s)ecret|(?<=t)oken"
    + "".join(f"(?<!{name}token)" for name in _OF_PAGES.split())
    + ")"
)
"""Names of what gives access; a token that names the next page of a list gives none."""

_NAME_AND_VALUE = (
    rf"[\w./:@-]{{0,80}}?(?:{_PASSWORD}{_BLANKS}(?=[!-~]{{8}})|{_KEY}{_BLANKS}(?=[!-~]{{16}}))"
    rf"{_NEVER_SECRET}{_NO_CODE}{_MIXED}[\"']?(?P<secret>{_BARE}{{8,}}+)"
)
_IN_SQL = rf"{_BLANKS}{_NEVER_SECRET}[\"'](?!(?i:password|secret)[\"']){_WHOLE}(?=[\"'])"


def _assigned(
    kind: str, name: str, least: int, hints: Iterable[str], quoted: str = "", bare: str = ""
) -> Iterator[Shape]:
    """What such a name is given: in quotes, or with a digit and a letter in so many characters at least."""
    value = (
        rf"(?:[bru]{{0,2}}(?P<quote>[\"'])|`)?(?P<secret>(?(quote){quoted}{_UNQUOTED}{{8,}}+(?=[\"'])"
        rf"|{_NO_CODE}{bare}{_MIXED}{_BARE}{{{least},}}+))"
    )
    return _by_first_letter(kind=kind, pattern=f"{name}{_IS}{_NEVER_SECRET}{value}", hints=hints)


def _placed(kind: str, name: str, place: str, value: str, hints: Iterable[str]) -> Iterator[Shape]:
    """What stands in such a place behind such a name."""
    value = rf"{_NEVER_SECRET}{_OPEN}(?P<secret>{value}+)"
    return _by_first_letter(kind=kind, pattern=f"{name}{place}{value}", hints=hints, words=8)


def _argument(option: str, hint: str, words: int = 3) -> Shape:
    """What is given behind an option of a command."""
    value = rf"[ \t=]{{0,8}}+{_NEVER_SECRET}{_MIXED}{_ARGUMENT}"
    return _ours(kind="password", pattern=f"{option}{value}", hints=(hint,), words=words)


MOST_LINES = 200
"""A private key of 16,384 bits has 198 lines; more is none."""

MOST_CHARS = 32_000
"""So much of a block is looked at: `MOST_LINES` of 100 characters with a name and a number before each."""

NUMBERED = r"(?:(?:[^\s:]{1,40}:)?[ \t]{0,8}\d{1,6}(?:\t|[:-] ?))?+"
"""What listings and searches write before a line."""

_LABEL = r"[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN = rf"-----BEGIN {_LABEL}"
_BLOCK_GAP = rf"(?:\s{{1,40}}+[>|#*+]{{0,3}}+[ \t]{{0,8}}+{NUMBERED}){{1,3}}+"
"""The end of a line, and what diffs, quotes and listings write before the next one."""
_FIELDS = (
    rf"(?:(?:{_BLOCK_GAP}[A-Z][A-Za-z-]{{1,20}}: [^\n]{{0,100}}+){{1,4}}+"
    rf"(?={_BLOCK_GAP}[A-Za-z0-9+/=]{{20}}))?+"
)
"""What stands before the lines of letters."""
PATTERN = (
    rf"{_BEGIN}(?:(?:[^-]|-(?!----)){{0,{MOST_CHARS}}}+-----END {_LABEL}"
    # One that was cut off: the lines of letters below the first.
    rf"|{_FIELDS}(?:{_BLOCK_GAP}[A-Za-z0-9+/=]{{20,100}}+){{0,{MOST_LINES}}}+"
    rf"(?:{_BLOCK_GAP}(?=[A-Za-z+/=]{{0,18}}[0-9])[A-Za-z0-9+/=]{{4,19}})?+)"
)
"""A block with its first line."""

PRIVATE_KEY = _ours(kind="private key", pattern=PATTERN, hints=("-----begin", "-----end "))
"""One whose first line is missing is found by its last one: no pattern does that in linear time."""

# https://tartarus.org/~simon/putty-snapshots/htmldoc/AppendixC.html
_PUTTY_KEY = _ours(
    kind="private key",
    pattern=rf"Private-Lines: [0-9]{{1,3}}(?:{_BLOCK_GAP}[A-Za-z0-9+/=]{{4,100}}+(?!-)){{1,{MOST_LINES}}}+"
    rf"(?={_BLOCK_GAP}Private-MAC|\s{{0,4}}$)",
    hints=("private-lines:",),
)

BLOCKS = frozenset({PRIVATE_KEY, _PUTTY_KEY})
"""Those of many lines."""

_TABLE: tuple[Shape, ...] = (
    PRIVATE_KEY,
    _PUTTY_KEY,
    # https://platform.openai.com/docs/api-reference/authentication
    *prefixed("OpenAI key", "sk-proj- sk-svcacct- sk-admin-", rest=rf"{RUN}{{20,}}+"),
    # https://docs.anthropic.com/en/api/overview: sk-ant-api03-…
    *prefixed("Anthropic key", "sk-ant-", rest=rf"{RUN}{{20,}}+"),
    # https://openrouter.ai/docs/api-reference/authentication: sk-or-v1- and 64 hexadecimal digits
    *prefixed("OpenRouter key", "sk-or-", rest=rf"{RUN}{{20,}}+"),
    # What OpenAI's keys were, and those of DeepSeek and others are.
    *prefixed("API key", "sk-", rest=rf"{_DENSE}{RUN}{{16,}}+", behind=RUN),
    # https://cloud.google.com/docs/authentication/api-keys: 39 characters
    *prefixed("Google key", "AIza", rest=rf"{RUN}{{35}}(?!{RUN})"),
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html: 20 characters
    *prefixed("AWS key id", "AKIA ASIA ABIA ACCA", rest=r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    *_by_first_letter(
        kind="AWS secret key",
        pattern=rf"[Ss](?i:ecret[ _-]?(?:access[ _-]?)?key)(?:{_IS}|>|{_IN_CELL})"
        r"[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        hints=("secret",),
    ),
    # What AWS's tokens of sessions begin with, whoever they are of.
    *prefixed("AWS session token", "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz", rest=r"[A-Za-z0-9+/=]{80,}+"),
    # https://github.blog/engineering/behind-githubs-new-authentication-token-formats/: a prefix and 36
    *prefixed(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        rest=r"(?:[0-9]{1,20}_(?=eyJ)[\w.-]{60,}+|[A-Za-z0-9]{30,}+(?!\w))",
    ),
    *prefixed("GitHub token", "github_pat_", rest=r"\w{22,}+"),
    *prefixed(
        "GitLab token",
        "glpat- gldt- glrt- glptt- glcbt- glffct- glft- glimt- glagent- gloas- glsoat- glwt- GR1348941",
        rest=r"[A-Za-z0-9_.-]{20,}+",
    ),
    # https://api.slack.com/concepts/token-types: xoxb-, xoxp-, xoxe., xapp- and numbers
    _ours(
        kind="Slack token",
        pattern=r"(?:xox[abceoprs]|xapp)"
        + apart("....")
        + r"[-.](?=[A-Za-z.-]{0,20}[0-9])[A-Za-z0-9.-]{10,}+",
        hints=("xox", "xapp"),
        words=1,
    ),
    # https://docs.databricks.com/en/dev-tools/auth/pat.html: 32 hexadecimal digits, and at times a number
    *prefixed("Databricks token", "dapi dose", rest=rf"{HEX}{{32}}(?:-[0-9])?(?![A-Za-z0-9])"),
    # https://developers.google.com/identity/protocols/oauth2: of access, of clients, and to renew them
    *prefixed("Google token", "ya29.", rest=rf"{_DENSE}{RUN}{{30,}}+", behind=RUN),
    *prefixed("Google secret", "GOCSPX-", rest=rf"{RUN}{{28}}(?!{RUN})"),
    *prefixed("Google token", "1//0", rest=rf"(?={RUN}{{0,40}}?[A-Z]){RUN}{{40,}}+"),
    # Prefixes that Cerebras and Fireworks show for their keys: 48, and 22 or more letters and digits.
    *prefixed(
        "API key", "csk-", rest=rf"(?=[A-Za-z]{{0,40}}[0-9])[A-Za-z0-9]{{40,64}}+(?!{RUN})", behind=RUN
    ),
    *prefixed("API key", "fw_", rest=rf"(?=[A-Za-z]{{0,40}}[0-9])[A-Za-z0-9]{{22,64}}+(?!{RUN})", behind=RUN),
    # https://support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account/
    *prefixed("Atlassian token", "ATATT3 ATCTT3", rest=rf"{RUN}{{60,}}+={{0,2}}[0-9A-F]{{0,8}}"),
    # https://docs.sentry.io/account/auth-tokens/: of an organization JSON in base64, of a user 64 digits
    *prefixed("Sentry token", "sntrys_", rest=r"(?=eyJ)[A-Za-z0-9+/=_-]{40,600}+"),
    *prefixed("Sentry token", "sntryu_", rest=rf"{HEX}{{64}}(?!\w)"),
    # https://docs.doppler.com/reference/auth-token-formats: 40 to 44 letters and digits
    *prefixed(
        "Doppler token",
        "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
        rest=r"[A-Za-z0-9]{40,44}(?![A-Za-z0-9])",
    ),
    *prefixed("Pulumi token", "pul-", rest=rf"{HEX}{{40}}(?!\w)"),
    # https://developer.okta.com/docs/guides/create-an-api-token/: a scheme of its own, 42 characters
    _ours(kind="Okta token", pattern=rf"SSWS{_BLANKS}(?P<secret>00{RUN}{{40}})(?!{RUN})", hints=("ssws",)),
    # https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens
    _ours(
        kind="Terraform token",
        pattern=rf"[A-Za-z0-9]{apart('.')}[A-Za-z0-9]{{13}}\.atlasv1\.[A-Za-z0-9_=-]{{60,70}}+",
        hints=(".atlasv1.",),
        words=1,
        anchor=Anchor(r"\.atlasv1\.", 14, 14),
    ),
    # https://discord.com/developers/docs/reference#authentication: the bot's number in base64, a time, a sum
    _ours(
        kind="Discord token",
        pattern=rf"[MNO]{apart('[MNO]', RUN)}[A-Za-z0-9]{{23,27}}\.{RUN}{{6}}\.{RUN}{{27,38}}+(?![\w.-])",
        hints=(".",),
        words=1,
        anchor=Anchor(r"\.(?<=[A-Za-z0-9]{23}.)", 24, 28),
    ),
    # https://docs.stripe.com/keys
    *prefixed(
        "Stripe key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", rest=r"[A-Za-z0-9]{16,}+"
    ),
    *prefixed("Stripe secret", "whsec_", rest=r"[A-Za-z0-9+/]{24,}+"),
    # https://huggingface.co/docs/hub/security-tokens
    *prefixed("Hugging Face token", "hf_ api_org_", rest=r"[A-Za-z0-9]{30,}+(?!_)"),
    # https://github.blog/2021-09-23-announcing-npms-new-access-token-format/: 36 letters and digits
    *prefixed("npm token", "npm_", rest=r"[A-Za-z0-9]{36}(?!\w)"),
    # https://pypi.org/help/#apitoken: a macaroon in base64
    *prefixed("PyPI token", "pypi-", rest=rf"(?=AgE|AgN){RUN}{{30,}}+"),
    # https://core.telegram.org/bots/api#authorizing-your-bot: the bot's number and 35 characters
    _ours(
        kind="Telegram token",
        pattern=rf"[0-9](?:(?<!\w.)|(?<=bot.))[0-9]{{5,11}}+:AA{RUN}{{33}}(?!{RUN})",
        hints=(":aa",),
        words=1,
        anchor=Anchor(":AA(?<=[0-9]{6}...)", 6, 12),
    ),
    # Prefixes that Groq, xAI, Replicate, SendGrid and DigitalOcean show for their keys.
    *prefixed("API key", "gsk_ xai- r8_", rest=r"[A-Za-z0-9]{30,}+(?![_-])", behind=RUN),
    *prefixed("SendGrid key", "SG.", rest=rf"{RUN}{{22}}\.{RUN}{{43}}(?!{RUN})"),
    *prefixed("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", rest=rf"{HEX}{{64}}(?!\w)"),
    # What Perplexity, NVIDIA, Tavily, LangSmith, Linear and Notion show for their keys.
    *prefixed("API key", "pplx- nvapi- tvly- ntn_ lin_api_", rest=rf"{_DENSE}{RUN}{{24,}}+", behind=RUN),
    *prefixed("API key", "lsv2_pt_ lsv2_sk_", rest=rf"{HEX}{{32}}_{HEX}{{8,12}}(?!\w)"),
    # Those of models and of tools for agents: Langfuse, ElevenLabs, HeyGen, Pinecone, Firecrawl, E2B, Jina,
    # LlamaCloud, Together, Anyscale, Runpod, Mem0, Browserbase, Supabase, PostHog, Netlify and Prefect.
    *prefixed("API key", "sk-lf-", rest=rf"{_UUID}(?!\w)"),
    *prefixed("API key", "sk_", rest=rf"(?:{HEX}{{48}}|V2_\w{{40,50}})(?!\w)"),
    *prefixed("API key", "fc-", rest=rf"{HEX}{{32}}(?!\w)"),
    *prefixed("API key", "e2b_ sbp_ sbp_v0_", rest=rf"{HEX}{{40}}(?!\w)"),
    *prefixed("API key", "sb_secret_ pcsk_ llx- tgp_v1_ esecret_ rpa_", rest=rf"{_DENSE}{RUN}{{24,}}+"),
    *prefixed("API key", "jina_ m0- bb_live_ phx_ nfp_ pnu_", rest=r"[A-Za-z0-9]{24,}+(?!_)", behind=RUN),
    # https://docs.z.ai/api-reference/introduction: 32 hexadecimal digits, a dot and 16 letters and digits
    _ours(
        kind="API key",
        pattern=rf"{HEX}{apart('.', '[A-Za-z0-9._-]')}{HEX}{{31}}\.(?=[a-z0-9]{{0,15}}[A-Z])"
        r"(?=[A-Za-z]{0,15}[0-9])[A-Za-z0-9]{16}(?![\w.-])",
        hints=(".",),
        words=1,
        anchor=Anchor(rf"\.(?<={HEX}{{32}}.)", 32, 32),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html
    *prefixed("AWS Bedrock key", "ABSK", rest=r"[A-Za-z0-9+/]{100,}+={0,2}"),
    *prefixed("AWS Bedrock key", "bedrock-api-key-", rest=r"[A-Za-z0-9+/=]{40,}+"),
    # https://learn.microsoft.com/en-us/entra/identity-platform/: three characters, a digit, Q~ and 31 to 34
    _ours(
        kind="Azure secret",
        pattern=rf"[A-Za-z0-9_~.-]{apart('.', '[A-Za-z0-9_~.-]')}[A-Za-z0-9_~.-]{{2}}[0-9]Q~"
        r"[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])",
        hints=("q~",),
        words=1,
        anchor=Anchor("Q~(?<=[0-9]..)", 4, 4),
    ),
    *prefixed("Alibaba key id", "LTAI", rest=r"(?=[A-Za-z]{0,19}[0-9])[A-Za-z0-9]{20}(?!\w)"),
    *prefixed(
        "1Password key", "A3-", rest=r"[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}(?![\w-])"
    ),
    *prefixed("1Password token", "ops_eyJ", rest=r"[A-Za-z0-9+/_-]{200,}+={0,3}"),
    *prefixed("Docker token", "dckr_pat_ dckr_oat_", rest=rf"{RUN}{{20,}}+"),
    *prefixed("RubyGems key", "rubygems_", rest=rf"{HEX}{{48}}(?!\w)"),
    *prefixed("Fly token", "fm1r_ fm1a_ fm2_", rest=r"[A-Za-z0-9+/]{100,}+={0,3}"),
    *prefixed("Fly token", "fo1_", rest=rf"{RUN}{{43}}(?!{RUN})"),
    *prefixed("Grafana token", "glsa_", rest=r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}(?!\w)"),
    *prefixed("Grafana token", "glc_", rest=r"(?=eyJ)[A-Za-z0-9+/]{32,}+={0,3}"),
    *prefixed("New Relic key", "NRAK-", rest=r"[A-Z0-9]{27}(?!\w)"),
    *prefixed("Dynatrace token", "dt0c01. dt0s01.", rest=r"[A-Z0-9]{24}\.[A-Z0-9]{64}(?!\w)"),
    *prefixed("Heroku key", "HRKU-AA", rest=rf"{RUN}{{58}}(?!{RUN})"),
    *prefixed("PlanetScale token", "pscale_tkn_ pscale_oauth_ pscale_pw_", rest=r"[\w=.-]{32,}+"),
    *prefixed("Postman key", "PMAK-", rest=rf"{HEX}{{24}}-{HEX}{{34}}(?!\w)"),
    *prefixed("Airtable token", "pat", rest=rf"[A-Za-z0-9]{{14}}\.{HEX}{{64}}(?!\w)"),
    *prefixed("Figma token", "figd_ figo_", rest=rf"{_DENSE}{RUN}{{36,}}+", behind=RUN),
    *prefixed("Sonar token", "squ_ sqp_ sqa_", rest=rf"{HEX}{{40}}(?!\w)"),
    *prefixed("Sourcegraph token", "sgp_", rest=r"(?:(?:[0-9a-fA-F]{16}|local)_)?[0-9a-fA-F]{40}(?!\w)"),
    *prefixed("OpenShift token", "sha256~", rest=rf"{RUN}{{43}}(?!{RUN})"),
    *prefixed("Tailscale key", "tskey-", rest=r"[a-z]{3,12}-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,}+"),
    *prefixed("CircleCI token", "CCIPAT_", rest=rf"[A-Za-z0-9]{{16,30}}_{HEX}{{40}}(?!\w)"),
    *prefixed("Artifactory key", "AKCp", rest=r"[A-Za-z0-9]{69}(?!\w)"),
    *prefixed("Brevo key", "xkeysib-", rest=rf"{HEX}{{64}}-[A-Za-z0-9]{{16}}(?!\w)"),
    *prefixed("Mailgun key", "key-", rest=rf"{HEX}{{32}}(?![\w-])", behind=RUN),
    *prefixed("Twilio key", "SK", rest=rf"{HEX}{{32}}(?!\w)", behind=r"[\w-]"),
    *prefixed("Square token", "sq0atp- sq0csp-", rest=rf"{RUN}{{22,}}+"),
    *prefixed("Facebook token", "EAAC EAAM", rest=r"[A-Za-z0-9]{100,}+"),
    *prefixed("Shippo token", "shippo_live_ shippo_test_", rest=rf"{HEX}{{40}}(?!\w)"),
    # What scanners know beside; each row has its services in the order of their prefixes.
    *prefixed("Bitbucket token", "ATBB", rest=r"[A-Za-z0-9]{28,32}(?!\w)"),
    # Contentful, Weights & Biases, Linear, Vercel, MongoDB Atlas, and the cookie of Slack.
    *prefixed(
        "API key",
        "CFPAT- wandb_v1_ lin_oauth_ vcp_ vck_ mdb_sa_sk_ xoxd-",
        rest=rf"{_DENSE}[A-Za-z0-9_%-]{{40,}}+",
    ),
    # Duffel, Frame.io, Snyk, Typeform, ReadMe and Vercel.
    *prefixed(
        "API key",
        "duffel_test_ duffel_live_ fio-u- snyk_uat. snyk_sat. tfp_ rdme_ vercel_blob_rw_",
        rest=r"(?=[A-Za-z_.-]{0,20}[0-9])[\w.-]{40,}+",
    ),
    # Flutterwave and Buildkite; EasyPost; Square; Dropbox and Google.
    *prefixed("API key", "FLWSECK_TEST- FLWSECK- bkua_", rest=rf"{HEX}{{32,40}}(?![A-Za-z0-9_])"),
    *prefixed("API key", "EZAK EZTK", rest=r"[A-Za-z0-9]{54}(?!\w)"),
    *prefixed(
        "API key", "EAAA", rest=rf"(?=[A-Za-z]{{0,30}}[0-9]){RUN}{{60}}(?![\w+/=-])", behind=r"[\w+/=.-]"
    ),
    *prefixed("API key", "sl. AQ.Ab8", rest=rf"{_DENSE}{RUN}{{50,}}+", behind=r"[\w.-]"),
    # Adafruit, Deno Deploy, Infracost, Zuplo, Yandex Cloud and Voyage AI.
    *prefixed("API key", "aio_ ddp_ ico- zpka_ AQVN pa-", rest=rf"{_DENSE}{RUN}{{28,}}+", behind=RUN),
    # Cursor, Resend, and Notion's old ones.
    *prefixed("API key", "key_", rest=rf"{HEX}{{64}}(?!\w)", behind=RUN),
    *prefixed(
        "API key", "re_", rest=r"(?=[A-Za-z_]{0,20}[0-9])[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?!\w)", behind=RUN
    ),
    *prefixed("API key", "secret_", rest=r"(?=[A-Za-z]{0,20}[0-9])[A-Za-z0-9]{43}(?!\w)", behind=RUN),
    *prefixed("crates token", "cio", rest=r"(?=[A-Za-z]{0,20}[0-9])[A-Za-z0-9]{32}(?!\w)"),
    # HubSpot, LaunchDarkly, Plaid and Amazon MWS.
    *prefixed(
        "API key",
        "pat-na1- pat-eu1- sdk- access-sandbox- access-development- access-production- amzn.mws.",
        rest=rf"{_UUID}(?!\w)",
        behind=RUN,
    ),
    # https://docs.mapbox.com/help/dive-deeper/access-tokens/: those that are secret
    *prefixed("Mapbox token", "sk.eyJ", rest=rf"{RUN}{{40,}}+\.{RUN}{{22}}(?!{RUN})"),
    # https://learn.microsoft.com/en-us/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate
    _ours(
        kind="Azure token",
        pattern=rf"[A-Za-z0-9]{apart('.')}[A-Za-z0-9]{{75}}AZDO[A-Za-z0-9]{{4}}(?!\w)",
        hints=("azdo",),
        words=1,
        anchor=Anchor("AZDO(?<=[A-Za-z0-9]{76}....)", 76, 76),
    ),
    # https://mailchimp.com/developer/marketing/guides/quick-start/: 32 digits and where it is of
    _ours(
        kind="Mailchimp key",
        pattern=rf"{HEX}{apart('.', RUN)}{HEX}{{31}}-us[0-9]{{1,2}}(?!\w)",
        hints=("-us",),
        words=1,
        anchor=Anchor(rf"-us(?<={HEX}{{32}}...)", 32, 32),
    ),
    # https://github.com/bitcoin/bips/blob/master/bip-0032.mediawiki
    *prefixed("extended private key", "xprv tprv", rest=r"[1-9A-HJ-NP-Za-km-z]{107,108}(?!\w)"),
    # https://www.rfc-editor.org/rfc/rfc7518#section-6: what of a JSON Web Key is private
    *_by_first_letter(
        kind="private key",
        pattern="[\"']"
        rf"(?:[dk]|(?:p|qi?|d[pq])(?=[\"'][^\"']{{0,8}}[\"'][^\"']{{80}}))"
        rf"[\"']{_GAP}:{_GAP}[\"']{_DENSE}(?P<secret>{RUN}{{43,}}+)(?=[\"'])",
        hints=tuple(
            f"{sign}{name}{sign}" for name in ("d", "k", "p", "q", "qi", "dp", "dq") for sign in "\"'"
        ),
        words=3,
    ),
    # https://shopify.dev/docs/apps/build/authentication-authorization: a prefix and 32 hexadecimal digits
    *prefixed("Shopify token", "shpat_ shpss_ shpca_ shppa_", rest=r"[0-9a-fA-F]{32}(?!\w)"),
    # https://developer.hashicorp.com/vault/docs/concepts/tokens: at least 90 characters
    *prefixed("Vault token", "hvs. hvb.", rest=rf"{_DENSE}{RUN}{{24,}}+", behind=RUN),
    # https://age-encryption.org/v1: 58 characters in bech32
    *prefixed("age key", "AGE-SECRET-KEY-1", rest=r"[0-9A-Z]{58}(?![0-9A-Z])"),
    # https://api.slack.com/messaging/webhooks and https://discord.com/developers/docs/resources/webhook
    _ours(
        kind="webhook",
        pattern=r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Z0-9][A-Za-z0-9/]{20,200}+)",
        hints=("hooks.slack.com",),
        words=1,
    ),
    *prefixed(
        "webhook",
        "hooks.zapier.com/hooks/catch/ webhook.office.com/webhookb2/",
        rest=r"(?P<secret>[A-Za-z0-9@/-]{12,300}+)",
    ),
    # https://learn.microsoft.com/en-us/rest/api/storageservices/create-service-sas
    *_begun(
        kind="signature",
        begins="sig= code=",
        rest=r"(?:(?<=[?&;]sig=)|(?<=[?&;]code=))(?P<secret>[A-Za-z0-9+/_-]{40,200}+={1,2})",
        words=1,
    ),
    _ours(
        kind="webhook",
        pattern=rf"discord(?:app)?\.com/api/webhooks/[0-9]{{16,20}}+/(?P<secret>{RUN}{{60,100}}+)",
        hints=("discord",),
        words=1,
    ),
    # https://www.rfc-editor.org/rfc/rfc6265: of the pairs one is long, or letters and digits
    *_by_first_letter(
        kind="cookie",
        pattern=rf"[Cc](?i:ookie)[\"']?{_GAP}:{_GAP}[\"']?(?=(?:{_TOKEN}={_CRUMB}{{0,300}}+; ?){{0,20}}?"
        rf"{_TOKEN}={_NEVER_SECRET}(?:{_CRUMB}{{16}}|(?=[A-Za-z]{{0,20}}[0-9]){_CRUMB}{{8}}))"
        rf"(?P<secret>{_TOKEN}={_CRUMB}{{0,4096}}+(?:; ?{_TOKEN}={_CRUMB}{{0,4096}}+){{0,36}}+)",
        hints=("cookie",),
        words=MOST_WORDS,
    ),
    # https://dev.mysql.com/doc/refman/8.4/en/command-line-options.html: the value stands right behind -p
    *_by_first_letter(
        kind="password",
        pattern=rf"[Mm](?i:ysql|ariadb)[a-z_-]{{0,12}}+{_OTHERS}"
        rf"-p(?!(?:ort|ipe|ie|thread|rotocol)\b|[\"']?[\[]){_NEVER_SECRET}{_ARGUMENT}",
        hints=("mysql", "mariadb"),
        words=8,
    ),
    _argument(rf"sshpass{_BLANKS}-p", "sshpass"),
    _argument(rf"-(?:pass(?:word|wd|phrase)|(?:store|key)pass){_OPTION_ENDS}", "pass"),
    _argument(rf"login{_OTHERS}-p(?=[ \t])", "login", words=10),
    _argument(rf"mongo[a-z]{{0,7}}+{_OTHERS}-p(?=[ \t])", "mongo", words=10),
    _argument(rf"redis-cli{_OTHERS}-a(?=[ \t])", "redis-cli", words=10),
    *(_argument(rf"{name}(?=[ \t])", name) for name in ("requirepass", "masterauth", "bindpw", "rootpw")),
    _ours(
        kind="secret",
        pattern=rf"-(?:token|secret|(?:api|access|secret|auth)-?key){_OPTION_ENDS}"
        rf"[ \t=]{{0,8}}+{_NEVER_SECRET}(?![\"']?[~.]?/|id=){_MIXED}[\"']?(?P<secret>{_BARE}{{16,}}+)",
        hints=("-token", "-secret", "key"),
        words=3,
    ),
    # https://docs.openssl.org/master/man1/openssl-passphrase-options/
    _ours(
        kind="password",
        pattern=rf"-pass(?:in|out)?[\"']?,?{_BLANKS}[\"']?pass:{_NEVER_SECRET}{_WHOLE}",
        hints=("-pass",),
        words=2,
    ),
    # A password on the way to what reads it from its input.
    _ours(
        kind="password",
        pattern=rf"echo{_BLANKS}(?:-[a-z]{{1,3}}{_BLANKS})?{_NEVER_SECRET}[\"']?"
        rf"(?P<secret>[!#-&(-\[\]-{{}}-~]{{4,200}}+)[\"']?{_GAP}\|{_GAP}"
        rf"(?:sudo{_BLANKS}(?:-[A-Za-z]{{1,9}}{_BLANKS}){{0,2}}?-[A-Za-z]{{0,9}}S|(?:sudo{_BLANKS})?chpasswd"
        rf"|[a-z/]{{1,40}}{_BLANKS}login\b)",
        hints=("echo",),
        words=9,
    ),
    # NAME value, as shells, Docker and programs that keep settings write it
    *_begun(
        kind="secret",
        begins="setx set ENV config",
        rest=rf"{_BLANKS}(?:--?\w{{1,12}}{_BLANKS}){{0,3}}+{_NAME_AND_VALUE}",
        words=8,
    ),
    _ours(
        kind="secret",
        pattern=rf"define{_BLANKS}(?=\w{{1,80}}{_BLANKS}[\"']){_NAME_AND_VALUE}",
        hints=("define",),
        words=8,
    ),
    # https://dev.mysql.com/doc/refman/8.4/en/create-user.html, and PostgreSQL's CREATE ROLE
    *_begun(
        kind="password",
        begins="IDENTIFIED identified",
        rest=rf"(?:{_BLANKS}(?:WITH|with){_BLANKS}[!-~]{{1,40}}+)?{_BLANKS}(?i:by|as){_IN_SQL}",
        words=7,
    ),
    _ours(kind="password", pattern=f"PASSWORD{_IN_SQL}", hints=("password",)),
    # https://learn.microsoft.com/en-us/dotnet/framework/data/adonet/connection-string-syntax and libpq's
    *_by_first_letter(
        kind="password",
        pattern=r"[Uu](?i:id|ser(?:[ _]?(?:id|name))?)=[!#-%(-+.-:<-~]{1,100}+(?:; ?|[,& ])"
        rf"{_PASSWORD}={_NEVER_SECRET}(?!(?i:password))(?P<secret>[!#-%*+.-:<-\[\]-~]{{4,200}}+)(?![)(])",
        hints=("user", "uid"),
    ),
    # https://www.postgresql.org/docs/current/libpq-pgpass.html
    _ours(
        kind="password",
        pattern=r":(?:54[0-9][0-9]|6432):(?:\*|[A-Za-z_][\w.-]{0,62}+):[\w.@-]{1,63}+:"
        rf"{_NEVER_SECRET}{_MIXED}(?P<secret>[!#-&(-\[\]-~]{{6,200}}+)(?=[\s\"']|$)",
        hints=(":54", ":6432:"),
        words=1,
    ),
    # https://curl.se/docs/manpage.html#-u
    _ours(
        kind="password",
        pattern=rf"curl[ \t](?:[!-~]{{1,200}}+{_BLANKS}){{0,16}}?"
        rf"(?:-[uU]|--(?:proxy-)?user)[ =]{{0,8}}+[\"']?[!#-&(-9;-~]{{1,100}}+:{_NEVER_SECRET}{_WHOLE}",
        hints=("curl",),
        words=20,
    ),
    # https://www.rfc-editor.org/rfc/rfc7519: three parts in base64url, the first two of them JSON objects
    *prefixed("JWT", "eyJ", rest=rf"{RUN}{{8,}}+\.eyJ{RUN}{{6,}}+\.{RUN}*+", behind=RUN),
    # https://www.rfc-editor.org/rfc/rfc6750 and 7617
    *_by_first_letter(
        kind="authorization",
        pattern=rf"[Aa](?i:uthorization){_IS}[\"']?"
        rf"(?:(?i:bearer|basic|token|apikey|key|bot){_BLANKS}{_NEVER_SECRET}"
        rf"|(?:[A-Za-z]{{2,20}}{_BLANKS})?{_NEVER_SECRET}{_DENSE}(?=[A-Za-z0-9_~+/=-]{{20,}}+(?![.\w(])))"
        r"(?P<secret>[A-Za-z0-9._~+/=|:-]{6,}+)",
        hints=("authorization",),
    ),
    *_by_first_letter(
        kind="authorization",
        pattern=rf"[Bb](?i:asic){apart('.....')}{_BLANKS}{_NAME_AND_PASSWORD}",
        hints=("basic",),
    ),
    *_by_first_letter(
        kind="bearer token",
        pattern=rf"[Bb](?i:earer){apart('......')}{_BLANKS}(?=[A-Za-z._~+/=-]{{0,400}}+[0-9])"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{20,}+)",
        hints=("bearer",),
    ),
    # https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1
    _ours(
        kind="password in a URL",
        pattern=rf"://[!#-&(-.0-9;=?A-~]{{0,100}}+:{_NEVER_SECRET}(?!(?i:pass(?:word|wd)?|pwd)@)"
        r"(?P<secret>[!#-&(-.0-;=?A-~]{1,200}+(?:@[!#-&(-.0-;=?A-~]{1,200}+(?=@)){0,3}+)@",
        hints=("://",),
        words=1,
    ),
    _ours(
        kind="password in a URL",
        pattern=r"://(?=[A-Za-z_-]{0,40}+[0-9])(?P<secret>[A-Za-z0-9_-]{20,200}+)(?::(?:x-oauth-basic)?)?@",
        hints=("://",),
        words=1,
    ),
    # https://everything.curl.dev/usingcurl/netrc.html: on one line, or each on its own
    _ours(
        kind="password",
        pattern=rf"login{_BLANKS}[!-~]{{1,100}}+{_BLANKS}password{_BLANKS}{_NEVER_SECRET}{_MIXED}"
        rf"(?P<secret>{_BARE}{{6,200}}+)",
        hints=("login",),
    ),
    _ours(
        kind="password",
        pattern=rf"password{_BLANKS}{_NEVER_SECRET}{_NO_PROSE}{_MIXED}"
        rf"(?P<secret>{_BARE}{{8,200}}+)(?=[ \t\r]{{0,8}}\n|$)",
        hints=("password",),
    ),
    # https://docs.docker.com/reference/cli/docker/login/: name and password in base64
    _ours(
        kind="password",
        pattern=rf"auth(?<![A-Za-z]auth){_IS}[\"']?{_NAME_AND_PASSWORD}",
        hints=("auth",),
    ),
    *_assigned("password", _PASSWORD, least=8, hints=("pass", "pwd")),
    # Several words, as JSON and its like hold them.
    *_by_first_letter(
        kind="password",
        pattern=rf"{_PASSWORD}[\"']{_GAP}(?::|=>){_GAP}(?P<quote>[\"']){_NEVER_SECRET}(?!{_LABEL_OF_ONE})"
        rf"(?P<secret>{_UNQUOTED_WORD}(?: {_UNQUOTED_WORD}){{1,11}})(?=(?P=quote))",
        hints=("pass", "pwd"),
        words=15,
    ),
    *_assigned("secret", _KEY, least=16, hints=("key", "secret", "token"), quoted=_MIXED, bare=_NO_TYPE),
    *_assigned("secret", "[Aa](?i:pi key)", least=16, hints=("api",), quoted=_MIXED),
    # Behind a name that stands in an attribute, an element, a call or a cell of a table.
    *_placed("password", _PASSWORD, _PASSWORD_PLACE, rf"{_IN_PLACE}{{6,200}}", hints=("pass", "pwd")),
    *_placed("secret", _KEY, _KEY_PLACE, rf"{_BARE}{{16,}}", hints=("key", "secret", "token")),
    *_assigned("secret", "[s](?:ecret_key_base)", least=30, hints=("secret_key_base",), quoted=_MIXED),
    *_assigned(
        "secret",
        "[Pp](?i:sk|re[_-]?shared[_-]?key)",
        least=8,
        hints=("psk", "preshared", "pre-shared", "pre_shared"),
        quoted=_MIXED,
        bare="(?![A-Z0-9_]++(?![a-z]))",
    ),
    # NAME_API_KEY=value, as in files of environment variables
    *_by_first_letter(
        kind="secret",
        pattern=rf"[KTSP](?:(?<=_K)EY|(?<=T)OKEN|(?<=S)ECRET|(?<=P)ASS(?:W(?:OR)?D|{_OF_LOGIN_IN_CAPITALS}))="
        rf"[\"']?{_NEVER_SECRET}{_NO_CODE}"
        rf"(?!(?i:true|false|none|null)\b|[~.]?/)(?P<secret>(?![0-9]{{1,12}}(?!{_UNQUOTED})){_BARE}{{8,}}+)",
        hints=("key=", "token=", "secret=", "password=", "passwd=", "pass="),
        words=1,
    ),
)


class _Table(tuple[Shape, ...]):
    """Shapes that are shown by the name of all, as there are too many."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "KNOWN_SHAPES"


KNOWN_SHAPES: tuple[Shape, ...] = _Table(_TABLE)
"""Shapes of keys, tokens, private keys and assignments that are taken for secrets by default."""

OF_ONE_LINE = frozenset(KNOWN_SHAPES) - BLOCKS
"""Those of which no match is in more than one line."""

_MOST_MARKER_CHARS = 100
_BEGINS = pattern(rf"{_BEGIN}|Private-Lines: [0-9]")
_ENDS = pattern(rf"-----END {_LABEL}")
_BASE64 = string.ascii_letters + string.digits + "+/="
_LEAST_LONG_CHARS, _MOST_LONG_CHARS, _LEAST_LAST_CHARS = 40, 100, 4
_MOST_LINE_CHARS = 400
_MOST_SHORT_LINES = 2
"""The last line, and in OpenPGP its sum below it."""


def open_block(text: str, at: int) -> int:
    """Where a block begins before this position whose end may still come; `at` where there is none."""
    since = max(0, len(text) - MOST_CHARS - _MOST_MARKER_CHARS)
    for begin, end in (("-----BEGIN ", "-----"), ("Private-Lines: ", "Private-MAC: ")):
        start = text.rfind(begin, since)
        begun = _BEGINS.match(text, start) if start >= 0 else None
        if begun and not 0 <= text.find(end, begun.end()) < len(text) - _MOST_MARKER_CHARS:
            at = min(at, start)
    return at


def body_start(text: str, at: int) -> int:
    """Where the lines of a block begin whose last line this position is in; `at` where there are none.

    They end with 40 to 100 characters of base64, the last two of them with 4 or more; what a listing writes
    before them is no part of them.
    """
    line = _line_start(text, at)
    for _ in range(_MOST_SHORT_LINES):
        if line > 0 and _LEAST_LAST_CHARS <= _tail(text, line - 1) < _LEAST_LONG_CHARS:
            line = _line_start(text, line - 1)
    start = at
    for _ in range(MOST_LINES):
        chars = _tail(text, line - 1) if line > 0 else 0
        if not _LEAST_LONG_CHARS <= chars <= _MOST_LONG_CHARS:
            break
        start = _line_end(text, line) - chars
        line = _line_start(text, line - 1)
    return start


def headless(text: str) -> Iterator[tuple[int, int]]:
    """From where to where blocks reach of which the text has only the last lines."""
    for end in _ENDS.finditer(text):
        if (start := body_start(text, end.start())) < end.start():
            yield start, end.end()


def _line_start(text: str, at: int) -> int:
    """Where the line begins that this position is in; 0 where that is further than a line of a block goes."""
    return text.rfind("\n", max(0, at - _MOST_LINE_CHARS), at) + 1


def _line_end(text: str, following: int) -> int:
    """Where the line ends behind which the following one begins."""
    return following - (2 if text.startswith("\r\n", following - 2) else 1)


def _tail(text: str, at: int) -> int:
    """How many characters of base64 stand at the end of the line that ends at this line feed."""
    end = _line_end(text, at + 1)
    near = text[max(0, end - _MOST_LONG_CHARS - 1) : end]
    return len(near) - len(near.rstrip(_BASE64))


_LETTER = rf"!-~{BREAK}\x9b{UNSEEN_LETTERS}"
"""Colours, and letters that take no room, may stand in the middle of what is one secret."""

_WORDS = pattern(rf"[{_LETTER}]+")
_NO_WORD = pattern(rf"[^{_LETTER}]")
_LINE_BREAK = pattern(rf"[^{_LETTER} \t]+|[ \t]{{9,}}")
"""What stands between two words that no match has both of."""


def has_break(text: str) -> bool:
    """Whether a word ends in the text."""
    return _NO_WORD.search(text) is not None


def word_start(text: str, at: int) -> int:
    """Where the word begins that this position is in."""
    return finished(text, at) if 0 < at < len(text) else at


def finished(text: str, at: int | None = None) -> int:
    """How much of the text, or of it up to this position, stands before a word that has no end there."""
    end = len(text) if at is None else at
    while end and not _NO_WORD.match(text, end - 1):
        end -= 1
    return end


def openers_of(shapes: Iterable[Shape]) -> tuple[tuple[str, int], ...]:
    """What the first of several words of a match holds, and how many words that may be."""
    words: dict[str, int] = {}
    for shape in shapes:
        if shape.words > 1:
            words |= {hint: max(shape.words, words.get(hint, 0)) for hint in shape.hints or ("",)}
    return tuple(words.items())


def words_end(text: str, openers: Iterable[tuple[str, int]], at: int) -> int:
    """Where the words behind this position, which is the start of one, are no part of a match from before it.

    That is the start of the first word of the line that holds an opener in small letters, and has no more
    words up to there than a match with this opener.
    """
    line = 0
    for match in _LINE_BREAK.finditer(text, 0, at):
        line = match.end()
    words = [match.span() for match in _WORDS.finditer(text, line, at)][-MOST_WORDS:]
    for first, (start, end) in enumerate(words):
        left = [hint for hint, most in openers if most >= len(words) - first]
        if left and any(hint in text[start:end].lower() for hint in left):
            return start
    return at
