from specwhisper import SpeculativeWhisper

model = SpeculativeWhisper("tiny", "large-v3", device="cuda", dtype="float16")
result = model.transcribe("talk.mp3", hotwords="Harbour", condition_on_previous_text=False)
segments, info = result.segments_and_info()
print(info.language)
for segment in segments:
    print(segment.start, segment.end, segment.text)
