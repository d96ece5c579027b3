"""Fields of forms have limits of their own."""

from __future__ import annotations

import pytest
import starlette
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException

from specwhisper_gateway.audio import starlette_forms_compat
from specwhisper_gateway.audio.starlette_forms_compat import LARGE, MAX_FIELD_BYTES, LimitedForm

HEADERS = Headers({"content-type": "multipart/form-data; boundary=cut"})


def test_starlette_has_the_tested_release():
    """Run the tests of the gateway with a new release, then name it in the module."""
    assert starlette.__version__.rpartition(".")[0] == starlette_forms_compat.STARLETTE


async def read(*fields: tuple[str, int]) -> list[tuple[str, int]]:
    """Read a form of fields with these numbers of bytes; return what was read."""

    async def stream():
        for name, num_bytes in fields:
            yield f'--cut\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
            yield b"a" * num_bytes + b"\r\n"
        yield b"--cut--\r\n"

    form = await LimitedForm(HEADERS, stream(), max_fields=200).parse()
    return [(name, len(value)) for name, value in form.multi_items()]


@pytest.mark.parametrize("name", ["prompt", *LARGE, "known_speaker_references[]"])
async def test_a_field_may_be_as_large_as_its_name_says(name):
    _, max_bytes = LARGE.get(name.removesuffix("[]"), (1, MAX_FIELD_BYTES))
    assert await read((name, max_bytes)) == [(name, max_bytes)]
    with pytest.raises(MultiPartException, match="exceeded maximum size"):
        await read((name, max_bytes + 1))


@pytest.mark.parametrize("name", list(LARGE))
async def test_only_a_few_fields_may_be_large(name):
    most, _ = LARGE[name]
    size = MAX_FIELD_BYTES + 1
    assert len(await read(*[(name, size)] * most, ("prompt", 5))) == most + 1
    with pytest.raises(MultiPartException, match="exceeded maximum size"):
        await read(*[(name, size)] * most, (name, size))
    with pytest.raises(MultiPartException, match="exceeded maximum size"):
        await read((name, size), ("prompt", size))
