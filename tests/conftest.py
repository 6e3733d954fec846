"""Every test runs with strict types and ranks, on eight simulated devices, with warnings as errors."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # halves the compile times that tests are made of
