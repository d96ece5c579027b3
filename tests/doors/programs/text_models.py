from specwhisper import SpeculativeLM, compare_gammas

lm = SpeculativeLM("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "meta-llama/Llama-2-7b-hf")
result = lm.generate("The harbour lay", gamma=5, max_tokens=100, temperature=0.8, k=50)
print(result)
print(result.num_kept, "of", result.num_drafted, "drafted tokens kept")
compare_gammas(lm.generate, "The harbour lay", (5, 10, 20), max_tokens=100)
