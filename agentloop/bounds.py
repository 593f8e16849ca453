"""What of an answer, of a file and of a run is taken at most: each may be broken, or mean harm.

Each bound is far above what honest servers send, honest files hold and honest runs take.
"""

MOST_STEPS = 200
"""Answers to an agent in one run, where nothing else is asked for."""

MOST_ANSWER_BYTES = 64_000_000
"""One answer, all lines and events in it together: 200,000 tokens as events of 300 bytes."""

LEAST_ANSWER_BYTES, BYTES_A_TOKEN = 16_000_000, 1_000
"""Where an answer has a limit of tokens: so much is taken in any case, as of pictures, and for each token."""

BYTES_A_VALUE = 10
"""A list or an object that holds next to nothing takes ten times its bytes in memory, so values are counted
too: one in so many bytes of the bound. Events have 12 bytes for each."""

MOST_ERROR_BYTES = 1_000_000
"""The body of an error: far more than any says."""

MOST_MODELS_BYTES = 4_000_000
"""What a server tells of its models: lists of all that there are have a tenth of it."""

MOST_REDIRECTS = 3
"""One to https and one to the right path; more is a server that sends in circles."""

MOST_CALLS = 1_000
"""An answer with more calls is none; models ask for a few, seldom for dozens."""

MOST_CALLS_RUN = 128
"""So many calls of one answer are run, and the others answered in words."""

MOST_AT_ONCE = 32
"""So many calls run side by side; before each further one the limits are looked at."""

MOST_NESTED = 100
"""So deep may lists and objects be nested, in a message and in arguments: what copies them is recursive."""

MOST_IMPORT_BYTES = 200_000_000
"""A file that is imported: 50 million tokens, ten times a session of 10,000 messages with long results."""

MOST_RECORD_BYTES = MOST_IMPORT_BYTES
"""One record of a database, or the checkpoint of a log: reading it takes up to four times its bytes."""

MOST_IMPORT_VALUES = 4_000_000
"""Lists, objects and what stands in them, in such a file: a record has about eight. Each takes up to 100
bytes of memory."""

MOST_IMPORT_RECORDS = 500_000
"""Records in it: a session of 10,000 messages has 40,000."""

MOST_KEYS = 10_000
"""Keys of one object in it: a message has ten, a table that somebody made an object hundreds."""

MOST_KEY_PARTS = 20
"""Parts of one dotted key of a TOML file: Python's parser takes memory by the square of them."""

MOST_SETTINGS = 200
"""Keys of a configuration file: there are some fifty."""

MOST_SETTING_VALUES, MOST_SETTING_NAME_CHARS = 1_000, 10_000
"""Values of one setting, and characters of all names in one that names files: each is looked for."""

MOST_MCP_BYTES = 16_000_000
"""One message of an MCP server: a picture of 10 MB is in it as text."""

MOST_MCP_VALUES = 100_000
"""Lists and objects in one message of an MCP server over pipes: each takes a kilobyte when it is read."""

MOST_MCP_ASKED = 100
"""What an MCP server may ask before it reads an answer: honest ones ask one or two things at a time."""

MOST_MCP_TOOLS = 128
"""Tools of one MCP server. OpenAI takes so many in a request, of all servers together."""

MOST_MCP_SCHEMA_CHARS = 32_000
"""The schema of one such tool, as JSON: those of honest servers have a few hundred, seldom thousands."""
