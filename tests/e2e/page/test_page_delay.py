"""The page says when words are shown, and when they are final."""

import pytest

from tests.e2e.page.pages import run

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]
DELAYS = """
    const state = newState({ isPaced: true });
    const text = { type: "update", finals: [], verified: "", stable: "", tentative: "", received_s: 0 };
    const final = (text, start_s, end_s) => ({ text, start_s, end_s, utterance: 1, is_utterance_end: true });
    const show = (at, sent_s, change) => apply(state, { ...text, ...change, sent_s }, at);
    // The sound begins half a second after the session.
    show(1500, 1, { tentative: " Won two many words" }); // more words than were said
    show(2500, 2, { tentative: " one" });
    show(3000, 2.5, { stable: " one", tentative: " two" });
    show(4000, 3.5, { stable: " one", tentative: " two three" });
    const before = describeDelay(state);
"""


@pytest.mark.parametrize(
    ("then", "delays", "line"),
    [
        # "two." was shown at 3 s, and said at 2 s: 1.5 s of the sound.
        (
            'show(4500, 4, { finals: [final(" One two.", 0, 1.5)], stable: " three" });',
            [[1, 2.5]],
            "Words appear 1.0 s after they are said. A sentence is final 2.5 s after its end.",
        ),
        # Both end within one update; "four" is first shown as final, after the end of the sound.
        (
            'show(7000, 4, { finals: [final(" One two three", 0, 3), final(" four", 3, 4)] });',
            [[0.5, 3.5], [0, 0]],
            None,
        ),
        # The target's times say that the word ends after the sound: nothing is known of it.
        ('show(4500, 4, { finals: [final(" One two three.", 0, 4.2)] });', [], ""),
        # The draft guessed a word, and the target has it later.
        (
            'show(5500, 5, { finals: [final(" One two three.", 0, 4.5)] });',
            [[-1, 0.5]],
            "Words appear 1.0 s before they are said. A sentence is final 0.5 s after its end.",
        ),
        # Silence has no words.
        ('show(4500, 4, { finals: [final(" ", 0, 1.5)] });', [], ""),
    ],
)
async def test_the_delay_is_that_of_the_words_that_are_final(page, then, delays, line):
    names = "apply, describeDelay, newState"
    seen = "before, state.delays.map(({ shownS, finalS }) => [shownS, finalS]), describeDelay(state)"
    seen = await run(page, "state.js", names, f"{DELAYS} {then} return [{seen}];")
    assert seen[:2] == ["", delays]
    assert line is None or seen[2] == line


async def test_sound_that_is_sent_at_once_has_no_delay(page):
    script = f"{DELAYS.replace('isPaced: true', '')} show(9000, 4, {{ finals: [final(' One.', 0, 1)] }});"
    names = "apply, describeDelay, newState"
    assert await run(page, "state.js", names, f"{script} return describeDelay(state);") == ""
