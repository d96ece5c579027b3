"""What the page is told, as plain JSON: times in seconds of the stream, totals since its start."""

from __future__ import annotations

from typing import Any

from specwhisper.live import LivePosition
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Segment
from specwhisper_client.transcript import ModelInfo, Update
from specwhisper_gateway.status import body_of


def ready(model: ModelInfo) -> dict[str, Any]:
    """Name the pair, and how it works together now."""
    return {
        "type": "ready",
        "target": model.target,
        "draft": model.draft,
        "mode": model.mode.value,
        "gamma": model.gamma,
    }


def update(news: Update, position: LivePosition) -> dict[str, Any]:
    """Tell what is new: of speech, or of the text."""
    if news.speech is not None:
        return {"type": "speech", "event": news.speech.value, "at_s": news.speech_at_s}
    told: dict[str, Any] = {
        "type": "update",
        "finals": [_final(segment) for segment in news.segments],
        "verified": news.verified_text,
        "draft": news.draft_text,
        "is_unverified": news.is_unverified,
        "received_s": round(news.received_s, 3),
        "position": {
            "start_sample": position.start_sample,
            "num_utterances": position.num_utterances,
            "final_tokens": position.final_tokens,
        },
    }
    return told if news.statistics is None else told | {"statistics": _figures(news.statistics)}


def failure(error: BaseException) -> dict[str, Any]:
    """Tell what is wrong."""
    told = body_of(error)["error"]
    return {"type": "error", "kind": told["type"], "code": told["code"], "message": told["message"]}


def _final(segment: Segment) -> dict[str, Any]:
    return {
        "text": segment.text,
        "start_s": segment.start_s,
        "end_s": segment.end_s,
        "utterance": segment.utterance,
        "is_utterance_end": segment.is_utterance_end,
        "words": [
            {"text": word.text, "start_s": round(word.start_s, 2), "end_s": round(word.end_s, 2)}
            for word in segment.words
        ],
    }


def _figures(statistics: SpeculationStatistics) -> dict[str, Any]:
    estimates, choice = statistics.estimates, statistics.choice
    round_trip_ns = estimates.round_trip_ns if estimates else statistics.min_round_trip_ns
    return {
        "drafted": statistics.num_drafted,
        "verified": statistics.num_verified,
        "accepted": statistics.num_accepted,
        "committed": statistics.num_committed,
        "passes": statistics.num_forwards,
        "steps": statistics.num_windows,
        "round_trip_ms": round(round_trip_ns / 1e6, 2),
        "gamma": choice.gamma if choice else 0,
        "max_ahead": choice.max_ahead if choice else 0,
    }
