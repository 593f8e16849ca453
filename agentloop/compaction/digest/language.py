"""Words and signs in thirteen languages, as data: what a sentence says by the words in it.

A cue is a list of words, one language or a part of it a line, with signs of scripts that have no blanks.
Below the cues stand sets of single words, and what the cues together say of a sentence.
"""

import re

from agentloop._plumbing.patterns import pattern

PROSE = "From an earlier summary, quoted:"
ASKED = "What users said:"
DECIDED = "What the assistant decided and said:"
FILES = "Files, by the last thing done to each:"
MORE_FILES = "- and {more} before these"
FAILED = "Errors met:"
DONE = "What was done:"
NAMED = "Names and numbers to keep exact:"

MOST_BEHIND = 4
"""A greeting with more words behind it says something."""


def _cue(words: str, signs: str = "", *, form: str = r"\b(?:{})\b") -> re.Pattern[str]:
    """The pattern of words and signs of which one stands in a text; the words in a form, else whole words."""
    alternatives = "|".join(filter(None, map(str.strip, words.splitlines())))
    return pattern("|".join(filter(None, (form.replace("{}", alternatives), signs))), re.IGNORECASE)


RULE = _cue(
    r"""
    must|never|always|only|cannot|can['’]?t|don['’]?t|do not|does not|doesn['’]?t|not|no|nothing|none
    should\w*|shall|ought|needs?|needed|requir\w+|avoid\w*|without|at least|at most|more than|less than
    under|above|below|up to|exactly|limit\w*|cap|max\w*|min(?:imum)?|important\w*|critical\w*|remember
    rules?|goals?|aims?|objectives?|purpose|constraints?|prefer\w*|make sure|ensure|keep\w*|strict\w*
    mandatory|forbid\w*|forbidden|prohibit\w*|allowed|deadline|budget|want\w*|would like|instead|from now on
    note|policy|until|unless|before|convention|stick to|refuse|hold off|off[- ]limits|leave|expect\w*
    is to|are to
    muss|müssen|musst|darf|dürfen|darfst|nie|niemals|immer|nur|nicht|kein\w*|soll\w*|mindestens|höchstens
    wichtig|ziele?|regeln?|ohne|vermeide\w*|bevor|statt|maximal|unbedingt|ausschließlich
    doit|doivent|dois|devez|jamais|toujours|seulement|uniquement|pas|sans|évite\w*|au moins|au plus
    objectif|règles?|il faut|avant|interdit\w*
    debe\w*|nunca|siempre|s[oó]lo|sin|evita\w*|al menos|como máximo|objetivo|reglas?|hay que|antes
    prohibid\w*|tiene que
    deve|devono|devi|mai|sempre|soltanto|non|senza|almeno|al massimo|obiettivo|regola|bisogna
    não|somente|apenas|sem|evite|pelo menos|regra
    moet\w*|nooit|altijd|alleen|niet|geen|zonder
    musi\w*|nigdy|zawsze|tylko|nie|bez
    asla|sadece|zorunda
    долж\w+|никогда|всегда|только|не|нельзя|нужно|надо|обязательно|без|цель|правило
    """,
    r"必须|必須|不要|不得|不能|不可|禁止|永远|总是|只能|只用|务必|應該|应该|目标|规则|至少|最多|请勿|勿|别"
    r"|必ず|ないで|常に|のみ|だけ|決して|べき|いけ|目標|ルール|以上|以下|ないこと|なけれ"
    r"|반드시|절대|항상|하지 ?마|금지|목표|규칙|해야|최대|최소",
)
"""What binds, or may."""

GOAL = _cue(
    r"""
    goals?|aims?|objectives?|purpose|rules?|constraints?|requirements?|must|never|always
    under no circumstances|no matter|at all times|make sure|ensure|important\w*|forbid\w*
    (?<!\bi )(?<!\bwe )(?<!\byou )(?<!\bthey )(?:don['’]?t|do not)
    ziele?|regeln?|niemals|nie|immer|muss|müssen|darf
    objectif|jamais|toujours|doit
    objetivo|nunca|siempre|debe\w*
    obiettivo|mai|sempre|deve
    nooit|altijd|moet
    nigdy|zawsze
    никогда|всегда|нельзя|долж\w+
    """,
    r"必须|必須|禁止|目标|目標|规则|ルール|不要|不得|务必|必ず|決して|반드시|절대|금지|목표|규칙",
)
"""What surely binds: whoever says "we do not …" may only tell."""

DECISION = _cue(
    r"""
    decid\w+|decisions?|choos\w+|chose\w*|choice|going with|go with|went with|opt\w*|settl\w+|pick\w*
    select\w+|instead|rather|over|because|since|due to|so that|therefore|thus|hence|reject\w*|rul\w+ out
    discard\w*|drop\w*|abandon\w*|dismiss\w*|ditch\w*|skip\w*|avoid\w*|prefer\w*|trade-?offs?|alternatives?
    options?|approach|conclu\w+|root cause|caused|turns out|stick\w*|commit\w*|adopt\w*|against|in favou?r
    not worth|too (?:slow|risky|complex|costly|expensive|brittle|fragile|heavy)|won['’]?t
    not (?:use|using|going)|kept|keeping
    entschied\w*|entscheid\w*|statt\w*|weil|wähl\w*|verworfen|lieber
    décid\w+|choisi\w*|plutôt|parce|rejet\w*
    decid\w+|elegi\w*|porque|en lugar|en vez|descart\w*|rechaz\w*
    scel\w+|invece|perché|scart\w*
    escolh\w+|em vez
    решил\w*|выбра\w+|вместо|потому
    """,
    r"决定|選擇|选择|因为|而不是|放弃|改用|採用|采用|決め|決定|代わりに|ため|却下|選び|결정|대신|때문",
)
"""What was decided, and why."""

OPEN = _cue(
    r"""
    to-?dos?|open|unresolved|remain\w*|outstanding|pending|still|later|follow[- ]?up|blocked|waiting|unclear
    not yet|needs?|next|will|should|must|plan\w*|unknown|missing|question|left to
    offen|noch|später|muss
    reste|encore
    pendiente|falta|todavía
    ancora|resta
    осталось
    """,
    r"待办|尚未|还需|未解決|残り|まだ|아직|남은",
)
"""What is still to be done or known."""

PLEASANT = _cue(
    r"""
    thanks?|thank you|thx|cheers|great|good|nice|perfect|awesome|excellent|cool|ok(?:ay)?|yes|yep|sure
    hi|hello|hey|sounds good|looks good|go ahead|go on|continue|carry on|proceed|keep going|done|next|got it
    well done
    danke|super|gut|weiter|hallo
    merci|bonjour|très bien
    gracias|hola|bien
    grazie|ciao
    obrigad[oa]
    спасибо|привет
    谢谢|好的|继续|你好|ありがとう|了解|続けて|감사\w*|계속
    """,
    form=r"^\W*(?:{})\b",
)
"""A greeting, thanks or a nod at the beginning."""

NARRATION = _cue(
    r"""
    let me|let['’]?s|looking|reading|checking|running|opening
    i['’]?ll (?:now )?(?:look|check|read|open|start|see|run|take|view|search|inspect|examine)
    i (?:will|am going to) (?:now )?(?:look|check|read|open|see|run|view|search|inspect)
    """,
    form=r"^\W*(?:(?:now|next|ok(?:ay)?|first|then|good|great|perfect|right|alright)\b)?\W*(?:{})\b",
)
"""What an assistant is about to look at, at the beginning."""

CHANGE = _cue(
    r"""
    instead|no longer|any ?more|chang\w+|updat\w+|correction|correct(?:ed)?|actually|switch\w*|moved?|moving
    replac\w+|revis\w+|from now on|scratch that|bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|reduc\w+
    migrat\w+|renam\w+|supersed\w+|overrid\w+|forget|amend\w*|after all|changed my mind|push\w*|postpon\w+
    extended|delay\w*|shift\w*|rotat\w+|these days|nowadays|i meant|my mistake|make it|wrong|not quite|cut
    from (?:today|tomorrow|monday|next \w+)
    (?:is|are|it['’]s|we|i|be|will|should|that|which|to|has|have) now
    now (?:is|are|use|uses|using|be|at|on|to|lives|runs|reads|has|the|it|we|stands|set)|now(?=\W*$)
    as of|going forward|effective
    jetzt|nun|stattdessen|nicht mehr|geändert|doch
    désormais|maintenant|plutôt|finalement
    ahora|en vez|en lugar|cambi\w+|ya no
    adesso|ora|invece
    agora|mud\w+|em vez
    nu|voortaan
    теперь|вместо
    """,
    r"现在|改为|改成|改用|更新|不再|今後|変更|代わりに|이제|변경|^\W*(?:no|nope|nein|non)\b\s*[,:;.—–-]",
)
"""Something is no more what it was."""

CHANGE_TO = _cue(
    r"""
    (?:set|chang\w+|switch\w*|mov\w+|bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|updat\w+|reduc\w+|"""
    r"""migrat\w+|renam\w+|push\w*|postpon\w+|exten\w+|delay\w*|shift\w*|rotat\w+|went|goe?s?)"""
    r"""\b.*?\b(?:to|with)
    (?:cambi\w+|mud\w+|pass\w+|änder\w*|geändert|wechsel\w*|changé\w*)\b.*?\b(?:a|para|auf|zu|à)
    """
)
"""What stands between a thing and its new value."""

COPULA = _cue(
    r"""
    is|are|was|were|be|becomes?|became|equals?|stays at|stands at
    ist|sind|lautet|beträgt
    est|sont
    es|son|está
    è|é|fica
    jest|wynosi
    """,
    r"['’]s\s|是|为|為|は|이다|это|составляет|—",
)
"""What stands between a thing and its value."""

_GONE = r"(?:the |using |use |a |an )?([^\s,;.:!?]+(?:[.:/-][^\s,;.:!?]+)*)"
INSTEAD = _cue(
    r"""
    instead of|rather than|in place of|replac\w+|ditch|forget(?: about)?|no longer(?: use| on| at)?
    statt|anstatt
    au lieu de|plutôt que
    en vez de|en lugar de
    invece di
    em vez de
    вместо
    """,
    rf",\s(?:and )?not\s+{_GONE}|\bfrom\s+{_GONE}\s+to\b",
    form=rf"\b(?:{{}})\s+{_GONE}",
)
"""What is given up, as the one group of it that matches."""

MORE = _cue(
    r"""
    also|another|additional\w*|a second|the second|secondary|too(?=\W*$)|as well|besides|plus|further|extra
    both|either|add
    auch|zusätzlich
    aussi
    también
    anche
    também
    ещё|также
    """,
    r"也|还有|另外|また|도\b",
)
"""There is one more, so that what was said before still holds."""

ONLY_THOUGHT = _cue(
    r"""
    if|whether|suppos\w+|imagine|assum\w+|hypothetical\w*|would|could|might|may|maybe|perhaps|unless|in case
    what about
    wenn|falls|würde|könnte|vielleicht
    sería|podría|quizás
    serait|pourrait|peut-être
    """,
    r"[?？]\W*$|如果|假如|要是|もし|만약",
)
"""What might be, or is asked."""

REFUSED = _cue(
    r"""
    do not|don['’]?t|never|(?:should|must|shall|will|need)(?: not|n['’]?t)|cannot|can['’]?t|won['’]?t
    refuse\w*|rather not
    """
)
"""What must not be done."""

PAST = _cue(
    r"""
    used to|previous\w*|former\w*|originally|once|back then|last (?:year|month|week|time)|the old|before
    (?:was|were)\b(?!\s+(?:\w+\s+)?(?:chang|mov|rais|lower|switch|updat|bump|increas|decreas|reduc|"""
    r"""postpon|push|exten|delay|shift|rotat|renam|replac|set|correct|revis|migrat))
    (?:war|waren|était|era)\b(?! (?:jetzt|ahora))
    """
)
"""What was, and was not changed just then."""

_PREPOSITIONS = r"""
    for|in|on|at|with|under|within|during|when|while
    für|bei|im
    para|en
    pour|dans
"""
PLACED = _cue(_PREPOSITIONS, form=r"^\W*(?:{})\b")
"""A clause that only says where or when."""

PHRASE = _cue(f"of\n{_PREPOSITIONS}", form=r"\b(?:{})\s+((?:[^\s,;:]+[ ]?){1,4})")
"""Where, when or of what, as its group."""

CLAUSE = _cue(
    r"""
    and|but
    und|aber
    et|mais
    y|pero
    """,
    r"[,;、，；]\s*|\s[—–-]\s|\s\(|\)",
    form=r"\s(?:{})\s",
)
"""What parts the clauses of a sentence."""

_KEYED = pattern(r"^[\W_]{0,4}[\w][\w /().-]{0,40}\s?[:=]\s*\S|\s(?:=|->|→)\s")


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


FUNCTION_WORDS = _set_of("""
    a an the this that these those it its is are was were be been being am to of in on at by for from with as
    and or but so then there here we i you they he she our my your their his her us me them do does did has
    have had will would can could please just
    der die das den dem des ein eine einen einem einer ist sind war und oder zu von im in am auf für mit
    wir ich
    le la les un une des du de est sont et ou à au aux en pour nous je vous sur
    el los las una uno es son y o del al por para con nosotros que se
    il lo gli i di è e nel per noi che
    os as um uma é são do da no na
    это и в на с для по мы я
    的 了 是 在 把 我 们 请 は が を に の で と も です ます
    이 가 을 를 은 는 의
""")
"""Words that carry no meaning of their own."""

CHANGE_WORDS = _set_of("""
    now instead longer anymore changed changes changing updated updates correction corrected correct actually
    switched moved replaced revised from currently current bumped raised lowered increased decreased reduced
    makes made uses using used remember fyi important please again still value should must shall let lets
    let's need needs want wants go goes been days ok okay well no wait sorry oh hey since i've we've it's
    pushed postponed extended delayed shifted rotated scratch mind
    jetzt nun stattdessen
    ahora
    maintenant désormais
    adesso ora
    agora
    теперь
    现 改 变 更 今
""")
"""Words that only say that something is or changes, and not what."""

CHANGE_VERBS = _set_of("""
    change update switch move replace revise bump raise lower increase decrease reduce set sets make use note
    put take keep push plan plans
""")
"""Such words only where they are verbs: a lower bound and an update interval are things."""

LEADS = _set_of("we i you please to let us let's lets now actually then should must shall will can been")
"""A word behind one of these is a verb."""

ORDERS = _set_of("set make use note put take keep")
"""Verbs that begin an order."""

DETERMINERS = _set_of("the a an my our your it its that this their his her all")
"""A word before one of these is a verb."""

OWNERS = _set_of("my your his her their our mein dein unser mi tu su mon ton son")

NUMBER_WORDS = _set_of("""
    two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty seventy
    eighty ninety hundred thousand
    zwei drei vier fünf sechs sieben acht neun zehn zwölf zwanzig dreißig vierzig fünfzig hundert tausend
    deux trois quatre cinq sept huit neuf dix vingt trente cinquante cent mille
    dos tres cuatro cinco seis siete ocho nueve diez veinte treinta cincuenta cien
""")
"""Amounts in words."""

MANY = _set_of("ticket invoice order issue case item customer reference receipt booking chapter")
"""Things of which there are many: a second one is no new value of the first unless it says so."""


def binds(text: str) -> int:
    """How much a sentence of a user looks like a rule or a goal: 0, 1 or 2."""
    return 2 if GOAL.search(text) else 1 if RULE.search(text) else 0


def decides(text: str) -> int:
    """How much a sentence of an assistant looks like a decision (2) or an open point (1), else 0."""
    return 2 if DECISION.search(text) else 1 if OPEN.search(text) and not is_narration(text) else 0


def is_keyed(text: str) -> bool:
    """Whether it names something and gives its value, as in `name: value`."""
    return bool(_KEYED.search(text))


def is_pleasant(text: str) -> bool:
    """Whether it only greets, thanks or nods."""
    match = PLEASANT.match(text)
    return match is not None and len(text[match.end() :].split()) <= MOST_BEHIND


def is_narration(text: str) -> bool:
    """Whether an assistant only says what it is about to look at."""
    return bool(NARRATION.search(text))


def changes(sentence: str) -> bool:
    """Whether the sentence says that something is no more what it was."""
    return bool(CHANGE.search(sentence))


def is_news(sentence: str) -> bool:
    """Whether the sentence says how things are, and not what was, what might be, or what must not be done."""
    return not any(cue.search(sentence) for cue in (ONLY_THOUGHT, REFUSED, PAST))


def adds(sentence: str) -> bool:
    """Whether the sentence says that there is one more, so that what was said before still holds."""
    return bool(MORE.search(sentence))
