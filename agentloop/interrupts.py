"""Whether a KeyboardInterrupt is somebody's Ctrl-C, or something that a tool or a callback raised."""

import signal
import threading
from opcode import opmap
from types import CodeType, TracebackType

from agentloop.callables import without_partials

_RAISE = opmap["RAISE_VARARGS"]


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the error is the KeyboardInterrupt of a signal.

    Only the main thread gets one. It comes up wherever the signal found the program, not at a `raise`
    statement; or at that of the handler which stands for SIGINT.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler, last = _code_of(signal.getsignal(signal.SIGINT)), error.__traceback__
    by_handler = False
    while last and last.tb_next:
        by_handler = by_handler or last.tb_frame.f_code is handler
        last = last.tb_next
    return last is None or by_handler or last.tb_frame.f_code is handler or not _stands_at_raise(last)


def _stands_at_raise(at: TracebackType) -> bool:
    return at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE


def _code_of(handler: object) -> CodeType | None:
    called = without_partials(handler)
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None
