"""``specwhisper listen``: a recording, a microphone, and what is printed."""

import io
import signal
from contextlib import nullcontext

import pytest
import soundfile
from rich.console import Console

from examples import live_captions
from experiments.common.models.speech import SPOKEN, samples_of, spoken_utterances, talk
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE
from specwhisper_client import TranscriptionClient, sources
from specwhisper_client.cli import listening
from specwhisper_client.cli.batch import transcribe_files
from specwhisper_client.cli.listening import ListenOptions
from specwhisper_client.cli.recordings import OutputFormat
from specwhisper_speakers.command_options import LiveSpeakerOptions
from tests.rpc.services import all_free, eventually
from tests.rpc.speaking import speaking_pair
from tests.rpc.terminals import end_of_cli, job, start_cli
from tests.screens import Screen

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


def lines_of(pcm: bytes) -> list[str]:
    return [SPOKEN.decode(text).strip() for text in spoken_utterances(pcm).values()]


@pytest.fixture
def talk_file(tmp_path):
    path = tmp_path / "talk.wav"
    soundfile.write(path, samples_of(talk()), SAMPLE_RATE, subtype="PCM_16")
    return path


@pytest.fixture
def at_once(monkeypatch):
    """Let a file that stands for the microphone be read as fast as it is taken."""
    read = sources.file
    monkeypatch.setattr(sources, "file", lambda path, **options: read(path, **options | {"is_paced": False}))


def wanted(server: str, **more) -> ListenOptions:
    return ListenOptions(server=server, **more)


def console(*, is_terminal: bool = False) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=is_terminal, width=120), file


def shown(printed: str) -> list[str]:
    """Return the lines that a terminal shows in the end."""
    screen = Screen(120)
    screen.write(printed)
    return screen.shown


@pytest.mark.parametrize(("is_terminal", "speaker"), [(False, ""), (True, ""), (True, "A: ")])
async def test_listen_prints_an_utterance_as_soon_as_it_is_complete(
    talk_file, at_once, speaker_models, is_terminal, speaker
):
    speakers = LiveSpeakerOptions(diarize=speaker_models if speaker else None)
    (out, printed), (errors, reported) = console(is_terminal=is_terminal), console()
    async with speaking_pair() as (target, draft):
        options = wanted(draft.address, simulate=talk_file, speakers=speakers)
        await listening.listen(options, out, errors)
        await all_free(target, draft)
    lines = [f"{speaker}{line}" for line in lines_of(talk())]
    if is_terminal:
        assert [line.split("] ")[1] for line in shown(printed.getvalue())] == lines
        assert all("→" in line for line in shown(printed.getvalue()))
        assert ("\x1b[1;36mA: \x1b[0m\x1b[36m" in printed.getvalue()) == bool(speaker)
    else:
        assert printed.getvalue().splitlines() == lines
    assert "real-time factor" in reported.getvalue()


async def test_a_speaker_reads_what_the_bundled_target_knows(monkeypatch, talk_file):
    (out, printed), (errors, reported) = console(), console()
    monkeypatch.setattr(
        sources, "microphone", lambda device: nullcontext(sources.file(talk_file, is_paced=False))
    )
    async with speaking_pair() as (_, draft):
        await listening.listen(wanted(draft.address), out, errors)
        assert "knows 990 words" not in reported.getvalue()
        async with TranscriptionClient(draft.address) as client:
            target = (await client.get_model()).model.target
        monkeypatch.setattr(listening, "DEMO_TARGET", target)
        await listening.listen(wanted(draft.address), out, errors)
    assert "knows 990 words" in reported.getvalue()
    assert printed.getvalue().splitlines() == lines_of(talk()) * 2


async def test_the_example_shows_captions(talk_file, monkeypatch, capsys):
    monkeypatch.setattr(live_captions, "file", lambda path, *, is_paced: sources.file(path, is_paced=False))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    async with speaking_pair() as (target, draft):
        await live_captions.main(str(talk_file), draft.address, "en")
        await all_free(target, draft)
    assert shown(capsys.readouterr().out) == lines_of(talk())


async def test_a_recording_as_live_has_the_text_of_listen_with_its_options(talk_file, at_once):
    (listened, printed), (transcribed, written), (titled, subtitles) = console(), console(), console()
    (errors, reported), options = console(), EndpointingOptions(silence_duration_ms=3_000)
    async with speaking_pair() as (target, draft):
        live = wanted(draft.address, simulate=talk_file, endpointing=options, quiet=True)
        await listening.listen(live, listened, errors)
        alike = job(draft.address, as_live=True, endpointing=options, quiet=True)
        assert await transcribe_files([talk_file], alike, transcribed, errors)
        srt = job(draft.address, formats=[OutputFormat.SRT], as_live=True, quiet=True)
        assert await transcribe_files([talk_file], srt, titled, errors)
        await all_free(target, draft)
    assert printed.getvalue() == written.getvalue()
    assert len(printed.getvalue().splitlines()) < len(lines_of(talk()))
    assert reported.getvalue() == ""
    cues = [cue.splitlines() for cue in subtitles.getvalue().strip().split("\n\n")]
    assert [" ".join(lines) for _, _, *lines in cues] == lines_of(talk())
    assert [number for number, *_ in cues] == ["1", "2", "3"]
    assert all(" --> " in times for _, times, *_ in cues)


async def test_ctrl_c_ends_the_audio_and_prints_the_last_words(tmp_path):
    pcm = talk(((0.1, 0.7), (1.7, 60.0)), 61.0)
    path = tmp_path / "talk.wav"
    soundfile.write(path, samples_of(pcm), SAMPLE_RATE, subtype="PCM_16")
    async with speaking_pair() as (target, draft):
        process = await start_cli("listen", "--server", draft.address, "--simulate", path, "--quiet")
        first = await process.stdout.readline()
        assert first.decode().strip() == lines_of(pcm)[0]
        (session,) = target.service._verifier._sessions.values()
        await eventually(lambda: session.recording.received_samples > 2.4 * SAMPLE_RATE)
        process.send_signal(signal.SIGINT)
        status, out, err = await end_of_cli(process)
        assert (status, err) == (0, "")
        (last,) = out.splitlines()
        assert len(last) > 3 and lines_of(pcm)[1].startswith(last[:-2].strip())
        await all_free(target, draft)
