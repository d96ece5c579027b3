import asyncio

from specwhisper_client import TranscriptionClient


async def main():
    async with TranscriptionClient("127.0.0.1:50051") as client:
        result = await client.transcribe_file("talk.mp3", language="en", word_timestamps=True)
        print(result["text"], result["segments"][0]["words"][0]["start"])


asyncio.run(main())
