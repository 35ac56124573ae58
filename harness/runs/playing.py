"""Playing and scoring of one attempt, whatever the agent or the scorer raises."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from stillweb.harness._parsing import no_number
from stillweb.harness.agents import Agent
from stillweb.harness.agents.attempt import (
    ENDPOINT_FAILED,
    Attempt,
    AttemptEnded,
    AttemptStopped,
    LimitReached,
)
from stillweb.harness.agents.function import FunctionAgent
from stillweb.harness.models.tape import ModelError
from stillweb.harness.trace import Trace
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from stillweb.snapshots.extras import missing_extra

if TYPE_CHECKING:  # `play` runs in each agent's process, which has to start quickly
    from stillweb.harness.runs.repeating import KnownEnds
    from stillweb.harness.runs.resources import RunResources
    from stillweb.harness.scoring import Score

IN_PROCESS = "a process of its own: the agent is a function in Stillweb's process, and trusted"
Played = tuple[str | None, str, str | None]  # answer, end, error
WITHOUT = "the agent ran scripts in its browser, or opened pages of its own; it is scored by the page that its other calls lead to"
MOST_ANSWER = 4_000_000  # characters; one of 64 MB of odd bytes took 4 GB to trace and score


def time_of(agent: Agent, limit: float | None, *, repeating: bool) -> float | None:
    """Return the seconds that an agent has: more in a repetition, which ends where the first run did."""
    lenient = repeating and limit is not None and not getattr(agent, "needs_gateway", False)
    return 3 * limit + 30 if lenient and limit else limit


async def play(agent: Agent, attempt: Attempt, *, ending: Callable[[], bool] = lambda: False) -> Played:
    """Run the agent within its time. `ending` returns True while the run is being cancelled.

    Raises only MissingCapability, when the machine lacks something.
    """
    seconds = None if getattr(agent, "keeps_time", False) else attempt.seconds
    cancelled, begun = _cancelled(), time.monotonic()
    try:
        async with asyncio.timeout(seconds) as timer:
            with attempt.lanes.as_root():
                text: Any = await agent.run(attempt)
            attempt.stop_as_before()  # a faster repetition may get further than the first run did
        if seconds is not None and time.monotonic() - begun > seconds:  # it held the loop
            raise AttemptEnded("seconds", _over(attempt))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    # agents are foreign code: their failure is a result, recorded with its traceback
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError | SystemExit) and _cancelled() > cancelled:
            raise  # the run was cancelled, not only the agent
        if ending():
            raise asyncio.CancelledError from error  # the agent turned the cancellation into an error
        attempt.settle()
        return _failed(attempt, attempt.machine_error or _told_by(error), timed_out=timer.expired())
    finally:
        attempt.ended = True
    attempt.settle()
    if ending():
        raise asyncio.CancelledError  # the agent swallowed the cancellation
    if attempt.machine_error:
        raise attempt.machine_error
    # foreign code may return anything; a trace holds text only
    if text is not None and not isinstance(text, str):
        return None, "error", f"the agent's answer is not text but {type(text).__name__}"
    if text is not None and len(text) > MOST_ANSWER:
        return None, "error", f"the agent's answer has more than {MOST_ANSWER:,} characters, which is none"
    return text, "none" if text is None else "answered", None


def _cancelled() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _told_by(error: BaseException) -> BaseException:
    """Return the exception of a group that decides how the attempt ended."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    for kind in (MissingCapability, AttemptStopped, LimitReached, ModelError):
        found: BaseException | None = error.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return error


def _failed(attempt: Attempt, error: BaseException, *, timed_out: bool) -> Played:
    """Return the result of an attempt whose agent raised `error`. Raises MissingCapability again."""
    match error:
        case AttemptEnded():
            return None, error.end, error.error
        case LimitReached():
            return None, error.limit, str(error)
        case AttemptStopped():
            if error.stop.end == "error":
                attempt.trace.write("evidence", kind="note", text=ENDPOINT_FAILED)
            return None, error.stop.end, error.stop.error
        case TimeoutError():
            over = (None, "seconds", _over(attempt))
            return over if timed_out else (None, "error", f"TimeoutError: {error}")
        case MissingCapability():
            raise error  # no browser, full disk: the machine's fault, so the attempt is not scored
        case ModuleNotFoundError() if (missing := missing_extra(error)) is not None:
            raise missing from error
        case ModelError():
            attempt.trace.write("evidence", kind="note", text=ENDPOINT_FAILED)
            return None, "error", str(error)
        case StillwebError():
            return None, "error", str(error)
    frames = "".join(traceback.format_exception(error))
    attempt.trace.write(
        "evidence", kind="note", text="the agent raised an exception", aside={"traceback": frames}
    )
    return None, "error", f"{type(error).__name__}: {error}"


def _over(attempt: Attempt) -> str:
    return f"the limit of {attempt.limits.seconds or 0:g} seconds is used up"


def copy_agent_part(attempt: Attempt, before: Trace) -> Played:
    """Copy the agent's part from an earlier trace if only the judge is asked again; return its result."""
    from stillweb.harness.scoring.judging import copy_agent_events

    copy_agent_events(attempt.trace, before)
    answer = before.last("answer")
    assert answer is not None
    return answer["text"], answer["end"], answer.get("error")


async def score_attempt(
    shop: RunResources, attempt: Attempt, played: Played, tools: Any, known: KnownEnds | None
) -> Score:
    """Score an attempt in a thread (judges and sandboxes block), with the final page if there is one."""
    from stillweb.harness.sandbox.running import end_with_context
    from stillweb.harness.scoring.judging import conclude, failed_scoring
    from stillweb.harness.tools.toolset import puts_own_content

    page = None
    if attempt.task.scorer == "page":
        made = sorted(
            (event for event in attempt.trace.events if event["event"] == "tool_call"),
            key=lambda event: event.get("aside", {}).get("order", event["n"]),
        )
        calls = [(event["tool"], event["arguments"]) for event in made]
        page = final_page(tools, asyncio.get_running_loop(), calls)
        if page is not None and any(itertools.starmap(puts_own_content, calls)):
            attempt.trace.write("evidence", kind="note", text=WITHOUT)
    text, end, error = played
    aside: dict[str, Any] = {}
    if isinstance(shop.agent, FunctionAgent):
        attempt.confinement = {"held": [], "missing": [IN_PROCESS]}
    if attempt.confinement:
        aside["confinement"] = attempt.confinement
    if attempt.given_up:
        aside["given_up"] = attempt.given_up
    key = (attempt.task.id, attempt.number)
    unjudged = known.unjudged.get(key, {}) if known else {}
    arguments = (attempt.trace, attempt.task, text, end, error, shop.evaluator, attempt.session, page, aside)
    try:
        if attempt.task.scorer in ("table", "exact"):
            return conclude(*arguments)  # fast and not blocking: needs no thread
        with end_with_context() as sandboxes:
            try:
                return await asyncio.to_thread(conclude, *arguments, unjudged)
            except asyncio.CancelledError:
                sandboxes.end()  # the thread would wait for the sandboxes, and the process for the thread
                raise
    except MissingCapability:
        raise  # as above: a missing sandbox or judge's key is no fault of the answer
    except StillwebError as failure:
        before = known.unscored.get(key) if known else None
        result = failed_scoring(attempt.task, before or failure)
        attempt.trace.write("answer", text=text, end=end, error=error, **({"aside": aside} if aside else {}))
        attempt.trace.write("score", **result.to_json())
        return result


_TOOL = "browser_evaluate"


def final_page(
    tools: Any, loop: asyncio.AbstractEventLoop, calls: Sequence[tuple[str, Any]]
) -> Callable[[str], Any] | None:
    """Return a function that evaluates a JavaScript expression in the final page and returns its JSON value.

    That is the page after the client's `calls` (tool and arguments). A browser that ran scripts of the client's proves
    nothing: any expression can be made true. Then it is the page to which the other calls lead. Call that function in another thread than the loop's. It raises UsageError for an expression without a
    value. Return None if the session has no page.
    """
    from stillweb.harness.tools.toolset import ToolSession

    own = getattr(tools, "evaluate", None)
    if own is None and not any(spec.name == _TOOL for spec in tools.list()):
        return None

    async def by_tool(expression: str) -> Any:
        without = tools.without_own_content(calls) if isinstance(tools, ToolSession) else nullcontext(tools)
        async with without as session:
            result = await session.call(_TOOL, {"function": f"() => ({expression})"})
        text = "\n".join(part.get("text", "") for part in result.content if part.get("type") == "text")
        section = text.partition("### Result\n")[2].partition("\n### ")[0].strip()
        if result.is_error or not section:
            raise UsageError(f"the final page can't evaluate {expression!r}: {text[:300]}")
        try:
            return json.loads(section, parse_constant=no_number)
        except (ValueError, RecursionError):
            raise UsageError(f"{expression!r} gave no JSON value: {section[:300]}") from None

    evaluate = own or by_tool

    def page(expression: str) -> Any:
        return asyncio.run_coroutine_threadsafe(evaluate(expression), loop).result()

    return page
