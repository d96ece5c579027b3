"""PyTorch's decoder equals transformers', whatever the calls, slots, batches; placement; vocabularies."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.model import backends
from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch.backend import open_decoder
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.translated import draft_ids
from tests.encoding import recorded
from tests.nightly import examples

POSITIONS = 72
SHAPE = Shape(decoder_layers=3, heads=4, max_target_positions=POSITIONS, seed=5)
TRANSFORMERS, CHECKPOINT = build_checkpoint(SHAPE)
SIZE, WIDTH = len(CHECKPOINT.vocabulary), SHAPE.d_model
NUM_SLOTS = 5
AUDIO = torch.randn(NUM_SLOTS, 1500, WIDTH, generator=torch.Generator().manual_seed(0))
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # logits are of order 1; kernels differ in the order of their sums


def new_decoder(kind: str = "ragged") -> CachedDecoder:
    """Build a decoder whose slot i holds ``AUDIO[i]``: without padding, or padded to static shapes."""
    device = "cuda" if kind == "on a GPU" else "cpu"
    decoder = open_decoder(CHECKPOINT, NUM_SLOTS, device=device, has_static_shapes=kind != "ragged")
    decoder.prefill_audio(range(NUM_SLOTS), AUDIO)
    return decoder


@pytest.fixture(scope="module", params=["ragged", "static", "on a GPU"])
def shared(request) -> CachedDecoder:
    if request.param == "on a GPU" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return new_decoder(request.param)


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, SIZE, length).tolist()


@torch.inference_mode()
def expected(slot: int, tokens: list[int], num_positions: int = 1500) -> torch.Tensor:
    """Return transformers' logits after each token, for the first positions of a slot's window."""
    encoded = BaseModelOutput(AUDIO[slot : slot + 1, :num_positions])
    return TRANSFORMERS(encoder_outputs=encoded, decoder_input_ids=torch.tensor([tokens])).logits[0]


operation = st.tuples(
    st.sampled_from(["append", "append", "rollback", "prefill"]),
    st.dictionaries(st.integers(0, NUM_SLOTS - 1), st.sampled_from([1, 2, 3, 5, 9, 40]), min_size=1),
    st.integers(0, 2**16),
)
histories = st.lists(operation, min_size=1, max_size=8)
# A slot is filled to its last position beside a longer row.
FILLED = [("append", {0: POSITIONS - 1}, 0), ("append", {0: 1, 1: 12}, 0)]


def check_history(decoder, operations, prefill, expected=expected) -> None:
    """Check that a decoder has transformers' logits, whatever it did before."""
    held = {slot: [] for slot in range(NUM_SLOTS)}
    for kind, sizes, seed in operations:
        rows = {slot: text(seed + slot, size)[: POSITIONS - len(held[slot])] for slot, size in sizes.items()}
        slots = sorted(rows, key=lambda slot: (slot * seed) % 7)  # in any order
        rows = {slot: rows[slot] for slot in slots if rows[slot] and kind == "append"}
        if rows:
            scored = [1 + seed % len(row) for row in rows.values()]
            probes = [(i, 0) for i in range(seed % 3) if i < len(rows)]
            logits = decoder.append(list(rows), list(rows.values()), scored, probes)
            whole = [expected(slot, held[slot] + row)[-len(row) :] for slot, row in rows.items()]
            of_rows = [each[-num:] for each, num in zip(whole, scored, strict=True)]
            together = torch.cat([*of_rows, *(whole[i][:1] for i, _ in probes)])
            torch.testing.assert_close(torch.as_tensor(logits).cpu(), together, **CLOSE)
        for slot, row in rows.items():
            held[slot] += row
        for slot, size in sizes.items():
            if kind == "rollback":
                decoder.rollback(slot, size)
                del held[slot][size:]
            elif kind == "prefill":
                prefill(slot)
                held[slot].clear()
        assert decoder.lengths == [len(held[slot]) for slot in range(NUM_SLOTS)]


@settings(max_examples=examples(15, 40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(operations=FILLED)
@given(operations=histories)
def test_any_history_has_the_logits_of_transformers(shared, operations):
    for slot in range(NUM_SLOTS):
        shared.rollback(slot, 0)
    check_history(shared, operations, lambda slot: shared.prefill_audio([slot], AUDIO[slot : slot + 1]))


class TestPlacement:
    PROMPT = (301, 302, 401)

    @pytest.fixture
    def placed(self, monkeypatch) -> WhisperModel:
        """Return the model on PyTorch without a device map."""
        with monkeypatch.context() as patched:
            patched.setattr(backends, "unsupported", lambda checkpoint: "it may not")
            return WhisperModel(CHECKPOINT, 2)

    def scores(self, model: WhisperModel, tokens: list[int], num_candidates: int):
        model.encode(0, recorded(3.0), 0)
        generated = tokens[: len(tokens) - num_candidates]
        row = Row(0, [*self.PROMPT, *tokens], num_candidates, generated, timestamps=False)
        return model.score([row])[0]

    def test_offloaded_weights_give_the_same_text(self, placed, tmp_path):
        device_map = {
            "encoder.conv1": "disk",
            "encoder.conv2": "cpu",
            "encoder.embed_positions": "disk",
            "encoder.layers": "disk",
            "encoder.layer_norm": "cpu",
            "decoder.embed_tokens": "disk",
            "embed_positions": "cpu",
            "layers.0": "cpu",
            "layers.1": "disk",
            "layers.2": "cpu",
            "norm": "disk",
            "unembed": "disk",
        }
        offloaded = WhisperModel(CHECKPOINT, 2, device_map=device_map, offload_folder=tmp_path)
        assert list(tmp_path.iterdir())
        tokens = text(9, 8)
        assert self.scores(offloaded, tokens, 5) == self.scores(placed, tokens, 5)
        assert offloaded.bytes_per_slot == placed.bytes_per_slot

    @pytest.mark.parametrize("num_bytes", [10**9, 150_000])
    def test_an_automatic_map_follows_the_memory(self, num_bytes, placed, tmp_path, monkeypatch):
        slots = placed.bytes_per_slot * 2
        monkeypatch.setattr(
            "accelerate.utils.get_max_memory", lambda max_memory=None: {"cpu": slots + num_bytes}
        )
        mapped = WhisperModel(CHECKPOINT, 2, device_map="auto", offload_folder=tmp_path)
        assert (num_bytes < 10**9) == bool(list(tmp_path.iterdir()))
        tokens = text(9, 8)
        assert self.scores(mapped, tokens, 5).tokens == self.scores(placed, tokens, 5).tokens

    def test_weights_of_another_model_in_the_folder_are_not_used(self, placed, tmp_path):
        _, other = build_checkpoint(replace(SHAPE, seed=SHAPE.seed + 1))
        WhisperModel(other, 1, device_map={"": "disk"}, offload_folder=tmp_path)
        offloaded = WhisperModel(CHECKPOINT, 1, device_map={"": "disk"}, offload_folder=tmp_path)
        tokens = text(9, 8)
        assert self.scores(offloaded, tokens, 5) == self.scores(placed, tokens, 5)

    @pytest.mark.parametrize(
        ("dtype", "settings", "message"),
        [
            ("int8", {"device_map": {"": "cpu"}}, "int8 weights are for a CPU without device map"),
            ("float32", {"cut_windows": True}, "on ONNX Runtime only, so on a CPU"),
        ],
    )
    def test_conflicting_settings_are_refused(self, dtype, settings, message, monkeypatch):
        if "cut_windows" in settings:
            monkeypatch.setattr(backends, "unsupported", lambda checkpoint: "it may not")
        with pytest.raises(UnsupportedOption, match=message):
            WhisperModel(replace(CHECKPOINT, dtype=dtype), 1, **settings)

    @pytest.mark.parametrize(
        ("device_map", "message"),
        [
            ({"layers": "cpu"}, "has no device for 'decoder.embed_tokens.weight'"),
            (
                {"encoder.conv1": "cpu", "decoder": "cpu"},
                r"for 'encoder.conv2.weight': .* of the encoder \(encoder.conv1, encoder.con",
            ),
            ("balanced", 'device map is "balanced": name a map, or "auto"'),
            ({"": "disk"}, "puts weights on disk: name an offload folder"),
            ({"": "nowhere"}, "cannot be followed .*: name devices that exist"),
        ],
    )
    def test_an_invalid_device_map_is_refused(self, device_map, message):
        with pytest.raises(InvalidRequest, match=message):
            WhisperModel(CHECKPOINT, 1, device_map=device_map)

    def test_a_draft_in_its_targets_vocabulary_chooses_the_same_tokens(self):
        _, target = build_checkpoint(replace(SHAPE, num_mel_bins=128, cantonese=True))
        ids = draft_ids(CHECKPOINT.vocabulary, target.vocabulary)
        assert ids is not None
        mapped = WhisperModel(CHECKPOINT, 1, vocabulary=target.vocabulary, ids=ids)
        to_target = {own: i for i, own in enumerate(ids) if own is not None}
        yue = target.vocabulary.languages["yue"]
        assert [i for i, own in enumerate(ids) if own is None] == [yue]
        tokens = text(10, 8)
        expected = self.scores(WhisperModel(CHECKPOINT, 1), tokens, 5)
        mapped.encode(0, recorded(3.0), 0)
        row = Row(0, [to_target[i] for i in (*self.PROMPT, *tokens)], 5, [], timestamps=False)
        translated = mapped.score([row])[0]
        assert translated.tokens == [to_target[i] for i in expected.tokens]
        assert translated.log_probs == pytest.approx(expected.log_probs, abs=5e-4)
        assert translated.margins == pytest.approx(expected.margins, abs=5e-4)
