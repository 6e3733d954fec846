"""Scalars as categorical distributions: the transform h, its inverse and the two-hot φ (paper, Training)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


def transform(x: Float[Array, "*shape"], epsilon: float = 1e-3) -> Float[Array, "*shape"]:
    """Squashes a scalar: h(x) = sign(x)(√(|x|+1) − 1) + εx.

    The paper prints εx inside the bracket; the transform it cites has it outside, which makes h odd. Written
    as x/(√(|x|+1) + 1) + εx there is no cancellation near 0 and the derivative there is ½ + ε.
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + epsilon * x


def inverse_transform(y: Float[Array, "*shape"], epsilon: float = 1e-3) -> Float[Array, "*shape"]:
    """Undoes `transform` exactly.

    With w = √(|x|+1) − 1, |y| = εw² + (1+2ε)w and |x| = w(w + 2). The root is taken in the form that
    subtracts nothing, so that float32 keeps its precision for small and for large y.
    """
    half = 1 + 2 * epsilon
    w = 2 * y / (half + jnp.sqrt(half**2 + 4 * epsilon * jnp.abs(y)))
    return w * (jnp.abs(w) + 2)


class Codec(eqx.Module):
    """Represents scalars by logits over `bins` points spread evenly from `low` to `high` in h's space.

    By default the points are one apart and symmetric about 0: `Codec(bins=601)` spans ±300 (Atari) and
    `Codec(bins=20)` spans ±9.5 (BSuite), so that zero-initialised heads stand for the scalar 0.
    """

    bins: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(
        self, bins: int = 20, low: float | None = None, high: float | None = None, *, epsilon: float = 1e-3
    ):
        if bins < 2:
            raise ValueError(f"a codec needs at least 2 bins, got {bins}")
        if epsilon <= 0:
            raise ValueError(f"epsilon must be positive, got {epsilon}")
        if low is None and high is None:
            high = (bins - 1) / 2
        self.bins = bins
        self.high = float(high if high is not None else -low)  # pyright: ignore[reportOptionalOperand]
        self.low = float(low if low is not None else -self.high)
        self.epsilon = epsilon
        if not self.low < self.high:
            raise ValueError(f"the support must run upwards, got low={self.low} and high={self.high}")

    @property
    def support(self) -> np.ndarray:
        """The bins' positions in h's space, `[bins]`."""
        return np.linspace(self.low, self.high, self.bins, dtype=np.float32)

    def encode(self, scalar: Float[Array, "*shape"]) -> Float[Array, "*shape bins"]:
        """Returns φ(h(x)): weight on the two nearest bins whose mean is h(x), clipped to the support.

        Each weight is the distance from the opposite neighbour (never one minus a number near one), which
        keeps small scalars exact where 0 is a bin and makes the clipped ends exactly one-hot.
        """
        largest = jnp.finfo(jnp.float32).max  # ∞ too is clipped to the end of the support
        finite = jnp.clip(scalar.astype(jnp.float32), -largest, largest)
        y = jnp.clip(transform(finite, self.epsilon), self.low, self.high)[..., None]
        support = self.support.reshape((1,) * scalar.ndim + (self.bins,))
        gaps = np.diff(support)
        end = jnp.ones_like(y)
        rising = jnp.concatenate([end, (y - support[..., :-1]) / gaps], axis=-1)
        falling = jnp.concatenate([(support[..., 1:] - y) / gaps, end], axis=-1)
        return jnp.clip(jnp.minimum(rising, falling), 0, 1)

    def decode(self, logits: Float[Array, "*shape bins"]) -> Float[Array, "*shape"]:
        """Returns h⁻¹ of the mean of the distribution that `logits` stand for."""
        sums, _ = self._sums(logits)
        return inverse_transform(sums[:, 0] / sums[:, 1], self.epsilon).reshape(logits.shape[:-1])

    def log_normaliser(self, logits: Float[Array, "*shape bins"]) -> Float[Array, "*shape"]:
        """Returns log Σ exp of logits, by the sums that `decode` takes: together they cost little more."""
        sums, top = self._sums(logits)
        return (jnp.log(sums[:, 1]) + top[:, 0]).reshape(logits.shape[:-1])

    def _sums(
        self, logits: Float[Array, "*shape bins"]
    ) -> tuple[Float[Array, "rows 2"], Float[Array, "rows 1"]]:
        """Returns Σ x·exp(l − top) and Σ exp(l − top) of each row of logits, and its top."""
        # Rows of one axis: with more, XLA's exponential on a CPU takes twice as long.
        rows = logits.astype(jnp.float32).reshape(-1, self.bins)
        top = jax.lax.stop_gradient(jnp.max(rows, axis=-1, keepdims=True))
        # Both sums as one product: summed by itself, a row of so few numbers is taken one by one, and a
        # look-ahead's two heads on a CPU take 2.6 times as long.
        moments = np.stack([self.support, np.ones_like(self.support)], axis=1)
        return jnp.matmul(jnp.exp(rows - top), moments, precision=jax.lax.Precision.HIGHEST), top
