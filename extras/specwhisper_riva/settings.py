"""The flags of Riva's service, and what adds it to a draft server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.settings.model_names import served_model_names_option, strict_model_names_option
from specwhisper.settings.setting import SERVING, Part
from specwhisper.validated import called, switch

if TYPE_CHECKING:
    from specwhisper.rpc.serving import AddServicer
    from specwhisper_draft_server.config import DraftConfig
    from specwhisper_draft_server.service import TranscriptionService

logger = logging.getLogger(__name__)

SERVICE_NAME = "nvidia.riva.asr.RivaSpeechRecognition"


@dataclass(frozen=True, kw_only=True)
class RivaSettings:
    """How a draft server offers Riva's service; by default it does if Riva's client is installed."""

    riva: bool | None = switch(
        None, "NVIDIA Riva's service as well; default: if nvidia-riva-client is installed.", panel=SERVING
    )
    served_model_names: tuple[str, ...] = served_model_names_option("Riva's clients")
    strict_model_names: bool = strict_model_names_option()

    def __post_init__(self) -> None:
        for name in ("served_model_names", "strict_model_names"):
            if self.riva is False and getattr(self, name):
                raise InvalidRequest(f"{called(name)} is for Riva's service: leave it or --no-riva out.")


SETTINGS = Part(kind=RivaSettings)


def riva_services(service: TranscriptionService, config: DraftConfig) -> Mapping[str, AddServicer]:
    """Return Riva's service on top of our own, by name; empty if it is not offered."""
    settings = config.extras.get("riva", RivaSettings())
    if settings.riva is False:
        if config.speakers is not None:
            raise InvalidRequest("--speaker-models is for Riva's service: leave it or --no-riva out.")
        return {}
    try:
        from riva.client.proto.riva_asr_pb2_grpc import add_RivaSpeechRecognitionServicer_to_server

        from specwhisper_riva.service import RivaService
    # Its generated code checks the versions of grpc and protobuf, and raises errors of several kinds.
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        if settings.riva or config.speakers is not None:
            reason = "needs nvidia-riva-client" if is_missing else f"cannot be offered here ({error})"
            flag = "--riva" if settings.riva else "--speaker-models"
            raise UnsupportedOption(f"{flag} {reason}: pip install 'specwhisper[draft,riva]'.") from error
        level = logging.INFO if is_missing else logging.WARNING
        logger.log(level, "riva is not offered", extra={"error": str(error)})
        return {}
    servicer = RivaService(service, settings, config.speakers, config.max_audio_s)
    return {SERVICE_NAME: partial(add_RivaSpeechRecognitionServicer_to_server, servicer)}
