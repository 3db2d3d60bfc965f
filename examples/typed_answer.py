"""Answers as Python values: the model is told the type, shown what is wrong, and asked again; a stream grows.

Run: python examples/typed_answer.py
"""

import json
from collections.abc import AsyncGenerator

import anyio
from pydantic import BaseModel, Field

from advisorchain import ChatRequest
from advisorchain.client import ChatClient
from advisorchain.memory import ChatMemory


class City(BaseModel):
    name: str
    people: int = Field(ge=0, description="how many live there")


async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
    """Gets it wrong at first, as small models do. In its place: any model of `advisorchain.models`."""
    corrected = "does not fit" in request.messages[-1].text
    cities = [{"name": "Lisbon", "people": 546_000}, {"name": "Porto", "people": 232_000 if corrected else "many"}]
    for piece in json.dumps({"value": cities}).split(" "):
        yield f"{piece} "


async def main() -> None:
    memory = ChatMemory()
    client = ChatClient(model, memory=memory)
    response = await client.call("Two cities?", output_type=list[City], conversation_id="demo")
    for city in response.output:
        print(f"{city.name}: {city.people:,}")
    print("stored:", [message.role for message in await memory.get("demo")])  # nothing of the correction

    async with client.stream("Once more?", output_type=list[City], conversation_id="demo") as stream:
        async for cities in stream.partials():  # plain data, as far as it has come
            print("...", cities)
        print(sum(city.people for city in stream.output), "people")


if __name__ == "__main__":
    anyio.run(main)
