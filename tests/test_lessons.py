"""The lessons: each runs alone and offline, says what it teaches, and shows what it says."""

import ast
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

import agentloop
from agentloop import Agent, Message, OfflineModel, Runner
from agentloop.events import MessageRecord as MessageStored
from agentloop.stream import (
    CompactionEnded,
    CompactionStarted,
    MessageAdded,
    ResultsCleared,
    RunEnded,
)
from lessons import (
    l00_chat,
    l01_loop,
    l02_tools,
    l03_todo,
    l04_sub_agents,
    l05_skills,
    l06_context_compaction,
    l07_task_board,
    l08_background,
    l09_team,
    l10_protocols,
    l11_autonomous,
    l12_worktrees,
    l13_full_agent,
    l14_triggers_strategies_undo,
    l15_overflow_guard,
    l16_callbacks_memory,
    l17_sessions_resume_workers,
    l18_approvals_hooks,
)
from tests.cli_kit import ROOT, Finished, environment, run_script
from tests.cli_kit import agentloop as command_line
from tests.course import PAGE, page
from tests.strict_provider import StrictProvider

pytestmark = pytest.mark.whole

LESSONS = sorted((ROOT / "lessons").glob("l*.py"))
SECTIONS = ["The problem", "The picture", "How it works", "What changed", "Try it"]
PUBLIC_MODULES = {
    "context",
    "durable",
    "models",
    "sessions",
    "stores",
    "strategies",
    "stream",
    "testing",
    "triggers",
    "workspace",
}
SHOWN = {
    "l00_chat": ("Your name is Ada.", "I do not see your name", "holds 4 messages"),
    "l01_loop": ("by hand", '→ count_words({"text": "to be or not to be"})', "message for message: yes"),
    "l02_tools": ('"maximum": 250', "Call fetch again", "There is no tool 'knead'", "the bread is baked"),
    "l03_todo": ("only one may be", "[Reminder:", "compact: done", "[Kept in sight", "[>] paint them"),
    "l04_sub_agents": ("scout: Ada: I wish for a telescope.", "letters~scout.", "if one reads all alone"),
    "l05_skills": ("- tea: How we", "Green: 2 minutes", "is outside", "compact: done", "[Kept in sight"),
    "l06_context_compaction": ("1 micro", "2 auto", "3 compact", "all there was", "transcript_", "undo:"),
    "l07_task_board": ("task_1.json", "2 [ ] Plant · after 1", "Task 1, Dig: Clay below.", "No task is free"),
    "l08_background": ("runs in the background", "[Reminder: job", "the dough is smooth", "its run ended"),
    "l09_team": ("1 user → lead", "2 lead → ada", "Two slugs.", "Seven snails. Two slugs."),
    "l10_protocols": (
        "no to 1. There is a pipe.",
        "yes to 3",
        "1 Dig: completed It is dug.",
        "2 Water: pending",
    ),
    "l11_autonomous": ("3 Plant (after 1)", "Done, after Fetch water and Plant.", "runs in all programs: 6"),
    "l12_worktrees": (
        "<<<<<<< ",
        "tea.txt meanwhile:  'warm the pot\\npour\\n'",
        "with milk or mint",
        "Begin",
    ),
    "l13_full_agent": ("[Reminder: job", "compaction: done", "[Kept in sight", "the repository: Version 4"),
    "l14_triggers_strategies_undo": ("9 turns > 8 (done)", "I do not see", "The code of the cellar is 1037."),
    "l15_overflow_guard": ("the server refused", "2,500 learnt", "paused after 3", "the prompt has"),
    "l16_callbacks_memory": ("before_compaction:", "facts.json", "Your allergy is peanuts."),
    "l17_sessions_resume_workers": ("status 9", "interrupted: the run", "packed: tent, stove", "is busy"),
    "l18_approvals_hooks": ("status: needs_approval", "waits:  delete", "denied: pay 20", "status: answered"),
}

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def run_alone(path: Path, tmp_path: Path, *arguments: str, fresh: bool = False) -> Finished:
    """The lesson as a program in an empty folder, warnings being errors; it must leave nothing behind."""
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    own = {"TMPDIR": str(temporary), "HOME": str(tmp_path), "AGENTLOOP_HOME": str(tmp_path / "agentloop")}
    done = run_script(path, *arguments, cwd=here, env=own | {"PYTHONUTF8": "1"}, fresh=fresh)
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
    return done


@pytest.mark.parametrize(
    "path",
    [
        path if number % 6 == 0 else pytest.param(path, marks=pytest.mark.deep)
        for number, path in enumerate(LESSONS)
    ],
    ids=lambda path: path.stem,
)
def test_runs_alone_and_shows_what_it_teaches(path: Path, tmp_path: Path) -> None:
    done = run_alone(path, tmp_path)
    assert (done.status, done.err) == (0, "")
    assert [text for text in SHOWN[path.stem] if text not in done.out] == []
    assert len(done.out.splitlines()) <= 40


@each_lesson
@pytest.mark.deep
def test_takes_a_prompt(path: Path, tmp_path: Path) -> None:
    done = run_alone(
        path, tmp_path, "--prompt", "Our password is marmalade, I told you.", fresh=path in LESSONS[::-6]
    )
    assert (done.status, done.err) == (0, "")
    assert "marmalade" in done.out


@pytest.mark.deep
@each_lesson
def test_its_text_has_a_motto_and_every_section(path: Path, tmp_path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text is not None
    motto, blank, *_ = text.splitlines()
    assert (motto[-1], blank) == (".", "")
    assert re.findall(r"^(?=\S)(?!\Z).+$", text, re.MULTILINE)[1:] == SECTIONS
    assert f"python lessons/{path.name}" in text
    assert motto in run_alone(path, tmp_path, "--help").out


@each_lesson
def test_it_is_short_and_says_what_changed_and_what_a_real_model_needs(path: Path) -> None:
    text = path.read_text("utf-8")
    end = ast.parse(text).body[0].end_lineno
    assert len([line for line in text.splitlines()[end:] if line.strip()]) <= 120
    assert "What changed\n    | | " in text
    assert text.count("    - With a real model: ") == 1


@each_lesson
def test_uses_public_names_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            package, _, module = (node.module or "").partition(".")
            names = {alias.name for alias in node.names}
            assert package in {"agentloop", "pydantic"} | sys.stdlib_module_names
            assert package != "agentloop" or module in PUBLIC_MODULES or names <= set(agentloop.__all__)
            assert not any(name.startswith("_") for name in names)


def test_a_conversation_is_all_that_a_model_knows() -> None:
    shown = l00_chat.main()
    assert "Ada" in shown.remembered
    assert "Ada" not in shown.forgotten
    assert [message.role for message in shown.messages] == ["user", "assistant"] * 2


def test_the_loop_by_hand_and_the_runner_say_the_same() -> None:
    shown = l01_loop.main()
    assert shown.same
    assert [message.role for message in shown.by_hand] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [message.text for message in shown.by_hand if message.role == "tool"] == ["4", "6"]
    assert len(inspect.getsource(l01_loop.loop).splitlines()) <= 20


def test_a_differing_conversation_is_not_called_the_same() -> None:
    shown = l01_loop.Shown(by_hand=(Message.user("a"),), by_runner=(Message.user("b"),))
    assert not shown.same


def test_whatever_goes_wrong_in_a_tool_is_an_answer() -> None:
    shown = l02_tools.main()
    told = [text for _, text in shown.answers]
    assert list(shown.schema["function"]["parameters"]["properties"]) == ["degrees"]
    assert "there is flour, salt, yeast" in told[0]
    assert "less than or equal to 250" in told[1]
    assert "its battery is empty" in told[2]
    assert "There is no tool 'knead'" in told[3]
    assert told[4:] == ["the bread is baked", "flour is on the table", "the oven is at 220 °C"]
    assert "baked" in shown.output


@pytest.mark.deep
def test_a_cold_oven_ends_at_its_time_limit() -> None:
    shown = l02_tools.main("Use bake on 'bread'.")
    ((_, text),) = shown.answers
    assert text.startswith("bake timed out after 2 s; what it did until then stays done")


def test_a_list_that_is_forgotten_is_reminded_of_and_kept_in_sight() -> None:
    shown = l03_todo.main()
    assert "2 items are in_progress" in shown.results[0]
    assert ["[Reminder: " in text for text in shown.results] == [False] * 3 + [True] + [False] * 3
    assert "[>] paint them" in shown.kept


def test_only_the_answers_of_scouts_stand_in_the_context() -> None:
    shown, alone = l04_sub_agents.main()
    assert [text.partition(":")[0] for text in shown.results] == ["Ada", "Ben", "Cleo"]
    assert len(shown.branches) == 3
    assert all(branch.startswith("letters~scout.") for branch in shown.branches)
    assert 4 * shown.context < alone
    assert shown.used > alone


def test_a_skill_is_read_on_demand_and_kept_in_sight() -> None:
    shown = l05_skills.main()
    assert "Warm the pot" not in shown.instructions
    assert "Warm the pot" in shown.results[0]
    assert "safe lies" not in "".join(shown.results)
    assert "Warm the pot" in shown.kept
    assert "Knead" not in shown.kept


def test_all_three_layers_work_on_a_run_over_many_files() -> None:
    shown = l06_context_compaction.main()
    reasons = [event.reason for event in shown.events if isinstance(event, CompactionStarted)]
    ended = [event for event in shown.events if isinstance(event, CompactionEnded)]
    assert any(isinstance(event, ResultsCleared) for event in shown.events)
    assert reasons.count("threshold") >= 2
    assert reasons[-1] == "tool"
    assert "overflow" not in reasons
    assert {event.status for event in ended} == {"done"}
    assert all(event.tokens_after < event.tokens_before for event in ended)
    answer = next(event.output for event in shown.events if isinstance(event, RunEnded))
    assert [name for name in l06_context_compaction.PLANTS if f"{name}.py: Grows the" not in answer] == []


def test_the_transcript_was_the_whole_history_at_the_last_compaction() -> None:
    shown = l06_context_compaction.main()
    said: list[dict[str, object]] = []
    wanted: list[dict[str, object]] = []
    for event in shown.events:
        if isinstance(event, MessageAdded):
            said.append(event.message.to_openai())
        elif isinstance(event, CompactionStarted):
            wanted = list(said)
    assert shown.transcript
    assert [json.loads(line) for line in shown.transcript.lines] == wanted
    assert {event.transcript for event in shown.events if isinstance(event, CompactionEnded)} == {
        shown.transcript.name
    }
    assert not any("... [truncated" in line for line in shown.transcript.lines)


def test_undo_gives_the_messages_back() -> None:
    shown = l06_context_compaction.main()
    assert shown.tokens_undone > shown.tokens_compacted


def test_a_transcript_that_lacks_a_message_is_not_called_whole() -> None:
    said = [Message.user("a"), Message.assistant("b")]
    lines = [json.dumps(message.to_openai()) for message in said]
    transcript = l06_context_compaction.Transcript
    assert transcript(name="t", lines=tuple(lines)).is_whole(said)
    assert not transcript(name="t", lines=(lines[1],)).is_whole(said)


def test_a_digest_knows_what_a_window_dropped_and_undo_brings_it_back() -> None:
    shown = {each.name: each for each in l14_triggers_strategies_undo.main()}
    known = {name: "1037" in each.answer for name, each in shown.items()}
    assert known == {"drop_the_older_half": False, "the newest 3 turns": False, "3 turns, a digest": True}
    for each in shown.values():
        before, after, undone = each.sizes
        assert after < before < undone
        assert "1037" in each.undone


def test_a_refusal_teaches_the_window_and_a_guard_pauses_what_does_not_help() -> None:
    shown = l15_overflow_guard.main()
    assert (shown.believed, shown.learnt) == (128_000, 2_500)
    assert shown.reasons[0] == "overflow"
    assert set(shown.reasons[1:]) == {"threshold"}
    assert shown.answer == "The name of my ship is Otter."
    assert "done" not in shown.outcomes
    assert "paused after 3" in shown.skipped[-1]
    assert "the prompt has" in shown.too_big


def test_another_agent_does_the_tasks_on_disc_in_their_order() -> None:
    shown = l07_task_board.main()
    assert shown.files == ("task_1.json", "task_2.json", "task_3.json")
    assert [text for text in shown.done if text.startswith("[Your task")][1].endswith("Dig: Clay below.")
    assert {task.owner for task in shown.tasks} == {"bob"}
    assert {task.status for task in shown.tasks} == {"completed"}


def test_the_end_of_a_job_is_told_once_and_what_still_runs_is_stopped() -> None:
    shown = l08_background.main()
    told = [text for text in shown.results if "[Reminder: job" in text]
    assert len(told) == 1
    assert "brew" in told[0]
    (sky,) = shown.stopped
    assert "watch_the_sky" in sky


def test_members_of_a_team_hear_of_each_other_by_letters() -> None:
    shown = l09_team.main()
    asked = [(sender, to) for sender, to, _ in shown.letters]
    assert asked[:3] == [("user", "lead"), ("lead", "ada"), ("lead", "bob")]
    assert sorted(asked[3:]) == [("ada", "lead"), ("bob", "lead")]
    assert shown.outputs[-1] == ("team.lead", "Seven snails. Two slugs.")


def test_nothing_is_dug_without_a_yes_and_who_agreed_to_stop_takes_no_task() -> None:
    shown = l10_protocols.main()
    yes_or_no = [line for line in shown.letters if ": yes to" in line or ": no to" in line]
    assert [line.partition(". ")[0] for line in yes_or_no] == [
        "2 lead → ada: no to 1",
        "4 lead → ada: yes to 3",
        "6 ada → user: yes to 5",
    ]
    assert [(task.status, task.result) for task in shown.tasks] == [
        ("completed", "It is dug."),
        ("pending", ""),
    ]


def test_two_programs_work_off_one_board_and_do_nothing_twice() -> None:
    shown = l11_autonomous.main()
    assert {task.status for task in shown.tasks} == {"completed"}
    assert shown.runs == len(shown.tasks) == 6
    assert shown.tasks[3].result == "Done, after Fetch water and Plant."


def test_a_conflict_is_mended_in_the_worktree_and_nothing_of_yours_is_touched() -> None:
    shown = l12_worktrees.main()
    milk, mint = shown.merged
    assert "It is merged" in milk[-1]
    assert "Both sides changed" in mint[0]
    assert "It is merged" in mint[-1]
    assert shown.meanwhile == "warm the pot\npour\n"
    assert shown.at_the_end == "warm the pot\npour, with milk or mint\n"
    assert shown.history[-1] == "Begin"


def test_all_sets_of_tools_work_together_and_stay_in_sight_of_one_agent() -> None:
    shown = l13_full_agent.main()
    for text in ("[Worktree note]", "[>] read the changes", "[Your task 1]", "One line. No adjectives."):
        assert text in shown.kept
    assert sum("[Reminder: job" in text for text in shown.results) == 1
    assert (shown.note, shown.task) == ("Version 4: tea is served hot.", "completed")


def test_facts_that_left_one_session_are_known_in_the_next() -> None:
    shown = l16_callbacks_memory.main()
    assert shown.gathered >= 2
    assert [fact.text for fact in shown.facts] == [
        "My allergy is peanuts.",
        "My sister's name is Ada, and she cooks on Sundays.",
    ]
    assert shown.with_memory == "Your allergy is peanuts."
    assert "peanuts" not in shown.without_memory


async def test_a_fact_points_at_the_position_it_came_from(tmp_path: Path) -> None:
    keeper = l16_callbacks_memory.FactKeeper(OfflineModel(), tmp_path / "facts.json")
    async with Runner(Agent(OfflineModel()), callbacks=[keeper], transcripts=None) as runner:
        for text in ("Hello.", "My boat is blue.", "My boat is blue. My dog is old.", "Good night.", "Bye."):
            await runner.run(text, session_id="s")
        await runner.compact("s")
        records = {record.seq: record.event for record in await runner.store.read("s")}
    facts = l16_callbacks_memory.load(keeper.path)
    assert [fact.text for fact in facts] == ["My boat is blue.", "My dog is old."]
    for fact in facts:
        event = records[fact.seq]
        assert isinstance(event, MessageStored)
        assert fact.text in event.message.text


def test_a_killed_program_is_gone_on_with_and_two_at_once_do_not_meet() -> None:
    shown = l17_sessions_resume_workers.main()
    assert (shown.killed, shown.packed, shown.resumed) == (9, ("tent", "stove"), "All is packed.")
    assert "is busy" in shown.busy
    assert shown.waited == "I see 11 messages, this one included."
    assert shown.queued is None


@pytest.mark.deep
def test_a_worker_answers_where_there_is_a_database(database: str) -> None:
    shown = l17_sessions_resume_workers.main(database=database)
    assert shown.queued == "answered: I see 1 message, this one included."


def test_a_call_that_was_approved_runs_once_and_the_hook_counts() -> None:
    shown = l18_approvals_hooks.main()
    assert (shown.answer, shown.disc, shown.left) == ("Cleaned: old.log is gone.", ("notes.md",), 5)


def test_the_page_of_the_course_is_made_from_the_lessons() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.course writes it"


def test_the_command_line_lists_the_lessons(tmp_path: Path) -> None:
    done = command_line("lessons", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [path.stem for path, line in zip(LESSONS, lines, strict=True) if path.stem not in line] == []


def test_the_command_line_runs_a_lesson_with_a_prompt(tmp_path: Path) -> None:
    done = command_line("lessons", "6", "--prompt", "Read red_kale.py and say what it does.", cwd=tmp_path)
    assert "|---" not in done.out, "tables are drawn"
    assert (done.status, done.err) == (0, "")
    assert "red_kale.py: Grows the red kale, from the seed to the kitchen." in done.out
    assert "2 auto" not in done.out


def test_the_command_line_runs_a_lesson_with_a_model(tmp_path: Path) -> None:
    with StrictProvider(["Noted.", "Ada.", "Nobody."], model="mine") as server:
        where = environment(tmp_path, OPENAI_BASE_URL=server.url)
        done = command_line("lessons", "0", "--model", "mine", cwd=tmp_path, env=where)
    assert (done.status, done.err) == (0, "")
    assert "assistant: Nobody." in done.out
    assert {body["model"] for body in server.bodies} == {"mine"}


def test_a_lesson_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    done = command_line("lessons", "99", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.complaint() == "agentloop: there is no lesson 99: they go from 0 to 18"
