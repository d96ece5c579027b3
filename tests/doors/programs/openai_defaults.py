from specwhisper import SpeculativeWhisper

model = SpeculativeWhisper("tiny", "large-v3")
result = model.transcribe(
    "talk.mp3",
    language="en",
    temperature_increment_on_fallback=0.2,
    compression_ratio_threshold=2.4,
    compression_ratio_of="text",
    logprob_threshold=-1.0,
    no_speech_threshold=0.6,
    condition_on_previous_text=True,
    padding="zero",
)
print(result["text"])
