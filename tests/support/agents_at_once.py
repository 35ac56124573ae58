"""Agents that ask a model several things at once, in the ways in which agents do."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.agents.openai import OpenAIAgent

TOLD = ["document 0", "fail", "document 1", "document 2"]
DOCUMENTS = [f"document {n}" for n in range(7)]
LAPS = [f"lap {n}" for n in range(7)]
PAGE = "https://shelf.example/list?year=2012&page={}"


class _Asks:
    """Base of these agents: a model, and a question to it."""

    name = "at-once"

    def identity(self) -> dict[str, Any]:
        return {"kind": type(self).__name__}

    def model_options(self, env: Mapping[str, str]) -> dict[str, Any]:
        from stillweb.harness.models.transport import Retry

        return {
            "base_url": env["OPENAI_BASE_URL"],
            "key_variable": "",
            "retry": Retry(2, 0.01, 0.02),
            "timeout": 30.0,
        }


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


async def said(attempt: Attempt, text: str) -> str:
    return str((await attempt.ask(request(text))).text)


class Gathers(_Asks):
    """A plan, the documents at once, what was said of them together."""

    async def run(self, attempt: Attempt) -> str | None:
        plan = await said(attempt, "plan")
        parts = await asyncio.gather(*(said(attempt, f"{plan} {text}") for text in DOCUMENTS))
        return await said(attempt, "all: " + " ".join(parts))


class Streams(_Asks):
    """The same documents at once, streamed, no more than two at a time, in a group."""

    async def run(self, attempt: Attempt) -> str | None:
        two = asyncio.Semaphore(2)

        async def one(text: str) -> str:
            async with two:
                return str((await attempt.ask(request(text, stream=True))).text)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(text)) for text in DOCUMENTS]
        return " ".join(task.result() for task in tasks)


class Queues(_Asks):
    """Workers that take the next document when they are done with one."""

    async def run(self, attempt: Attempt) -> str | None:
        waiting: asyncio.Queue[str] = asyncio.Queue()
        for text in DOCUMENTS:
            waiting.put_nowait(text)
        found = {}

        async def worker() -> None:
            while not waiting.empty():
                text = waiting.get_nowait()
                found[text] = await said(attempt, text)

        await asyncio.gather(worker(), worker(), worker())
        return await said(attempt, "all: " + " ".join(found[text] for text in DOCUMENTS))


class Threads(_Asks):
    """A pool of threads in a thread: whole code without await."""

    async def run(self, attempt: Attempt) -> str | None:
        loop = asyncio.get_running_loop()

        def ask(text: str) -> str:
            return str(asyncio.run_coroutine_threadsafe(attempt.ask(request(text)), loop).result().text)

        def work() -> str:
            plan = ask("plan")
            with ThreadPoolExecutor(3) as pool:
                parts = list(pool.map(ask, (f"{plan} {text}" for text in DOCUMENTS)))
            return ask("all: " + " ".join(parts))

        return await asyncio.to_thread(work)


class SubAgents(_Asks):
    """Agents of its own at work beside each other, of different length, each with tools; one asks two at once itself."""

    async def run(self, attempt: Attempt) -> str | None:
        async def agent(name: str, steps: int) -> str:
            talk: list[dict[str, Any]] = [{"role": "user", "content": f"I am {name}"}]
            for step in range(steps):
                reply = await attempt.ask({"model": "m", "messages": talk})
                page = await attempt.call("fetch", {"url": PAGE.format(1 + (step + len(name)) % 2)})
                talk += [*reply.items, {"role": "user", "content": page.content[0]["text"]}]
            return str((await attempt.ask({"model": "m", "messages": talk})).text)

        async def pair() -> str:
            return " ".join(await asyncio.gather(agent("third", 1), agent("fourth", 2)))

        parts = await asyncio.gather(agent("first", 1), agent("second", 4), pair())
        return await asyncio.wait_for(said(attempt, "all: " + " ".join(parts)), 30)


class Same(_Asks):
    """The same question five times at once: each gets an answer of its own."""

    async def run(self, attempt: Attempt) -> str | None:
        parts = await asyncio.gather(*(said(attempt, "what?") for _ in range(5)))
        return " ".join(sorted(parts))


class Tools(_Asks):
    """The tools that one turn of a model wants, at once."""

    async def run(self, attempt: Attempt) -> str | None:
        reply = await attempt.ask(request("tools"))
        used = (
            attempt.call(wanted.name, {"url": PAGE.format(1 + n % 2)}, call_id=wanted.id)
            for n, wanted in enumerate(reply.tool_calls)
        )
        pages = await asyncio.gather(*used)
        return await said(attempt, "all: " + " ".join(page.content[0]["text"] for page in pages))


class Races(_Asks):
    """Goes on with what came first, and gives up the rest."""

    async def run(self, attempt: Attempt) -> str | None:
        tasks = [asyncio.ensure_future(said(attempt, text)) for text in LAPS]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        first = next(task for task in tasks if task in done).result()
        return await said(attempt, f"first: {first}")


class Hasty(_Asks):
    """Waits for answers as long as a variable says, and does without those that did not come."""

    async def run(self, attempt: Attempt) -> str | None:
        patience = float(os.environ.get("STILLWEB_TEST_PATIENCE", "60"))

        async def hasty(text: str) -> str:
            try:
                return await asyncio.wait_for(said(attempt, text), patience)
            except TimeoutError:
                return "nothing"

        return " ".join(await asyncio.gather(*map(hasty, DOCUMENTS[:3])))


class Tolerant(_Asks):
    """Tells what went wrong with those that failed."""

    async def run(self, attempt: Attempt) -> str | None:
        parts = await asyncio.gather(*(said(attempt, text) for text in TOLD), return_exceptions=True)
        return await said(attempt, " ".join(map(str, parts)))


class Broken(_Asks):
    """Several calls at once, of which one that fails ends all."""

    async def run(self, attempt: Attempt) -> str | None:
        return " ".join(await asyncio.gather(*(said(attempt, text) for text in TOLD)))


class Clocked(_Asks):
    """Agent whose questions depend on the clock, which no tape can hold."""

    async def run(self, attempt: Attempt) -> str | None:
        return " ".join(
            await asyncio.gather(said(attempt, "a"), said(attempt, f"it is {time.perf_counter_ns()}"))
        )


class Packaged(_Asks):
    """Two of the packaged agents beside each other; their model wants several tools in a turn."""

    async def run(self, attempt: Attempt) -> str | None:
        agents = (OpenAIAgent("m", system=f"You are {name}.") for name in ("one", "two"))
        return " ".join(map(str, await asyncio.gather(*(agent.run(attempt) for agent in agents))))


def turns() -> list[int]:
    """The order in which the lanes of the agents below come to call: what a clock would decide."""
    return [int(n) for n in os.environ["STILLWEB_TEST_TURNS"]]


class TasksInTurn(_Asks):
    """Tasks that are alive at once and never call at once."""

    async def run(self, attempt: Attempt) -> str | None:
        order = turns()
        due = [asyncio.Event() for _ in order]

        async def one(number: int) -> str:
            place = order.index(number)
            if place:
                await due[place - 1].wait()
            page = await attempt.call("fetch", {"url": PAGE.format(number)})
            due[place].set()
            return str(page.content[0]["text"])

        return "; ".join(await asyncio.gather(*map(one, sorted(order))))


class ThreadsInTurn(_Asks):
    """The same of threads, each of which has ended before the next one calls."""

    async def run(self, attempt: Attempt) -> str | None:
        order, loop = turns(), asyncio.get_running_loop()
        told: dict[int, str] = {}

        def one(number: int) -> None:
            if place := order.index(number):
                threads[order[place - 1]].join()
            asked = attempt.call("fetch", {"url": PAGE.format(number)})
            told[number] = asyncio.run_coroutine_threadsafe(asked, loop).result().content[0]["text"]

        threads = {number: threading.Thread(target=one, args=(number,)) for number in order}
        for thread in threads.values():
            thread.start()
        await asyncio.to_thread(threads[order[-1]].join)
        return "; ".join(told[number] for number in sorted(order))


class Every(_Asks):
    """The agent that the task names."""

    async def run(self, attempt: Attempt) -> str | None:
        agent = globals()[attempt.task.id]()
        answer: str | None = await agent.run(attempt)
        return answer


class Numbered(_Asks):
    """The same question five times at once; which of them got which answer is told."""

    async def run(self, attempt: Attempt) -> str | None:
        return "; ".join(await asyncio.gather(*(said(attempt, "what?") for _ in range(5))))


class Slow(_Asks):
    """Two lanes of which one is as slow as a variable says: it asks when the other has had so many answers."""

    async def run(self, attempt: Attempt) -> str | None:
        answers = int(os.environ.get("STILLWEB_TEST_ANSWERS", "0"))

        async def talks() -> list[str]:
            return [await said(attempt, f"part {n}") for n in range(3)]

        async def slow() -> str:
            first = await said(attempt, "first")
            while attempt.usage.steps < answers:
                await asyncio.sleep(0.01)
            return await said(attempt, f"then {first}")

        return str(await asyncio.gather(slow(), talks()))
