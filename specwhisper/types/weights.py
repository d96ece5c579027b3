"""Names of the number types of weights, and where weights are placed."""

from typing import Literal, TypeAlias

# Accelerate's: a device, or "disk", by module.
DeviceMap: TypeAlias = dict[str, int | str] | Literal["auto"]
# Only float32 is identical to transformers. int8 is for CPUs; keys, values and states between layers are
# float32 then.
DTYPES = ("float32", "bfloat16", "float16", "int8")
