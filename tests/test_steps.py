"""What to do next is read from the log alone."""

from agentloop.context import AskModel, Finish, RunTools, next_step
from agentloop.messages import Message, ToolCall

ASKED = Message.user("go")
ONE, TWO = ToolCall(id="1", name="a"), ToolCall(id="2", name="b")


def test_a_user_message_asks_the_model() -> None:
    assert next_step([ASKED]) == AskModel()


def test_an_empty_log_asks_the_model() -> None:
    assert next_step([]) == AskModel()


def test_calls_without_results_are_run_in_call_order() -> None:
    assert next_step([ASKED, Message.assistant(None, [ONE, TWO])]) == RunTools((ONE, TWO))


def test_only_what_has_no_result_is_run_whatever_came_first() -> None:
    log = [ASKED, Message.assistant("", [ONE, TWO]), Message.tool("2", "done")]
    assert next_step(log) == RunTools((ONE,))


def test_when_all_calls_are_answered_the_model_is_asked() -> None:
    log = [ASKED, Message.assistant("", [ONE, TWO]), Message.tool("2", "x"), Message.tool("1", "y")]
    assert next_step(log) == AskModel()


def test_an_id_that_is_called_twice_wants_two_results() -> None:
    log = [ASKED, Message.assistant("", [ONE, ONE]), Message.tool("1", "x")]
    assert next_step(log) == RunTools((ONE,))


def test_ids_of_earlier_turns_answer_nothing() -> None:
    log = [Message.assistant("", [ONE]), Message.tool("1", "x"), ASKED, Message.assistant("", [ONE])]
    assert next_step(log) == RunTools((ONE,))


def test_text_without_calls_finishes() -> None:
    assert next_step([ASKED, Message.assistant("42")]) == Finish("42")
