"""What keys of known providers look like.

The prefixes and lengths are what providers document or show, and what secret scanning at GitHub
(https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns)
and GitLab (https://docs.gitlab.com/security/tokens/#token-prefixes) name. A shape with few fixed letters
asks for more: `sk-` and words with hyphens is a CSS class or a package, `sk-` and a long run of letters and
digits a key.

Each pattern takes time linear in the text: it begins with letters that stand for themselves, or can begin
only where a run of such characters does; what repeats is bounded, or is never given back.
"""

import re
from dataclasses import dataclass, field
from functools import cache

from agentloop.errors import UsageError
from agentloop.redaction import blocks

MOST_WORDS = 6
"""So many words of one line a match has at the most, with at most eight blanks between them: an assignment
has three, the head of a block in PEM form up to five."""

_RUN = r"[A-Za-z0-9_-]"
_NEVER_SECRET = r"(?!\\?[\"']?(?:\$[\w{(]|\{\{|\{[\w.]{1,60}\}|<|%\w{0,60}%|\*{3}|\.{3}))"
"""What stands for a value that is filled in later."""

_UNQUOTED = r"[!#-&(-_a-~]"
_MIXED = rf"(?=\\?[\"']?{_UNQUOTED}{{0,80}}?[0-9])(?=\\?[\"']?{_UNQUOTED}{{0,80}}?[A-Za-z])"
_BARE = r"[!#$%*+./0-9:=?@A-Z^_a-z|~-]"
_NO_CODE = r"(?![A-Za-z_][\w.]{0,80}+[(\[])"
"""A call or an index is no value."""

_QUOTED = r"\\?[\"'](?P<secret>[!#-&(-\[\]-_a-~]{8,}+)(?=\\?[\"'])"
_GAP = r"[ \t]{0,8}+"
_PAINT = r"(?:(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;]{0,20}+m){0,3}+"
"""Colour codes, as logs write them around names and values."""

_IS = rf"{_PAINT}\\?[\"']?{_PAINT}{_GAP}(?:=>|:=|[:=]|%3[ADad]){_PAINT}{_GAP}{_PAINT}"
_PASSWORD = r"(?:pass(?:word|wd|phrase)|pwd)"
_KEY = (
    r"(?:key(?:(?<=api[_-]key)|(?<=apikey)|(?<=access[_-]key)|(?<=accesskey)|(?<=secret[_-]key)|(?<=secretkey)"
    r"|(?<=private[_-]key)|(?<=privatekey)|(?<=auth[_-]key)|(?<=authkey)|(?<=encryption[_-]key)"
    r"|(?<=signing[_-]key)|(?<=account[_-]key)|(?<=accountkey)|(?<=master[_-]key))"
    r"|secret"
    r"|token(?<!page.token)(?<!pagetoken)(?<!next.token)(?<!nexttoken)(?<!ation.token)(?<!ationtoken)"
    r"(?<!sync.token)(?<!synctoken))"
)
"""Names of what gives access; a token that names the next page of a list gives none."""

_ESCAPES = (
    r"\\[abefnrtv0]",
    r"\\u[0-9A-Fa-f]{4}",
    r"\\x[0-9A-Fa-f]{2}",
    r"%[0-9A-Fa-f]{2}",
    *(rf"[\[;][0-9]{{{digits}}}[A-Za-z]" for digits in range(4)),
)
"""Escapes of JSON and other languages and of URLs, and the ends of those of terminals: no part of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of secret: a regular expression, and letters of which one stands in whatever it matches.

    Of a match the group `secret` is what is replaced, or all of it where there is none. `hints` are compared
    without regard to case; a text that holds none of them is not searched. A match must be printable ASCII,
    at most `words` words (6 is the most) with at most eight blanks between them, a hint in the first of them,
    else it may be missed where it is split over chunks; only blocks in PEM form may be longer.

    Example:
        >>> from agentloop import Secrets
        >>> badge = Shape(kind="badge", pattern=r"badge-[0-9]{6}", hints=("badge-",))
        >>> Secrets(shapes=[badge])("My badge-123456!")
        'My [redacted: badge]!'

    Raises:
        UsageError: the kind is not of up to 40 letters, digits, blanks and hyphens, the pattern is none, or
            `words` is no whole number from 1 to 6.
    """

    kind: str
    pattern: str = field(repr=False)
    hints: tuple[str, ...] = field(default=(), repr=False)
    words: int = field(default=MOST_WORDS, repr=False)

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


def _apart(begun: str, behind: str = "[A-Za-z0-9]") -> str:
    """That what has just begun stands not behind a character of this class, or right behind an escape."""
    before = "|".join(rf"(?<={escape}{begun})" for escape in _ESCAPES)
    return rf"(?:(?<!{behind}{begun})|{before})"


def _prefixed(kind: str, *prefixes: str, rest: str, behind: str = "[A-Za-z0-9]") -> Shape:
    """One of these prefixes, not in the middle of a word of characters of this class, and the rest."""
    begun = (re.escape(prefix) for prefix in prefixes)
    starts = "|".join(rf"{prefix}{_apart(prefix, behind)}" for prefix in begun)
    return Shape(kind=kind, pattern=f"(?:{starts}){rest}", hints=prefixes, words=1)


def _assigned(kind: str, names: str, value: str, *hints: str) -> Shape:
    return Shape(kind=kind, pattern=f"(?i:{names}){_IS}{_NEVER_SECRET}{value}", hints=hints)


PRIVATE_KEY = Shape(kind="private key", pattern=blocks.PATTERN, hints=("-----begin",))
"""One whose first line is missing is found by its last one: no pattern does that in linear time."""

# A run of 20 letters and digits, or of 12 with a digit among them, somewhere behind the prefix.
_DENSE = rf"(?={_RUN}*?(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{20}}|(?=[A-Za-z]{{0,11}}[0-9])[A-Za-z0-9]{{12}}))"

KNOWN_SHAPES: tuple[Shape, ...] = (
    PRIVATE_KEY,
    # https://platform.openai.com/docs/api-reference/authentication
    _prefixed("OpenAI key", "sk-proj-", "sk-svcacct-", "sk-admin-", rest=rf"{_RUN}{{20,}}+"),
    # https://docs.anthropic.com/en/api/overview: sk-ant-api03-…
    _prefixed("Anthropic key", "sk-ant-", rest=rf"{_RUN}{{20,}}+"),
    # https://openrouter.ai/docs/api-reference/authentication: sk-or-v1- and 64 hexadecimal digits
    _prefixed("OpenRouter key", "sk-or-", rest=rf"{_RUN}{{20,}}+"),
    # What OpenAI's keys were, and those of DeepSeek and others are.
    _prefixed("API key", "sk-", rest=rf"{_DENSE}{_RUN}{{16,}}+", behind=_RUN),
    # https://cloud.google.com/docs/authentication/api-keys: 39 characters
    _prefixed("Google key", "AIza", rest=rf"{_RUN}{{35}}(?!{_RUN})"),
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html: 20 characters
    _prefixed("AWS key id", "AKIA", "ASIA", rest=r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Shape(
        kind="AWS secret key",
        pattern=rf"(?i:secret[_-]?(?:access[_-]?)?key){_IS}[\"']?(?P<secret>[A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+])",
        hints=("secret",),
    ),
    # https://github.blog/engineering/behind-githubs-new-authentication-token-formats/: a prefix and 36
    _prefixed("GitHub token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", rest=r"[A-Za-z0-9]{30,255}+(?!\w)"),
    _prefixed("GitHub token", "github_pat_", rest=r"\w{22,255}+"),
    _prefixed("GitLab token", "glpat-", "gldt-", "glrt-", "glptt-", rest=r"[A-Za-z0-9_.-]{20,300}+"),
    # https://api.slack.com/concepts/token-types: xoxb-, xoxp-, xoxe., xapp- and numbers
    Shape(
        kind="Slack token",
        pattern=r"(?:xox[abceoprs]|xapp)"
        + _apart("....")
        + r"[-.](?=[A-Za-z.-]{0,20}[0-9])[A-Za-z0-9.-]{10,}+",
        hints=("xox", "xapp"),
        words=1,
    ),
    # https://docs.stripe.com/keys
    _prefixed("Stripe key", "sk_live_", "rk_live_", "sk_test_", "rk_test_", rest=r"[A-Za-z0-9]{16,255}+"),
    _prefixed("Stripe secret", "whsec_", rest=r"[A-Za-z0-9+/]{24,255}+"),
    # https://huggingface.co/docs/hub/security-tokens
    _prefixed("Hugging Face token", "hf_", rest=r"[A-Za-z0-9]{30,255}+(?!_)"),
    # https://github.blog/2021-09-23-announcing-npms-new-access-token-format/: 36 letters and digits
    _prefixed("npm token", "npm_", rest=r"[A-Za-z0-9]{36}(?!\w)"),
    # https://pypi.org/help/#apitoken: a macaroon in base64
    _prefixed("PyPI token", "pypi-", rest=rf"(?=AgE|AgN){_RUN}{{30,}}+"),
    # https://core.telegram.org/bots/api#authorizing-your-bot: the bot's number and 35 characters
    Shape(
        kind="Telegram token",
        pattern=rf"{_apart('', chr(92) + 'w')}[0-9]{{6,12}}+:AA{_RUN}{{33}}(?!{_RUN})",
        hints=(":aa",),
        words=1,
    ),
    # Prefixes that Groq, xAI, Replicate, SendGrid and DigitalOcean show for their keys.
    _prefixed("API key", "gsk_", "xai-", "r8_", rest=r"[A-Za-z0-9]{30,255}+(?![_-])"),
    _prefixed("SendGrid key", "SG.", rest=rf"{_RUN}{{22}}\.{_RUN}{{43}}(?!{_RUN})"),
    _prefixed("DigitalOcean token", "dop_v1_", "doo_v1_", rest=r"[0-9a-f]{64}(?!\w)"),
    # What Perplexity, NVIDIA, Tavily, LangSmith, Linear and Notion show for their keys.
    _prefixed("API key", "pplx-", "nvapi-", "tvly-", "ntn_", "lin_api_", rest=rf"{_DENSE}{_RUN}{{24,255}}+"),
    _prefixed("API key", "lsv2_pt_", "lsv2_sk_", rest=r"[0-9a-f]{32}_[0-9a-f]{8,12}(?!\w)"),
    # https://shopify.dev/docs/apps/build/authentication-authorization: a prefix and 32 hexadecimal digits
    _prefixed("Shopify token", "shpat_", "shpss_", "shpca_", "shppa_", rest=r"[0-9a-fA-F]{32}(?!\w)"),
    # https://developer.hashicorp.com/vault/docs/concepts/tokens: at least 90 characters
    _prefixed("Vault token", "hvs.", "hvb.", rest=rf"{_DENSE}{_RUN}{{24,300}}+"),
    # https://age-encryption.org/v1: 58 characters in bech32
    _prefixed("age key", "AGE-SECRET-KEY-1", rest=r"[0-9A-Z]{58}(?![0-9A-Z])"),
    # https://api.slack.com/messaging/webhooks and https://discord.com/developers/docs/resources/webhook
    Shape(
        kind="webhook",
        pattern=r"hooks\.slack\.com\\?/(?:services|workflows|triggers)\\?/(?P<secret>[A-Z0-9][A-Za-z0-9/\\]{20,200}+)",
        hints=("hooks.slack.com",),
        words=1,
    ),
    Shape(
        kind="webhook",
        pattern=rf"discord(?:app)?\.com\\?/api\\?/webhooks\\?/[0-9]{{16,20}}+\\?/(?P<secret>{_RUN}{{60,100}}+)",
        hints=("discord",),
        words=1,
    ),
    # https://curl.se/docs/manpage.html#-u
    Shape(
        kind="password",
        pattern=rf"curl[ \t](?:[!-~]{{1,100}}+[ \t]{{1,8}}+){{0,2}}?(?:-u|--user)[ =]{{0,8}}+[\"']?"
        rf"[!#-&(-9;-~]{{1,100}}+:{_NEVER_SECRET}(?P<secret>[!#-&(-~]{{4,200}}+)",
        hints=("curl",),
    ),
    # https://www.rfc-editor.org/rfc/rfc7519: three parts in base64url, the first two of them JSON objects
    _prefixed("JWT", "eyJ", rest=rf"{_RUN}{{8,}}+\.eyJ{_RUN}{{6,}}+\.{_RUN}*+", behind=_RUN),
    # https://www.rfc-editor.org/rfc/rfc6750 and 7617
    Shape(
        kind="authorization",
        pattern=rf"(?i:authorization){_IS}\\?[\"']?(?i:bearer|basic|token|apikey)[ \t]{{1,8}}+{_NEVER_SECRET}"
        r"(?P<secret>[A-Za-z0-9._~+/=|:-]{6,}+)",
        hints=("authorization",),
    ),
    Shape(
        kind="bearer token",
        pattern=r"(?i:bearer)" + _apart("......") + r"[ \t]{1,8}+(?=[A-Za-z._~+/=-]*?[0-9])"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{20,}+)",
        hints=("bearer",),
    ),
    # https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1
    Shape(
        kind="password in a URL",
        pattern=rf"://[!#-&(-.0-9;=?A-~]{{0,100}}+:{_NEVER_SECRET}(?P<secret>[!#-&(-.0-;=?A-~]{{1,200}}+)@",
        hints=("://",),
        words=1,
    ),
    _assigned("password", _PASSWORD, _QUOTED, "pass", "pwd"),
    _assigned("password", _PASSWORD, rf"{_NO_CODE}{_MIXED}(?P<secret>{_BARE}{{8,}}+)", "pass", "pwd"),
    _assigned("secret", _KEY, _MIXED + _QUOTED, "key", "secret", "token"),
    _assigned("secret", _KEY, rf"{_NO_CODE}{_MIXED}(?P<secret>{_BARE}{{16,}}+)", "key", "secret", "token"),
    # NAME_API_KEY=value, as in files of environment variables
    Shape(
        kind="secret",
        pattern=rf"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)(?<=_KEY|OKEN|CRET|WORD|SSWD)=\\?[\"']?{_NEVER_SECRET}{_NO_CODE}"
        rf"(?!(?i:true|false|none|null)\b|[~.]?/)(?P<secret>(?![0-9]{{1,12}}(?!{_UNQUOTED})){_BARE}{{8,}}+)",
        hints=("key=", "token=", "secret=", "password=", "passwd="),
        words=1,
    ),
)
"""Shapes of keys, tokens, private keys and assignments that are taken for secrets by default."""
