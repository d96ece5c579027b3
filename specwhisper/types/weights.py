"""Names of the number types of weights and caches."""

# Only float32 is identical to transformers. int8 is for CPUs; keys and values are bfloat16 then, and states
# between layers are float32.
DTYPES = ("float32", "bfloat16", "float16", "int8")
CROSS_CACHES = ("int8", "float8")  # for the cross-attention cache on a GPU
