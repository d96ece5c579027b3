"""Files, folders and patterns on the command line, and the places of their transcripts."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from specwhisper_client.cli.recordings import find_recordings


def create(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def places(*arguments: Path) -> dict[str, str]:
    """Return the place of each recording, by the last two parts of its path."""
    recordings, without = find_recordings(arguments)
    assert without == []
    return {"/".join(each.path.parts[-2:]): each.place.as_posix() for each in recordings}


def test_a_folder_is_searched_for_recordings_in_order(tmp_path):
    create(tmp_path, "b/two.MP3", "b/c/three.m4a", "a/one.flac", "notes.txt", ".hidden.wav", ".git/four.wav")
    create(tmp_path, "a/._one.flac", "zero.wav")
    recordings, _ = find_recordings([tmp_path])
    assert [each.place.as_posix() for each in recordings] == ["zero", "a/one", "b/two", "b/c/three"]


def test_files_are_named_as_they_are_whatever_their_suffix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create(tmp_path, "a/talk", "b/.hidden.wav", "two.tar.mp3")
    assert places(Path("a/talk"), Path("b/.hidden.wav"), Path("two.tar.mp3")) == {
        "a/talk": "talk",
        "b/.hidden.wav": ".hidden",
        "two.tar.mp3": "two.tar",
    }


def test_patterns_are_expanded_from_the_folder_before_their_wildcard(tmp_path):
    create(tmp_path, "a/x/one.mp3", "a/y/two.mp3", "a/y/two.txt", "a/z/deep/three.mp3")
    assert places(tmp_path / "a" / "*" / "*.mp3") == {"x/one.mp3": "x/one", "y/two.mp3": "y/two"}
    assert places(tmp_path / "a" / "**" / "*.mp3")["deep/three.mp3"] == "z/deep/three"
    assert places(tmp_path / "*") == {
        "x/one.mp3": "a/x/one",
        "y/two.mp3": "a/y/two",
        "deep/three.mp3": "a/z/deep/three",
    }


def test_a_file_whose_name_has_a_wildcard_is_itself(tmp_path):
    create(tmp_path, "talk [1].mp3", "talk 1.mp3")
    assert places(tmp_path / "talk [1].mp3") == {f"{tmp_path.name}/talk [1].mp3": "talk [1]"}


def test_a_recording_that_is_named_twice_is_transcribed_once(tmp_path):
    create(tmp_path, "one.mp3")
    (tmp_path / "link.mp3").symlink_to(tmp_path / "one.mp3")
    assert len(find_recordings([tmp_path / "one.mp3", tmp_path, tmp_path / "link.mp3"])[0]) == 1


def test_files_of_equal_names_keep_their_folders(tmp_path, monkeypatch):
    create(tmp_path, "a/talk.mp3", "b/talk.mp3", "b/c/other.mp3")
    assert places(tmp_path / "a/talk.mp3", tmp_path / "b/talk.mp3", tmp_path / "b/c/other.mp3") == {
        "a/talk.mp3": "a/talk",
        "b/talk.mp3": "b/talk",
        "c/other.mp3": "b/c/other",
    }
    monkeypatch.chdir(tmp_path / "b")
    assert places(Path("../a/talk.mp3"), Path("talk.mp3")) == {"a/talk.mp3": "a/talk", "talk.mp3": "b/talk"}


def test_files_that_differ_in_their_suffix_keep_it(tmp_path):
    create(tmp_path, "talk.mp3", "talk.wav", "other.wav")
    assert set(places(tmp_path).values()) == {"talk.mp3", "talk.wav", "other"}
    create(tmp_path, "talk.mp3.wav")
    assert set(places(tmp_path).values()) == {"talk.mp3", "talk.wav", "other.wav", "talk.mp3.wav"}


def test_arguments_without_recordings_are_returned(tmp_path):
    (tmp_path / "empty").mkdir()
    arguments = [tmp_path / "empty", tmp_path / "gone.mp3", tmp_path / "*.mp3"]
    assert find_recordings(arguments) == ([], arguments)


PARTS = st.sampled_from(["a", "b", "talk", "talk.mp3", "a.b"])
PATHS = st.builds(
    lambda folders, name, suffix: Path(*folders, f"{name}{suffix}"),
    st.lists(PARTS.map("d{}".format), max_size=3),
    PARTS,
    st.sampled_from([".mp3", ".WAV", ".flac"]),
)


@given(st.sets(PATHS, min_size=1), st.sets(st.integers(0, 3)), st.data())
def test_each_recording_has_a_place_of_its_own_in_the_output_folder(paths, depths, data):
    with TemporaryDirectory() as name:
        root = Path(name)
        create(root, *map(str, paths))
        folders = sorted({path.parent for path in paths if len(path.parent.parts) in depths})
        files = data.draw(st.permutations(sorted(paths)))
        recordings, without = find_recordings([root / each for each in (*folders, *files)])
    assert without == []
    assert len(recordings) == len(paths)
    assert len({each.place for each in recordings}) == len(paths)
    for each in recordings:
        assert not each.place.is_absolute()
        assert ".." not in each.place.parts


def test_a_place_never_leaves_the_output_folder(tmp_path, monkeypatch):
    create(tmp_path, "a/x/one.mp3", "two.mp3")
    monkeypatch.chdir(tmp_path / "a")
    found = places(Path("*/../../two.mp3"), Path("../a/../two.mp3"), Path(".."))
    assert sorted(found.values()) == ["a/x/one", "two"]
    monkeypatch.chdir(tmp_path)
    assert places(Path("*.mp3")) == {"two.mp3": "two"}
