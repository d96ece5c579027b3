from specwhisper import SpeculativeWhisper

pipe = SpeculativeWhisper("tiny", "large-v3")
generate = {"language": "en", "num_assistant_tokens": 5}
result = pipe("talk.mp3", return_timestamps=True, generate_kwargs=generate)
print(result["text"], result["chunks"][0]["timestamp"])
