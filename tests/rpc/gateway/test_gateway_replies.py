"""OpenAI's own client receives every format, and the draft server every option."""

import threading

import pytest
from openai.types.audio import TranscriptionTextDeltaEvent, TranscriptionTextDoneEvent

from specwhisper.options import CompressionRatio, DecodingOptions, Padding, Task
from specwhisper.wire.codec.terms import decoding_options_from_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_gateway.audio import routes
from specwhisper_gateway.audio.replies import reply
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription, interim
from tests.rpc.gateways import DEPRECATED, MODEL, RECORDING, gateway_for, running_gateway

TEXT = "Hello there. Bye."
OPENAIS = {
    "temperatures": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "compression_ratio_threshold": 2.4,
    "compression_ratio_of": CompressionRatio.TEXT,
    "logprob_threshold": -1.0,
    "no_speech_threshold": 0.6,
    "padding": Padding.ZERO,
}


async def test_json_has_text_language_and_duration(gateway):
    reply = await gateway.transcribe()
    assert reply.text == TEXT
    assert [language.code for language in reply.languages] == ["en"]
    assert (reply.usage.type, reply.usage.seconds) == ("duration", 2.5)


@pytest.mark.parametrize(
    ("response_format", "text"),
    [
        ("text", f"{TEXT}\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n2\n00:00:01,500 --> 00:00:02,250\nBye.\n"),
        (
            "vtt",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n00:00:01.500 --> 00:00:02.250\nBye.\n",
        ),
    ],
)
@DEPRECATED
async def test_formats_of_text(gateway, response_format, text):
    replies = [
        await api.create(file=RECORDING, model=MODEL, response_format=response_format)
        for api in (gateway.api.audio.transcriptions, gateway.api.audio.translations)
    ]
    assert replies == [text] * 2


@DEPRECATED
async def test_a_translation_is_in_english():
    server = ScriptedTranscription()
    async with gateway_for(server) as gateway:
        translations = gateway.api.audio.translations
        plain = await translations.create(file=RECORDING, model=MODEL, prompt="At sea.")
        verbose = await translations.create(file=RECORDING, model=MODEL, response_format="verbose_json")
    assert plain.text == TEXT
    assert (verbose.language, verbose.duration, len(verbose.segments)) == ("english", 2.5, 2)
    asked = decoding_options_from_proto(server.config.config.decoding)
    assert asked == DecodingOptions.greedy(task=Task.TRANSLATE, **OPENAIS)


async def test_every_field_reaches_the_draft_server():
    server = ScriptedTranscription()
    async with gateway_for(server) as gateway:
        await gateway.transcribe(
            language="de", prompt="Ray Serve", temperature=0.4, keywords=["alpha", "beta"]
        )
        asked = decoding_options_from_proto(server.config.config.decoding)
        await gateway.transcribe(
            languages=["en", "de"], extra_body={"hotwords": "gamma", "hint": "De bijen", "padding": "silence"}
        )
    expected = OPENAIS | {"temperatures": (0.4,)}
    options = DecodingOptions.greedy(
        language="de", initial_prompt="Ray Serve", hotwords="alpha, beta", **expected
    )
    assert asked == options
    asked = decoding_options_from_proto(server.config.config.decoding)
    expected = OPENAIS | {"padding": Padding.SILENCE}
    assert asked == DecodingOptions.greedy(languages="en,de", hotwords="gamma", hint="De bijen", **expected)
    assert not server.config.interim_results


async def test_segments_of_several_languages():
    responses = [pb.StreamingRecognizeResponse.FromString(each.SerializeToString()) for each in RESPONSES]
    responses[1].results[0].language_code = "de"
    async with gateway_for(ScriptedTranscription(responses)) as gateway:
        create = gateway.api.audio.transcriptions.create
        asked = {"file": RECORDING, "model": MODEL, "extra_body": {"multilingual": True}}
        plain = await create(**asked)
        verbose = await create(**asked, response_format="verbose_json")
        without = await create(file=RECORDING, model=MODEL, response_format="verbose_json")
    assert [language.code for language in plain.languages] == ["de", "en"]
    assert [segment.language for segment in verbose.segments] == ["de", "en"]
    assert not hasattr(without.segments[0], "language")


def delta(text: str) -> TranscriptionTextDeltaEvent:
    return TranscriptionTextDeltaEvent(type="transcript.text.delta", delta=text)


DONE = TranscriptionTextDoneEvent.model_validate(
    {"type": "transcript.text.done", "text": TEXT, "languages": [{"code": "en"}]}
)


async def test_a_streams_deltas_are_the_text(gateway):
    for response_format in ("json", "text"):
        stream = await gateway.transcribe(stream=True, response_format=response_format)
        assert [event async for event in stream] == [delta("Hello there."), delta(" Bye."), DONE]


async def test_a_stream_takes_back_what_is_decoded_again():
    settled = [interim(" Hello then.", 0.95), interim(" By", 0.9), interim(" the", 0.5), interim(" way", 0.1)]
    again = [
        pb.StreamingRecognizeResponse(results=each) for each in (settled, settled, [interim(" Hello", 0.1)])
    ]
    server = ScriptedTranscription([RESPONSES[0], *again, *RESPONSES[1:]])
    async with gateway_for(server) as gateway:
        create = gateway.api.audio.transcriptions.create
        quiet = [event async for event in await create(file=RECORDING, model=MODEL, stream=True)]
        shown = [
            event.model_dump(exclude_none=True)
            async for event in await create(
                file=RECORDING, model=MODEL, stream=True, extra_body={"interim_results": "true"}
            )
        ]
    kinds = [event.type.removeprefix("transcript.text.") for event in quiet]
    assert kinds == ["delta", "retracted", "delta", "delta", "done"]
    text = ""
    for event in shown:
        match event["type"].removeprefix("transcript.text."):
            case "delta":
                text += event["delta"]
            case "retracted":
                assert text.endswith(event["text"])
                text = text.removesuffix(event["text"])
            case "done":
                assert text == event["text"] == TEXT
    said = [
        (e["verified"], e["stable"], e["tentative"]) for e in shown if e["type"] == "transcript.text.interim"
    ]
    assert said[1:3] == [(" By", " the", " way"), ("", "", " Hello")]


async def test_other_requests_run_while_a_transcript_is_written(gateway, monkeypatch):
    threads = []

    def noted(*arguments):
        threads.append(threading.get_ident())
        return reply(*arguments)

    monkeypatch.setattr(routes, "reply", noted)
    assert (await gateway.transcribe()).text == TEXT
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_health_names_the_models(gateway):
    reply = await gateway.http.get("/health")
    assert reply.status_code == 200
    assert reply.json() == {
        "status": "ok",
        "target_model": "large",
        "draft_model": "tiny",
        "mode": "full",
        "languages": ["de", "en"],
        "max_sessions": 16,
        "software_version": "1.2.3",
        "allows_latency_injection": False,
    }


async def test_live_is_200_without_a_draft_server():
    async with running_gateway("127.0.0.1:1") as gateway:
        reply = await gateway.http.get("/health/live")
        figures = await gateway.all_answered()
    assert (reply.status_code, reply.json()) == (200, {"status": "ok"})
    assert not [name for name in figures if "/health/live" in name]
    assert figures["active_requests"] == 1


async def test_metrics_count_requests_audio_and_tokens(gateway):
    await gateway.transcribe()
    async for _ in await gateway.transcribe(stream=True):
        pass
    await gateway.http.get("/nowhere")
    figures = await gateway.all_answered()
    route = 'route="/v1/audio/transcriptions"'
    assert figures[f'requests_total{{{route},status="200"}}'] == 2
    assert figures['requests_total{route="unknown",status="404"}'] == 1
    assert figures[f"request_seconds_count{{{route}}}"] == 2
    assert figures["audio_seconds_total"] == 5.0
    assert figures["active_requests"] == 1
    tokens = ("drafted", "verified", "accepted", "committed")
    assert [figures[f"{name}_tokens_total"] for name in tokens] == [20, 16, 12, 20]
    assert figures["session_forward_passes_total"] == 8


async def test_metrics_can_be_left_out():
    async with gateway_for(metrics=False) as gateway:
        assert (await gateway.http.get("/metrics")).status_code == 404


async def test_the_apis_page_loads_nothing_from_other_hosts(gateway):
    page = (await gateway.http.get("/docs")).text
    script = await gateway.http.get("/static-offline-docs/swagger-ui-bundle.js")
    schema = (await gateway.http.get("/openapi.json")).json()
    assert "http://" not in page and "https://" not in page
    assert script.status_code == 200
    form = schema["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"][
        "multipart/form-data"
    ]
    fields = form["schema"]["properties"]
    assert form["schema"]["required"] == ["file", "model"]
    assert {"language", "prompt", "stream", "timestamp_granularities[]", "include[]"} <= fields.keys()
    assert all(field["description"] for field in fields.values())
