# before
import whisper

model = whisper.load_model("large-v3")
result = model.transcribe("talk.mp3", language="en", word_timestamps=True)
print(result["text"], result["segments"][0]["words"][0]["start"])
