"""Every test runs with strict types and ranks, on eight simulated devices, with warnings as errors."""

import os
import resource
import tempfile
from pathlib import Path

import jax
import pytest

# Workers and the commands that tests start share what any of them has compiled.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="rosmo-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
    jax.config.update("jax_compilation_cache_dir", compiled.name)

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # halves the compile times that tests are made of


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """Compiled programs hold memory maps, of which a process may have 65,530: a whole suite needs more."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def forget_registered():
    """What a test registers, as a module of a user's own does, is not there for those of other files."""
    from rosmo import agents, networks, operators, regularizers, worlds

    registries = [room.registry for room in (agents, networks, operators, regularizers, worlds)]
    before = [dict(registry._parts) for registry in registries]
    yield
    for registry, parts in zip(registries, before, strict=True):
        registry._parts.clear()
        registry._parts.update(parts)


@pytest.fixture(autouse=True)
def forget_compiled_in_time():
    """The tests of one module alone may need more, where they run over every agent."""
    yield
    if Path("/proc/self/maps").read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()


@pytest.fixture
def full_disk():
    """Lets no file grow beyond 100 kB, as a full disk would."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
