"""A browser-use agent that answers a question about a site. It knows nothing of Stillweb.

usage: echo '{"question": "…", "start_url": "https://…"}' | python agent.py

It wants OPENAI_API_KEY, and takes OPENAI_BASE_URL and MODEL (gpt-5-mini).
"""

import asyncio
import json
import logging
import os
import shutil
import sys
from urllib.parse import urlsplit

os.environ.setdefault("ANONYMIZED_TELEMETRY", "false")
os.environ.setdefault("BROWSER_USE_SETUP_LOGGING", "false")
os.environ.setdefault("BROWSER_USE_VERSION_CHECK", "false")
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)  # standard output is for the answer

from browser_use import Agent, BrowserProfile, ChatOpenAI  # noqa: E402 -- it reads those variables
from browser_use.browser.profile import ProxySettings  # noqa: E402

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def profile() -> BrowserProfile:
    """Return a browser that is sent through the proxy of the environment, and starts alike each time."""
    at = urlsplit(os.environ["HTTPS_PROXY"])
    return BrowserProfile(
        executable_path=os.environ.get("BROWSER") or next(filter(None, map(shutil.which, CHROMIUMS)), None),
        proxy=ProxySettings(
            server=f"http://{at.hostname}:{at.port}",
            bypass="<-loopback>",
            username=at.username,
            password=at.password,
        ),
        # without a first window, which begins with a page of the web in Debian: the agent opens one itself
        args=["--ignore-certificate-errors", "--no-startup-window"],
        headless=True,
        enable_default_extensions=False,  # they are downloaded
        viewport={"width": 1280, "height": 800},
    )


async def answer(question: str, start_url: str) -> str:
    """Return the agent's final result."""
    agent = Agent(
        task=question,
        llm=ChatOpenAI(
            model=os.environ.get("MODEL", "gpt-5-mini"), base_url=os.environ.get("OPENAI_BASE_URL")
        ),
        browser_profile=profile(),
        # opened before the first step, so that no prompt depends on how far the start has got
        initial_actions=[{"navigate": {"url": start_url, "new_tab": False}}],
        directly_open_url=False,
        use_vision=False,  # a screenshot is of other bytes on another machine
        use_judge=False,
    )
    history = await agent.run(max_steps=12)
    return history.final_result() or ""


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(asyncio.run(answer(asked["question"], asked["start_url"])))
