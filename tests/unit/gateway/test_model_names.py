"""Names that are not served are logged, or refused."""

import logging

from specwhisper.errors import TargetUnavailable
from specwhisper.settings.model_names import ModelNames


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
