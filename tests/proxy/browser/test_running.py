import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser.running import run


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Set the signal handlers of a plain program, whatever the runner of the tests has set."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
    }
    now = {number: signal.getsignal(number) for number in before}
    try:
        yield
        assert {number: signal.getsignal(number) for number in before} == now
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_it_returns_and_raises() -> None:
    async def fine() -> int:
        await asyncio.sleep(0)
        return 3

    async def wrong() -> None:
        raise LookupError("x")

    assert run(fine()) == 3
    with pytest.raises(LookupError):
        run(wrong())


def test_ctrl_c_reaches_it_where_another_loop_runs() -> None:
    done: list[str] = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)  # to the main thread, as a terminal's
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("browser")

    async def notebook() -> None:
        run(main())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    assert done == ["browser"]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_each_ctrl_c_hastens_and_none_cuts_off(times: int) -> None:
    done: list[str] = []

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append("other was cancelled")
            raise

    async def main() -> None:
        helper = asyncio.ensure_future(other())  # as Playwright's reader is: what closes needs it
        await asyncio.sleep(0)
        steps = ["pages", "browser", "driver"]
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for count, step in enumerate(steps, start=2):
                try:
                    if count <= times:
                        signal.raise_signal(signal.SIGINT)
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    step += ", hastened"
                assert not helper.done()
                done.append(step)

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert [step.partition(",")[0] for step in done] == ["pages", "browser", "driver", "other was cancelled"]
    assert len([step for step in done if step.endswith("hastened")]) == times - 1


def test_sigterm_does_what_the_program_wants_after_cleaning_up() -> None:
    done: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    with pytest.raises(SystemExit) as end:
        run(main())
    assert (end.value.code, done) == (143, ["closed"])


def test_a_signal_in_the_last_step_is_not_lost() -> None:
    async def main() -> int:
        signal.raise_signal(signal.SIGINT)
        return 1

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_many_end_it_wherever_it_is() -> None:
    async def main() -> None:
        while True:
            try:
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue  # deaf

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_in_another_thread_signals_are_left_alone() -> None:
    found: list[Any] = []

    async def main() -> None:
        found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
