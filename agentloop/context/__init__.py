"""What the model sees: the fold of the log, and the request made of it."""

from agentloop.context.budget import DEFAULT_WINDOW, Budget, is_believed, learn_from_overflow
from agentloop.context.budget import overflow_error, recounted, too_small_for, with_shorter_answer
from agentloop.context.context import Context, rewound
from agentloop.context.entries import Entry, Growing, GrowingSet, Kind, Shown
from agentloop.context.exchanges import Unit, clamped, covered_ranges, hold_news, may_go, newest_within
from agentloop.context.exchanges import next_turn_start, safe_cover, turns_of, units_of
from agentloop.context.guard import AUTOMATIC, Guard
from agentloop.context.identifier_kinds import MOST_CHARS, IdentifierKind, counted, identifiers, is_bare
from agentloop.context.identifier_kinds import kind_of, kinds, missing, named_values
from agentloop.context.originals import covered_before, model_summaries, originals_of, records_without_log
from agentloop.context.pairing import ACKNOWLEDGED, SYSTEM_ROLES, TOLD_TO_GO_ON, FillerTokens, answers
from agentloop.context.pairing import WaitingCalls, newest_exchange, results_of, says_nothing
from agentloop.context.parts import RESPONSE_ITEMS, chat_messages, for_chat, for_chat_completions, stub
from agentloop.context.rendering import Labelled, as_prose, earlier_record, labelled, parse, prose_of
from agentloop.context.rendering import record_in, render, stands_below
from agentloop.context.reports import Report
from agentloop.context.request import AskModel, Finish, RunTools, Step, arranged, next_step, partial_answer
from agentloop.context.request import RequestPrefix, calls_of, cut_short_by, wire_messages
from agentloop.context.tokens import REQUEST_OVERHEAD, TokenCounter, count_message, count_request
from agentloop.context.tokens import count_tools, counter_for, estimate_tokens, fits, fitted
from agentloop.context.wire import ROLES, to_wire
