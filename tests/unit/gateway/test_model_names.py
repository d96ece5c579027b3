"""Names that are not served are logged, or refused."""

import logging

import pytest

from specwhisper.errors import ModelNotFound, TargetUnavailable
from specwhisper.settings.model_names import MAX_LOGGED, ModelNames


class TargetName:
    """Returns the target's name; ``None`` if it does not answer. Counts."""

    def __init__(self, name: str | None = "large-v3") -> None:
        self.name, self.num_asked = name, 0

    async def __call__(self) -> str:
        self.num_asked += 1
        if self.name is None:
            raise TargetUnavailable("No server answers.")
        return self.name


async def test_the_target_is_asked_about_an_unknown_name_once(caplog):
    target = TargetName()
    names = ModelNames((), is_strict=False, target=target)
    for _ in range(3):
        await names.tolerate("parakeet")
    assert target.num_asked == 1
    assert [(record.model, record.used) for record in caplog.records] == [("parakeet", "large-v3")]


async def test_a_target_that_does_not_answer_refuses_no_name(caplog):
    caplog.set_level(logging.WARNING)
    target = TargetName(None)
    names = ModelNames((), is_strict=False, target=target)
    await names.tolerate("parakeet")
    assert not caplog.records
    target.name = "large-v3"
    await names.tolerate("parakeet")
    assert len(caplog.records) == 1


async def test_unknown_names_are_the_first_one_and_are_logged_once(caplog):
    names = ModelNames(("large-v3", "org/large", "large-v3"), is_strict=False, target=TargetName())
    assert await names.served() == ("large-v3", "org/large")
    for name, found in (("org/large", "org/large"), ("", "large-v3"), ("gpt-4o-transcribe", "large-v3")) * 2:
        assert await names.resolve(name) == found
    assert [record.model for record in caplog.records] == ["gpt-4o-transcribe"]
    with pytest.raises(ModelNotFound, match="request 'large-v3' or 'org/large'"):
        await names.check("gpt-4o-transcribe")


async def test_strict_names_are_the_targets_and_whisper_1_by_default(caplog):
    names = ModelNames((), is_strict=True, target=TargetName())
    for name in ("large-v3", "whisper-1"):
        assert await names.resolve(name) == name
    assert await names.resolve("") == "large-v3"
    with pytest.raises(ModelNotFound, match="request 'large-v3' or 'whisper-1'"):
        await names.resolve("large")
    assert not caplog.records


async def test_names_without_end_are_not_all_logged(caplog):
    names = ModelNames((), is_strict=False, target=TargetName())
    for number in range(3 * MAX_LOGGED):
        assert await names.resolve(f"{number:>1000}") == "large-v3"
        assert await names.resolve(f"model-{number}\n") == "large-v3"
    logged = [record.model for record in caplog.records]
    assert len(logged) == MAX_LOGGED
    assert max(map(len, logged)) <= 100
