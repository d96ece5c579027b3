from specwhisper import SpeculativeWhisper

model = SpeculativeWhisper("tiny", "large-v3")
result = model.transcribe(
    "talk.mp3",
    language="en",
    condition_on_previous_text=True,
    padding="zero",
)
print(result["text"])
