"""NVIDIA Riva's speech recognition service, next to ours.

Programs written for Riva work unchanged. The messages are those of Riva's published client,
``nvidia-riva-client``, which is imported only by a server that offers the service.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.rpc.serving import AddServicer

if TYPE_CHECKING:
    from specwhisper_draft_server.config import DraftConfig
    from specwhisper_draft_server.service import TranscriptionService

logger = logging.getLogger(__name__)

SERVICE_NAME = "nvidia.riva.asr.RivaSpeechRecognition"


def riva_services(service: TranscriptionService, config: DraftConfig) -> Mapping[str, AddServicer]:
    """Return Riva's service on top of ours, by name; empty if it is not offered.

    Parameters
    ----------
    config : ``riva`` may be ``None``: the service is offered if Riva's client is installed.
    """
    if config.riva is False:
        if config.speakers is not None:
            raise InvalidRequest("--speaker-models is for Riva's service: leave it or --no-riva out.")
        return {}
    try:
        from riva.client.proto.riva_asr_pb2_grpc import add_RivaSpeechRecognitionServicer_to_server

        from specwhisper_draft_server.riva.service import RivaService
    # Its generated code checks the versions of grpc and protobuf, and raises errors of several kinds.
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        if config.riva or config.speakers is not None:
            reason = "needs nvidia-riva-client" if is_missing else f"cannot be offered here ({error})"
            flag = "--riva" if config.riva else "--speaker-models"
            raise UnsupportedOption(f"{flag} {reason}: pip install 'specwhisper[draft,riva]'.") from error
        level = logging.INFO if is_missing else logging.WARNING
        logger.log(level, "riva is not offered", extra={"error": str(error)})
        return {}
    servicer = RivaService(
        service,
        config.served_model_names,
        is_strict=config.strict_model_names,
        speakers=config.speakers,
        max_audio_s=config.max_audio_s,
    )
    return {SERVICE_NAME: partial(add_RivaSpeechRecognitionServicer_to_server, servicer)}
