"""What a tool or a command does, by its name."""

import re

CHANGING = ("edited", "written", "moved", "deleted")
LOOKING = ("read", "searched", "listed")

_VERBS = (
    ("deleted", r"delet|remov|unlink|rm\b|trash"),
    ("moved", r"mov|renam|mv\b"),
    (
        "edited",
        r"edit|patch|replac|updat|modif|insert|append|apply|change|sed -i|str_replace|refactor|format",
    ),
    ("written", r"writ|creat|save|new_|put|touch|mkdir|upload|generat|add"),
    ("run", r"run|exec|test|build|compil|python|node|pytest|bash|sh\b|make|launch"),
    ("searched", r"search|grep|find|glob|rg\b"),
    ("listed", r"list|ls\b|tree|dir\b"),
    ("read", r"read|cat|view|open|get|show|fetch|load|head|tail|less|inspect|look|print|parse|check|sed"),
)
_ACTIONS = tuple((action, re.compile(rf"(?:^|[^a-z])(?:{verbs})", re.IGNORECASE)) for action, verbs in _VERBS)
_ELSEWHERE = re.compile(r"^(?:cd \S+ ?(?:&&|;) ?|[A-Z_]+=\S+ |sudo |time |timeout \S+ )+")


def action_of(name: str) -> str:
    """What a tool or a command of this name does to a file; "used" where the name does not tell."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:60])
    for text in (snake.split(" ", 1)[0], snake):
        for action, verbs in _ACTIONS:
            if verbs.search(text):
                return action
    return "used"


def program_of(command: str) -> str:
    """The command without what says where and how it is run."""
    return _ELSEWHERE.sub("", command)


def only_looks(name: str, command: str) -> bool:
    """Whether a call only looks at something, so that what it shows may speak of errors of others."""
    return action_of(program_of(command) if command else name) in LOOKING
