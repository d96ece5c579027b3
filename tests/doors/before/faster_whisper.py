# before
from faster_whisper import WhisperModel

model = WhisperModel("large-v3", device="cuda", compute_type="float16")
segments, info = model.transcribe("talk.mp3", hotwords="Harbour", condition_on_previous_text=False)
print(info.language)
for segment in segments:
    print(segment.start, segment.end, segment.text)
