import json

from specwhisper import SpeculativeWhisper

model = SpeculativeWhisper("tiny", "large-v3")
files = ["talk.mp3", "answer.mp3"]
outputs = model.transcribe(files, language="en", word_timestamps=True)
for file, text in zip(files, outputs):
    print(file, text)
result = outputs[0]
print(result["stats"]["overall_acceptance_rate"], result["stats"]["avg_tokens_per_iteration"])
print(sum(segment["end"] - segment["start"] for segment in result["segments"]), "s of speech")
print(result.get("duration_s"), "text" in result, sorted(result.keys()))
saved = json.loads(result.to_json())
print(saved["segments"][0]["words"][0]["word"], saved["stats"]["overall_acceptance_rate"])
