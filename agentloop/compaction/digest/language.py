"""Sentences, words and signs in thirteen languages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import head, tail

_RULE = pattern(
    r"\b(?:must|never|always|only|cannot|can['’]?t|don['’]?t|do not|does not|doesn['’]?t|not|no|nothing|none|"
    r"should\w*|shall|ought|needs?|needed|requir\w+|avoid\w*|without|at least|at most|more than|less than|"
    r"under|above|below|up to|exactly|limit\w*|cap|max\w*|min(?:imum)?|important\w*|critical\w*|remember|"
    r"rules?|"
    r"goals?|aims?|objectives?|purpose|constraints?|prefer\w*|make sure|ensure|keep\w*|strict\w*|mandatory|"
    r"forbid\w*|forbidden|prohibit\w*|allowed|deadline|budget|want\w*|would like|instead|from now on|note|"
    r"policy|"
    r"until|unless|before|convention|stick to|refuse|hold off|off[- ]limits|leave|expect\w*|is to|are to|"
    r"muss|müssen|musst|darf|dürfen|darfst|nie|niemals|immer|nur|nicht|kein\w*|soll\w*|mindestens|höchstens|"
    r"wichtig|ziele?|regeln?|ohne|vermeide\w*|bevor|statt|maximal|unbedingt|ausschließlich|"
    r"doit|doivent|dois|devez|jamais|toujours|seulement|uniquement|pas|sans|évite\w*|au moins|au plus|"
    r"objectif|"
    r"règles?|il faut|avant|interdit\w*|"
    r"debe\w*|nunca|siempre|s[oó]lo|sin|evita\w*|al menos|como máximo|objetivo|reglas?|hay que|antes|"
    r"prohibid\w*|"
    r"tiene que|deve|devono|devi|mai|sempre|soltanto|non|senza|almeno|al massimo|obiettivo|regola|bisogna|"
    r"não|somente|apenas|sem|evite|pelo menos|regra|moet\w*|nooit|altijd|alleen|niet|geen|zonder|"
    r"musi\w*|nigdy|zawsze|tylko|nie|bez|asla|sadece|zorunda|"
    r"долж\w+|никогда|всегда|только|не|нельзя|нужно|надо|обязательно|без|цель|правило)\b"
    r"|必须|必須|不要|不得|不能|不可|禁止|永远|总是|只能|只用|务必|應該|应该|目标|规则|至少|最多|请勿|勿|别|"
    r"必ず|ないで|常に|のみ|だけ|決して|べき|いけ|目標|ルール|以上|以下|ないこと|なけれ|"
    r"반드시|절대|항상|하지 ?마|금지|목표|규칙|해야|최대|최소",
    re.IGNORECASE,
)
_GOAL = pattern(
    r"\b(?:goals?|aims?|objectives?|purpose|rules?|constraints?|requirements?|must|never|always|"
    r"under no circumstances|no matter|at all times|don['’]?t|do not|make sure|ensure|important\w*|forbid\w*|"
    r"ziele?|regeln?|niemals|nie|immer|muss|müssen|darf|objectif|jamais|toujours|doit|objetivo|nunca|"
    r"siempre|debe\w*|"
    r"obiettivo|mai|sempre|deve|nooit|altijd|moet|nigdy|zawsze|никогда|всегда|нельзя|долж\w+)\b"
    r"|必须|必須|禁止|目标|目標|规则|ルール|不要|不得|务必|必ず|決して|반드시|절대|금지|목표|규칙",
    re.IGNORECASE,
)
_DECISION = pattern(
    r"\b(?:decid\w+|decisions?|choos\w+|chose\w*|choice|going with|go with|went with|opt\w*|settl\w+|"
    r"pick\w*|select\w+|"
    r"instead|rather|over|because|since|due to|so that|therefore|thus|hence|reject\w*|rul\w+ out|discard\w*|"
    r"drop\w*|abandon\w*|dismiss\w*|ditch\w*|skip\w*|avoid\w*|prefer\w*|trade-?offs?|alternatives?|"
    r"options?|approach|"
    r"conclu\w+|root cause|caused|turns out|stick\w*|commit\w*|adopt\w*|against|in favou?r|not worth|"
    r"too (?:slow|"
    r"risky|complex|costly|expensive|brittle|fragile|heavy)|won['’]?t|not (?:use|using|going)|kept|keeping|"
    r"entschied\w*|entscheid\w*|statt\w*|weil|wähl\w*|verworfen|lieber|décid\w+|choisi\w*|plutôt|parce|"
    r"rejet\w*|"
    r"decid\w+|elegi\w*|porque|en lugar|en vez|descart\w*|rechaz\w*|scel\w+|invece|perché|scart\w*|"
    r"escolh\w+|em vez|решил\w*|выбра\w+|вместо|потому)\b"
    r"|决定|選擇|选择|因为|而不是|放弃|改用|採用|采用|決め|決定|代わりに|ため|却下|選び|결정|대신|때문",
    re.IGNORECASE,
)
_OPEN = pattern(
    r"\b(?:to-?dos?|open|unresolved|remain\w*|outstanding|pending|still|later|follow[- ]?up|blocked|"
    r"waiting|unclear|"
    r"not yet|needs?|next|will|should|must|plan\w*|unknown|missing|question|left to|"
    r"offen|noch|später|muss|reste|encore|pendiente|falta|todavía|ancora|resta|осталось)\b"
    r"|待办|尚未|还需|未解決|残り|まだ|아직|남은",
    re.IGNORECASE,
)
_KEYED = pattern(r"^[\W_]{0,4}[\w][\w /().-]{0,40}\s?[:=]\s*\S|\s(?:=|->|→)\s")
_PLEASANT = pattern(
    r"^\W*(?:thanks?|thank you|thx|cheers|great|good|nice|perfect|awesome|excellent|cool|ok(?:ay)?|yes|yep|"
    r"sure|hi|hello|"
    r"hey|sounds good|looks good|go ahead|go on|continue|carry on|proceed|keep going|done|next|got it|"
    r"well done|"
    r"danke|super|gut|weiter|hallo|merci|bonjour|très bien|gracias|hola|bien|grazie|ciao|obrigad[oa]|"
    r"спасибо|привет|谢谢|好的|继续|你好|ありがとう|了解|続けて|감사\w*|계속)\b",
    re.IGNORECASE,
)
MOST_BEHIND = 4
"""A greeting with more words behind it says something."""

_NARRATION = pattern(
    r"^\W*(?:now\b|next\b|ok(?:ay)?\b|first\b|then\b|good\b|great\b|perfect\b|right\b|alright\b)?\W*"
    r"(?:let me|let['’]?s|i['’]?ll (?:now )?(?:look|check|read|open|start|see|run|take|view|search|inspect|"
    r"examine)|"
    r"i (?:will|am going to) (?:now )?(?:look|check|read|open|see|run|view|search|inspect)|"
    r"looking|reading|checking|running|opening)\b",
    re.IGNORECASE,
)
_CHANGE = pattern(
    r"\b(?:instead|no longer|any ?more|chang\w+|updat\w+|correction|correct(?:ed)?|actually|switch\w*|moved?|"
    r"moving|replac\w+|revis\w+|from now on|scratch that|bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|"
    r"reduc\w+|migrat\w+|renam\w+|supersed\w+|overrid\w+|forget|amend\w*|after all|changed my mind|"
    r"push\w*|postpon\w+|extended|delay\w*|shift\w*|rotat\w+|these days|nowadays|i meant|my mistake|make it|"
    r"(?:is|are|it['’]s|we|i|be|will|should|that|which|to|has|have) now|now (?:is|are|use|uses|using|be|at|"
    r"on|to|"
    r"lives|runs|reads|has|the|it|we|stands|set)|now(?=\W*$)|as of|going forward|effective|"
    r"jetzt|nun|stattdessen|nicht mehr|geändert|doch|désormais|maintenant|plutôt|finalement|"
    r"ahora|en vez|en lugar|cambi\w+|ya no|adesso|ora|invece|agora|mud\w+|em vez|nu|voortaan|"
    r"теперь|вместо)\b|现在|改为|改成|改用|更新|不再|今後|変更|代わりに|이제|변경",
    re.IGNORECASE,
)
_MORE = pattern(
    r"\b(?:also|another|additional\w*|a second|the second|secondary|too(?=\W*$)|as well|besides|plus|"
    r"further|extra|"
    r"both|either|add|auch|zusätzlich|aussi|también|anche|também|ещё|также)\b|也|还有|另外|また|도\b",
    re.IGNORECASE,
)
_ONLY_THOUGHT = pattern(
    r"[?？]\W*$|\b(?:if|whether|suppos\w+|imagine|assum\w+|hypothetical\w*|would|could|might|may|maybe|perhaps|"
    r"unless|in case|what about|wenn|falls|würde|könnte|vielleicht|sería|podría|quizás|serait|pourrait|"
    r"peut-être)\b|如果|假如|要是|もし|만약",
    re.IGNORECASE,
)
_REFUSED = pattern(
    r"\b(?:do not|don['’]?t|never|(?:should|must|shall|will|need)(?: not|n['’]?t)|cannot|can['’]?t|won['’]?t|"
    r"wrong|refuse\w*|rather not)\b",
    re.IGNORECASE,
)
_PAST = pattern(
    r"\b(?:used to|previous\w*|former\w*|originally|once|back then|last (?:year|month|week|time)|the old|"
    r"before|"
    r"(?:war|waren|était|era)\b(?! (?:jetzt|ahora)))\b"
    r"|\b(?:was|were)\b(?!\s+(?:\w+\s+)?(?:chang|mov|rais|lower|switch|updat|bump|increas|decreas|reduc|"
    r"postpon|push|exten|delay|shift|rotat|renam|replac|set|correct|revis|migrat))",
    re.IGNORECASE,
)


def binds(text: str) -> int:
    """How much a sentence of a user looks like a rule or a goal: 0, 1 or 2."""
    return 2 if _GOAL.search(text) else 1 if _RULE.search(text) else 0


def decides(text: str) -> int:
    """How much a sentence of an assistant looks like a decision (2) or an open point (1), else 0."""
    return 2 if _DECISION.search(text) else 1 if _OPEN.search(text) else 0


def is_keyed(text: str) -> bool:
    """Whether it names something and gives its value, as in `name: value`."""
    return bool(_KEYED.search(text))


def is_pleasant(text: str) -> bool:
    """Whether it only greets, thanks or nods."""
    match = _PLEASANT.match(text)
    return match is not None and len(text[match.end() :].split()) <= MOST_BEHIND


def is_narration(text: str) -> bool:
    """Whether an assistant only says what it is about to look at."""
    return bool(_NARRATION.match(text))


def changes(sentence: str) -> bool:
    """Whether the sentence says that something is no more what it was."""
    return bool(_CHANGE.search(sentence))


def is_news(sentence: str) -> bool:
    """Whether the sentence says how things are, and not what was, what might be, or what must not be done."""
    return not any(sign.search(sentence) for sign in (_ONLY_THOUGHT, _REFUSED, _PAST))


def adds(sentence: str) -> bool:
    """Whether the sentence says that there is one more, so that what was said before still holds."""
    return bool(_MORE.search(sentence))


ASKED = "What users said:"
DECIDED = "What the assistant decided and said:"
FILES = "Files, by the last thing done to each:"
FAILED = "Errors met:"
DONE = "What was done:"
NAMED = "Names and numbers to keep exact:"


HEAD_SHARE = 2 / 3
"""Of a text that is too long to be looked at whole, so much of what is looked at is its head."""

LONGEST = 400
"""A sentence with more characters is parted at a blank: people write without full stops, machines too."""

_ENDS = pattern(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])(?![。！？」』）])")
_GOES_ON = pattern(
    r"(?:^|[\s(])(?:[^\W\d_]|\d{1,3}|e\.g|i\.e|z\.\s?B|u\.a|d\.h|p\.ej|etc|vs|cf|approx|resp|incl|max|min|"
    r"no|nr|"
    r"fig|eq|sec|ch|pp|mr|mrs|ms|dr|prof|st|inc|ltd|bzw|ca|evtl|ggf)\.$",
    re.IGNORECASE,
)
_MARKER = pattern(r"\s*(?:[-*•‣–·]|\d{1,2}[.)])\s+")
_FENCE = pattern(r"\s*(?:```|~~~)")
_TAG = pattern(r"</?[\w -]{1,60}>|[-=_*#~]{3,}")
_STAMP = pattern(r"\W{0,3}(?:\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d)")
_BREAKS = pattern(r"[,;:)\s、，；]")
_SYMBOL = pattern(r"[{}\[\]()<>=;|\\/*&^$#@+_\"]")
_DIGIT = pattern(r"[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    `before` is what parts it from the one before in the same text: nothing, a blank or a newline. `pasted`
    says that it looks like code or output and not like something a person wrote.
    """

    text: str
    before: str = ""
    pasted: bool = False


def sentences(text: str, *, most_chars: int) -> list[Sentence]:
    """The sentences of a text in order; of a longer text those of its head and its tail."""
    if len(text) <= most_chars:
        return list(_sentences(text))
    first = int(most_chars * HEAD_SHARE)
    return [*_sentences(head(text, first)), *_sentences(tail(text, most_chars - first))]


def _sentences(text: str) -> Iterator[Sentence]:
    fenced = False
    before = ""
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            continue
        pasted = fenced or looks_pasted(line)
        for piece in _pieces(line, pasted):
            yield Sentence(text=piece, before=before, pasted=pasted)
            before = " "
        before = "\n" if before else ""


def _pieces(line: str, pasted: bool) -> Iterator[str]:
    marker = _MARKER.match(line)
    parts = [line] if pasted else _parts(line[marker.end() :] if marker else line)
    for part in parts:
        rest = part.strip()
        while len(rest) > LONGEST:
            end = _last_break(rest)
            yield rest[:end].strip()
            rest = rest[end:].strip()
        if rest:
            yield rest


def _parts(line: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(line):
        if end.end() > end.start() and _GOES_ON.search(line[max(0, end.start() - 8) : end.start()]):
            continue
        yield line[start : end.end()]
        start = end.end()
    yield line[start:]


def _last_break(text: str) -> int:
    breaks = [match.end() for match in _BREAKS.finditer(text, LONGEST // 2, LONGEST)]
    return breaks[-1] if breaks else len(head(text, LONGEST))


def looks_pasted(line: str) -> bool:
    """Whether a line looks like code, output or data: many symbols or digits for its words."""
    seen = line[:LONGEST]
    if len(seen) > 80 and " " not in seen.strip() and seen.isascii():
        return True
    if _TAG.fullmatch(seen.strip()):
        return True
    if _STAMP.match(seen):
        return True
    digits = len(_DIGIT.findall(seen)) * (2.5 if seen.isascii() else 1.5)
    return len(seen) > 8 and 4 * len(_SYMBOL.findall(seen)) + digits > len(seen)


_WORD = pattern(
    r"https?://[^\s\"'<>()]+"
    r"|[\u30a0-\u30ff]+|[\u3040-\u309f\u3400-\u9fff\uac00-\ud7af]"
    r"|[$€£¥]?[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"(?:[\w'’./:@#+~%-]*[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[+#])?[%°]?"
    r"|[~./_-]+[\w][\w./-]*"
)
_HARD = pattern(r"[0-9_/@\\]|[a-z][A-Z]|[A-Z]{2}|\w[.:]\w|\w-\w+-\w")
_KINDS = (
    ("url", pattern(r"\w+://")),
    ("mail", pattern(r"[^@\s]+@[^@\s]+")),
    ("date", pattern(r"\d{4}-\d\d|\d\d?[./]\d\d?[./]\d\d")),
    ("path", pattern(r"[~.]*/|[\w.-]+/")),
    ("number", pattern(r"[$€£¥]?[\d.,]+(?:[a-zA-Z%°]{0,4}|/\w+)$")),
)
_FUNCTION_TEXT = """
a an the this that these those it its is are was were be been being am to of in on at by for from with as
and or but so then there here we i you they he she our my your their his her us me them do does did has
have had will would can could please just der die das den dem des ein eine einen einem einer ist sind war
und oder zu von im in am auf für mit wir ich le la les un une des du de est sont et ou à au aux en pour
nous je vous sur el los las una uno es son y o del al por para con nosotros que se il lo gli i di è e nel
per noi che os as um uma é são do da no na это и в на с для по мы я
的 了 是 在 把 我 们 请 は が を に の で と も です ます
이 가 을 를 은 는 의
"""
_FUNCTION = frozenset(_FUNCTION_TEXT.split())


def words(text: str) -> list[str]:
    """The words in order; where a script has no blanks, its characters."""
    return _WORD.findall(text)


def is_hard(word: str) -> bool:
    """Whether a word is of use only if it is exact: a number, a name of code, a path, a code."""
    return bool(_HARD.search(word))


def bare(word: str) -> str:
    """The word as it is compared: in small letters, a genitive gone."""
    return word.lower().removesuffix("'s").removesuffix("’s")


def singular(word: str) -> str:
    """The word without the s of a plural, so that one and many compare as the same."""
    plural = len(word) > 3 and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word


def content_words(found: Iterable[str]) -> Iterator[str]:
    """The words that carry meaning, as they are compared."""
    return (low for word in found if (low := bare(word)) not in _FUNCTION and not _is_kana(low))


def kind_of_value(word: str) -> str:
    """What kind of exact value a word is, so that only like takes the place of like."""
    return next((kind for kind, pattern in _KINDS if pattern.match(word)), "name")


def _is_kana(word: str) -> bool:
    return "\u3040" <= word <= "\u309f"


def novelty(found: Iterable[str], uses: Mapping[str, int]) -> float:
    """The share of the meaning words that stand in few other sentences, 0 to 1: what was said but once."""
    content = set(content_words(found))
    return sum(1 / max(1, uses.get(word, 1)) for word in content) / len(content) if content else 0.0
