"""How a recurrent state space model is trained: the loss of a window, and what is left to say of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Shaped

from rosmo.types import Key, Keys, Metrics, Trajectory, refuse_counts, refuse_numbers, window_keys
from rosmo.worlds.base import Steps, align, filter_window
from rosmo.worlds.distributions import balanced_kl, bernoulli, categoricals, normal
from rosmo.worlds.rssm import RSSM, RSSMState


@dataclasses.dataclass(frozen=True)
class WorldModel:
    """Trains an RSSM by its evidence bound on windows of any episodes (DreamerV2, Equation 2).

    A window is a sequence that starts anywhere. Episodes that begin inside of it begin anew, and each of its
    observed steps counts alike: its observation, the divergence of its posterior from the members' priors,
    and the reward and discount that led to it, where the step before it is in the window.

    Args:
        model: builds the model from a key.
        window: steps of a sequence.
        kl_balance: α, the share of the divergence's gradient that moves the prior.
        kl_weight: weight of the divergence.
        free_nats: a divergence below this is not pushed any lower.
        reward_weight: weight of the reward's likelihood.
        reward_deviation: standard deviation of the reward, whose mean is learned.
        discount_weight: weight of the discount's likelihood.
    """

    model: Callable[[Key], RSSM]
    window: int = 16
    kl_balance: float = 0.8
    kl_weight: float = 0.1
    free_nats: float = 0.0
    reward_weight: float = 1.0
    reward_deviation: float = 0.4
    discount_weight: float = 1.0

    def __post_init__(self):
        refuse_counts(2, window=self.window)
        refuse_numbers(0, 1, kl_balance=self.kl_balance)
        weights = ("kl_weight", "free_nats", "reward_weight", "discount_weight")
        refuse_numbers(**{name: getattr(self, name) for name in weights})
        refuse_numbers(above=True, reward_deviation=self.reward_deviation)

    def init(self, key: Key) -> RSSM:
        """Returns a fresh model: its arrays are the parameters."""
        model = self.model(key)
        if not isinstance(model, RSSM):
            raise ValueError(
                f"WorldModel trains an RSSM, and {type(model).__name__} is another world: name what trains "
                "that one by train.agent, in a configuration of yours that world_configs names"
            )
        return model

    def check(self, observation: Shaped[Any, "steps ..."]) -> None:
        """Refuses observations that have no likelihood under the model."""
        model = eqx.filter_eval_shape(self.init, jax.random.key(0))
        low, high = float(observation.min()), float(observation.max())
        if model.pixels == "bernoulli" and not 0 <= low <= high <= model.scale:
            raise ValueError(
                f"observations go from {low:g} to {high:g}, and pixels = 'bernoulli' mean numbers from 0 to "
                f"{model.scale:g}: set pixels = 'normal', or the scale"
            )

    def loss(
        self, params: RSSM, target_params: RSSM, batch: Trajectory, key: Keys
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss of a batch of windows `[B, T]`, and its terms per observed step."""
        del target_params
        steps = align(batch)
        states = filter_window(params, batch, window_keys(key, batch))
        terms, metrics = self._terms(params, states, batch, steps)
        weights = {"reward": self.reward_weight, "discount": self.discount_weight, "kl": self.kl_weight}
        # Every step counts the same, observed or not, so that no window changes the weight of another.
        losses = {name: jnp.mean(term) * weights.get(name, 1.0) for name, term in terms.items()}
        loss = sum(losses.values(), jnp.zeros(()))
        return loss, {f"loss/{name}": value for name, value in losses.items()} | {"loss": loss, **metrics}

    def _terms(
        self, model: RSSM, states: RSSMState, batch: Trajectory, steps: Steps
    ) -> tuple[dict[str, Float[Array, "batch time"]], Metrics]:
        shape = batch.action.shape
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)
        features = model.features(flat)
        reward, going_on = (x.reshape(shape) for x in model.outcome(features))
        shown = jnp.where(_wide(steps.observed, batch.observation), batch.observation, 0)
        image = model.decode(features).log_prob(model.scaled(shown.reshape(-1, *shown.shape[2:])))
        prior = model.prior_logits(flat.deterministic)
        posterior = jnp.broadcast_to(flat.logits[:, None], prior.shape)
        kl = jnp.mean(balanced_kl(posterior, prior, self.kl_balance), axis=1)
        clipped = jnp.maximum(kl, self.free_nats)
        likelihood = {
            "image": (image.reshape(shape), steps.observed),
            "reward": (normal(reward, self.reward_deviation).log_prob(steps.reward), steps.reached),
            "discount": (bernoulli(going_on).log_prob(steps.discount), steps.reached),
        }
        terms = {name: jnp.where(mask, -value, 0) for name, (value, mask) in likelihood.items()}
        terms["kl"] = jnp.where(steps.observed, clipped.reshape(shape), 0)
        entropy = categoricals(flat.logits).entropy().reshape(shape)
        return terms, {
            "kl": _mean(kl.reshape(shape), steps.observed),
            "posterior_entropy": _mean(entropy, steps.observed),
            **{f"likelihood/{name}": _mean(value, mask) for name, (value, mask) in likelihood.items()},
        }


def _wide(mask: Bool[Array, "batch time"], like: Array) -> Bool[Array, "batch time ..."]:
    return mask.reshape(*mask.shape, *(1,) * (like.ndim - 2))


def _mean(x: Float[Array, "batch time"], mask: Bool[Array, "batch time"]) -> Float[Array, ""]:
    """A mean over steps in each window, then over windows, as a batch may be taken in parts."""
    count = jnp.maximum(jnp.sum(mask, axis=1), 1).astype(x.dtype)
    return jnp.mean(jnp.sum(jnp.where(mask, x, 0), axis=1) / count)
