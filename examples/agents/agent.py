"""An agent in Python: the OpenAI client for the model, requests for its tools. It knows nothing of Stillweb.

usage: python agent.py QUESTION      wants OPENAI_API_KEY, OPENAI_BASE_URL and SERPER_API_KEY
"""

import json
import os
import sys

import requests
from openai import OpenAI


def search(q: str) -> str:
    """The pages that Google finds, by Serper."""
    key = {"X-API-KEY": os.environ["SERPER_API_KEY"]}
    answer = requests.post("https://google.serper.dev/search", json={"q": q}, headers=key, timeout=30)
    answer.raise_for_status()
    return "\n".join(f"{hit['title']} {hit['link']}" for hit in answer.json()["organic"])


def read(url: str) -> str:
    """A page as it came."""
    page = requests.get(url, timeout=30)
    return page.text if page.ok else f"error {page.status_code}"


def tool(name: str, argument: str) -> dict:
    """A tool of one argument, as the model is told of it."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = {"search": search, "read": read}


def answer(question: str) -> str:
    """What the model says in the end."""
    said = [{"role": "user", "content": question}]
    while True:
        asked = {"model": "small", "messages": said, "tools": [tool("search", "q"), tool("read", "url")]}
        message = OpenAI().chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return message.content
        said.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    print(answer(sys.argv[1]))
