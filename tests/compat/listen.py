"""A live client, run with either version's code: ``python listen.py HOST:PORT``.

It sends half of the speech, prints "half", waits for a line on standard input, sends the rest, and prints
the final words of each utterance as JSON.
"""

import asyncio
import json
import sys

try:
    from experiments.common.models.scripted import END
    from experiments.common.models.speech import talk
    from specwhisper_client.streaming import StreamingClient
except ModuleNotFoundError:  # the previous release's names
    from client.streaming import StreamingClient
    from experiments.common.scripted import END
    from experiments.common.speaking import talk


async def main(server: str) -> None:
    pcm = talk()
    words: dict[int, list[int]] = {}
    half = len(pcm) // 4 * 2
    async with StreamingClient(server) as stream:
        await stream.send(pcm[:half])
        sending = asyncio.create_task(send_rest(stream, pcm[half:]))
        async for update in stream:
            for segment in update.segments:
                words.setdefault(segment.utterance, []).extend(t for t in segment.tokens if t < END)
        await sending
    print(json.dumps(words))


async def send_rest(stream: StreamingClient, pcm: bytes) -> None:
    print("half", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await stream.send(pcm)
    await stream.finish()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
