"""Messages to the page, as JSON."""

from __future__ import annotations

import base64
from typing import Any

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import Segment
from specwhisper_client.updates import ResumePoint, Update


def ready(model: ModelInfo) -> dict[str, Any]:
    return {"type": "ready", "target": model.target, "draft": model.draft}


def update(news: Update, resume_point: ResumePoint | None) -> dict[str, Any]:
    """Return an update of the text; one of the speech leaves the text as it is."""
    if news.speech is not None:
        return {"type": "speech", "event": news.speech.value, "at_s": news.speech_at_s}
    report: dict[str, Any] = {
        "type": "update",
        "finals": [_final(segment) for segment in news.segments],
        "verified": news.verified_text,
        "stable": news.stable_text,
        "tentative": news.tentative_text,
        "is_unverified": news.is_unverified,
        "received_s": round(news.received_s, 3),
    }
    if resume_point is not None:
        report["resume_point"] = {
            "state": base64.b64encode(resume_point.state).decode(),
            "start_sample": resume_point.start_sample,
            "num_ends": resume_point.num_ends,
        }
    if news.statistics is None:
        return report
    return report | {"statistics": _statistics(news.statistics)}


def speaker(utterance: Segment) -> dict[str, Any]:
    return {"type": "speaker", "utterance": utterance.utterance, "speaker": utterance.speaker}


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


def _statistics(statistics: SpeculationStatistics) -> dict[str, Any]:
    num_answers = statistics.num_answers
    round_trip_ns = statistics.network_ns / num_answers if num_answers else statistics.min_round_trip_ns
    return {
        "drafted": statistics.num_drafted,
        "verified": statistics.num_verified,
        "accepted": statistics.num_accepted,
        "committed": statistics.num_committed,
        "passes": statistics.num_forwards,
        "steps": statistics.num_windows,
        "round_trip_ms": round(round_trip_ns / 1e6, 2),
    }
