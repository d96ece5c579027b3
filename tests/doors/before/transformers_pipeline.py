# before
from transformers import AutoModelForSpeechSeq2Seq, pipeline

draft = AutoModelForSpeechSeq2Seq.from_pretrained("openai/whisper-tiny")
pipe = pipeline("automatic-speech-recognition", model="openai/whisper-large-v3")
generate = {"language": "en", "assistant_model": draft, "num_assistant_tokens": 5}
result = pipe("talk.mp3", return_timestamps=True, generate_kwargs=generate)
print(result["text"], result["chunks"][0]["timestamp"])
