"""Every test runs with strict types and ranks, on eight simulated devices, with warnings as errors."""

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # halves the compile times that tests are made of


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """Compiled programs hold memory maps, of which a process may have 65,530: a whole suite needs more."""
    yield
    jax.clear_caches()
