"""The headings of a digest: by them one that comes back as text is known."""

ASKED = "What users said:"
DECIDED = "What the assistant decided and said:"
FILES = "Files, by the last thing done to each:"
FAILED = "Errors met:"
DONE = "What was done:"
NAMED = "Names and numbers to keep exact:"
