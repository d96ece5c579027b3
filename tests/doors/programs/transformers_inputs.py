import soundfile

from specwhisper import SpeculativeWhisper

pipe = SpeculativeWhisper("tiny", "large-v3")
samples, rate = soundfile.read("talk.mp3", dtype="float32")
with open("answer.mp3", "rb") as file:
    inputs = ["talk.mp3", file.read(), {"raw": samples, "sampling_rate": rate}]
generate = {"language": "en", "task": "transcribe"}
for output in pipe(iter(inputs), return_timestamps="word", generate_kwargs=generate, batch_size=2):
    print(output["chunks"][0]["timestamp"], output["text"])
