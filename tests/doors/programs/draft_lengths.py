from specwhisper import SpeculativeWhisper, compare_gammas

model = SpeculativeWhisper("tiny", "large-v3")
compare_gammas(model.transcribe, "talk.mp3", (5, 10, 20), language="en")
result = model.transcribe("talk.mp3", language="en", gamma=10, use_adaptive_gamma=True)
print(result["stats"]["num_accepted"], "of", result["stats"]["num_drafted"], "drafted tokens kept")
