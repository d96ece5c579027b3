"""Resume points as an attacker may forge them: mostly valid tokens."""

from hypothesis import strategies as st

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.fuzz.messages import messages

SIZE = len(VOCABULARY)
TOKENS = st.sampled_from([0, 1, 7, END, TIME, TIME + 1500]) | st.integers(0, SIZE - 1)


@st.composite
def resumes(draw: st.DrawFn) -> pb.Resume:
    """Draw a valid or changed window and its committed tokens."""
    window = pb.Window(id=1, num_frames=3000, prompt=[END + 1], max_new_tokens=60)
    window.MergeFrom(draw(st.just(pb.Window()) | messages(pb.Window.DESCRIPTOR)))
    committed = draw(st.lists(TOKENS | st.integers(0, 20), max_size=4))
    committed += draw(st.sampled_from([[], [], [], [SIZE]]))
    log_probs = [-0.5] * len(committed)
    if draw(st.booleans()):
        log_probs = draw(st.lists(st.floats(width=32), max_size=4))
    resume = pb.Resume(window=window, committed=committed, log_probs=log_probs)
    if draw(st.booleans()):
        resume.window.log_mel_max = draw(st.floats())
    resume.window.previous.extend(draw(st.lists(TOKENS, max_size=4)))
    return resume
