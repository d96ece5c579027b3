"""The flags of Riva's service, and what adds it to a draft server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.settings.model_names import ServedModelName, StrictModelNames, served_model_names
from specwhisper.settings.setting import SERVING, Made, Setting

if TYPE_CHECKING:
    from specwhisper.rpc.serving import AddServicer
    from specwhisper_draft_server.config import DraftConfig
    from specwhisper_draft_server.service import TranscriptionService

logger = logging.getLogger(__name__)

SERVICE_NAME = "nvidia.riva.asr.RivaSpeechRecognition"


class RivaSettings(NamedTuple):
    """How a draft server offers Riva's service.

    Attributes
    ----------
    is_wanted : ``None`` offers it if Riva's client is installed.
    model_names : names of the target; empty for the default ones.
    is_strict : whether requests for other names are refused.
    """

    is_wanted: bool | None = None
    model_names: tuple[str, ...] = ()
    is_strict: bool = False


def riva_settings(
    riva: Annotated[
        bool | None,
        Setting(SERVING, "NVIDIA Riva's service as well; default: if nvidia-riva-client is installed."),
    ] = None,
    served_model_name: ServedModelName = None,
    strict_model_names: StrictModelNames = False,
) -> RivaSettings:
    return RivaSettings(riva, served_model_names(served_model_name), strict_model_names)


SETTINGS = Made(riva_settings, words={"clients": "Riva's clients"}, after="max_sessions")


def riva_services(service: TranscriptionService, config: DraftConfig) -> Mapping[str, AddServicer]:
    """Return Riva's service on top of ours, by name; empty if it is not offered."""
    settings = config.extras.get("riva", RivaSettings())
    if settings.is_wanted is False:
        if config.speakers is not None:
            raise InvalidRequest("--speaker-models is for Riva's service: leave it or --no-riva out.")
        return {}
    try:
        from riva.client.proto.riva_asr_pb2_grpc import add_RivaSpeechRecognitionServicer_to_server

        from specwhisper_riva.service import RivaService
    # Its generated code checks the versions of grpc and protobuf, and raises errors of several kinds.
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        if settings.is_wanted or config.speakers is not None:
            reason = "needs nvidia-riva-client" if is_missing else f"cannot be offered here ({error})"
            flag = "--riva" if settings.is_wanted else "--speaker-models"
            raise UnsupportedOption(f"{flag} {reason}: pip install 'specwhisper[draft,riva]'.") from error
        level = logging.INFO if is_missing else logging.WARNING
        logger.log(level, "riva is not offered", extra={"error": str(error)})
        return {}
    servicer = RivaService(service, settings, config.speakers, config.max_audio_s)
    return {SERVICE_NAME: partial(add_RivaSpeechRecognitionServicer_to_server, servicer)}
