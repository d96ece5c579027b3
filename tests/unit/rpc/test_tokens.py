"""Tokens of a file or the environment name callers; a lease lets one caller open a session at one target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest, LeaseRefused, Unauthenticated
from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.tokens import Leases, read_token, read_tokens
from tests.clock import Clock

TOKEN = "0123456789abcdef-Right"
FORMER = "a-token-of-a-former-user"


def test_tokens_of_a_file(tmp_path, monkeypatch):
    file = tmp_path / "tokens"
    file.write_text(f"# of the caption team\nanna {TOKEN}\n\nben 0123456789abcdef0\n")
    tokens = read_tokens(file)
    assert tokens.name_of(f"bearer {TOKEN}") == "anna"
    assert TOKEN not in repr(vars(tokens))
    single = tmp_path / "token"
    single.write_text(f"{TOKEN}\n")
    assert read_token(single, "NO_SUCH_VARIABLE") == TOKEN
    assert read_token(None, "NO_SUCH_VARIABLE") is None
    monkeypatch.setenv("A_TOKEN", TOKEN)
    assert read_token(None, "A_TOKEN") == TOKEN
    assert TOKEN not in repr(Credentials(token=TOKEN))
    single.write_text(f"{FORMER}\n{TOKEN}\n")  # as a user who adds a line may expect
    with pytest.raises(InvalidRequest, match="has several lines"):
        read_token(single, "NO_SUCH_VARIABLE")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no token"),
        ("# comment\n", "holds no token"),
        (f"{TOKEN}\n", "line 1: write NAME TOKEN"),
        ("anna short\n", "line 1: a token has 16"),
        (f"# x\nan na {TOKEN}\n", "line 2: write NAME"),
        (f"än {TOKEN}\n", "not ASCII"),
    ],
)
def test_an_invalid_file_is_refused_at_start_and_later_ignored_unless_empty(
    tmp_path, text, complaint, caplog
):
    caplog.set_level("WARNING")  # earlier tests may have set another level
    running = tmp_path / "of a server that runs"
    running.write_text(f"ben {FORMER}\n")
    tokens = read_tokens(running)
    if complaint == "holds no token":
        running.write_text(text)
        for _ in range(2):  # the last token is revoked; a missing file does not restore it
            with pytest.raises(Unauthenticated):
                tokens.name_of(f"bearer {FORMER}")
            running.unlink(missing_ok=True)
        assert caplog.messages == ["tokens kept"]
    else:
        running.write_text(text)
        assert tokens.name_of(f"bearer {FORMER}") == "ben"
        running.unlink()
        assert tokens.name_of(f"bearer {FORMER}") == "ben"
        assert caplog.messages == ["tokens kept"] * 2
    running.write_text(f"anna {TOKEN}\n")
    assert tokens.name_of(f"bearer {TOKEN}") == "anna"
    with pytest.raises(Unauthenticated):
        tokens.name_of(f"bearer {FORMER}")
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=complaint):
        read_tokens(file)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_tokens(tmp_path / "nothing")


def test_tokens_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("SPECWHISPER_TOKENS", raising=False)
    assert read_tokens(None) is None
    monkeypatch.setenv("SPECWHISPER_TOKENS", f"anna {TOKEN}\nben 0123456789abcdef0")
    tokens = read_tokens(None)
    assert (tokens.name_of(f"Bearer {TOKEN}"), tokens.name_of("Bearer 0123456789abcdef0")) == ("anna", "ben")
    file = tmp_path / "tokens"
    file.write_text(f"anna {FORMER}\n")
    with pytest.raises(Unauthenticated):  # the file replaces the environment
        read_tokens(file).name_of(f"Bearer {TOKEN}")
    for text in ("anna short", "# comment", "", "\n", TOKEN):
        monkeypatch.setenv("SPECWHISPER_TOKENS", text)
        with pytest.raises(InvalidRequest, match="SPECWHISPER_TOKENS"):
            read_tokens(None)


def test_a_lease_is_valid_for_a_time_and_one_caller_at_one_target():
    clock = Clock()
    leases = Leases(clock)
    lease = leases.grant("draft-1")
    clock.now_s += 59.9
    leases.check(lease, "draft-1")
    for other, caller in ((leases, "draft-2"), (Leases(clock), "draft-1")):
        with pytest.raises(LeaseRefused, match="ask Locate for one"):
            other.check(lease, caller)
    clock.now_s += 0.2
    with pytest.raises(LeaseRefused, match="valid for 60 s"):
        leases.check(lease, "draft-1")


@given(st.text(), st.text())
def test_other_strings_are_refused(lease, caller):
    with pytest.raises(LeaseRefused):
        Leases().check(lease, caller)


@given(st.integers(0, 63), st.integers(1, 15))
def test_a_changed_lease_is_refused(place, change):
    leases = Leases()
    until_ms, signature = leases.grant("draft-1").split(".")
    other = f"{int(signature[place], 16) ^ change:x}"
    with pytest.raises(LeaseRefused):
        leases.check(f"{until_ms}.{signature[:place]}{other}{signature[place + 1 :]}", "draft-1")
    with pytest.raises(LeaseRefused):
        leases.check(f"{int(until_ms) + change}.{signature}", "draft-1")
