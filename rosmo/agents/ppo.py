"""Proximal policy optimisation (Schulman et al., 2017): its loss, its advantages and its settings."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer

from rosmo.agents import base
from rosmo.operators.base import mask_logits
from rosmo.types import Metrics, refuse_counts, refuse_numbers


@dataclasses.dataclass(frozen=True)
class PPOSettings:
    """What PPO is trained with; the defaults are cleanrl's for Atari.

    Args:
        environments: how many are played at once.
        steps: of each of them in a batch.
        epochs: passes over a batch.
        minibatches: updates of a pass.
        learning_rate: of Adam.
        anneal: whether the learning rate falls to 0 along the training.
        discount: γ.
        lambda_: λ, how far advantages look.
        clip: how far the ratio of new to old probabilities may move, and a value from its old one.
        clip_value: whether values are held back in this way too.
        normalise: whether the advantages of a minibatch get mean 0 and standard deviation 1.
        entropy: weight of the policy's entropy.
        value_weight: weight of the value loss.
        max_grad_norm: where the norm of a gradient is clipped.
    """

    environments: int = 8
    steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 2.5e-4
    anneal: bool = True
    discount: float = 0.99
    lambda_: float = 0.95
    clip: float = 0.1
    clip_value: bool = True
    normalise: bool = True
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5

    def __post_init__(self):
        counts = ("environments", "steps", "epochs", "minibatches")
        refuse_counts(**{name: getattr(self, name) for name in counts})
        above = ("learning_rate", "clip", "max_grad_norm")
        refuse_numbers(above=True, **{name: getattr(self, name) for name in above})
        refuse_numbers(0, 1, discount=self.discount, lambda_=self.lambda_)
        refuse_numbers(entropy=self.entropy, value_weight=self.value_weight)
        if self.environments * self.steps % self.minibatches:
            raise ValueError(
                f"a batch of {self.environments} × {self.steps} steps does not divide into "
                f"{self.minibatches} minibatches"
            )

    def optimizer(self, num_batches: int) -> optax.GradientTransformation:
        """Returns Adam with clipped gradients, for a training of `num_batches` batches."""
        updates = num_batches * self.epochs * self.minibatches
        how = {"anneal": self.anneal, "max_grad_norm": self.max_grad_norm}
        return annealed_adam(self.learning_rate, num_updates=updates, **how)


def annealed_adam(
    learning_rate: float = 2.5e-4, *, num_updates: int, anneal: bool = True, max_grad_norm: float = 0.5
) -> optax.GradientTransformation:
    """Adam with clipped gradients, whose learning rate falls to 0 in a straight line.

    Args:
        learning_rate: that it begins with.
        num_updates: after which it is 0.
        anneal: whether it falls.
        max_grad_norm: the global norm that longer gradients are scaled to.
    """
    refuse_numbers(above=True, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
    refuse_counts(num_updates=num_updates)
    rate = optax.linear_schedule(learning_rate, 0, num_updates) if anneal else learning_rate
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(rate, eps=1e-5))


def gae(
    reward: Float[Array, "..."],
    discount: Float[Array, "..."],
    value: Float[Array, "..."],
    next_value: Float[Array, "..."],
    lambda_: float,
    *,
    is_end: Bool[Array, "..."] | None = None,
    time_axis: int = 0,
) -> Float[Array, "..."]:
    """Returns A_t = δ_t + γ_t λ A_{t+1} with δ_t = r_t + γ_t v'_t − v_t, of arrays with an axis of time.

    All arrays have one shape, and the last step of the time axis has no A_{t+1}. The value targets are
    `advantage + value`.

    Args:
        reward: r_t, of the step from observation t.
        discount: γ_t, 0 where that step terminated the episode.
        value: v_t, of observation t.
        next_value: v'_t, of the observation that the step led to: the episode's own, not the one after a
            reset.
        lambda_: λ.
        is_end: where the step ended its episode in whatever way, so that t + 1 is of another: nothing flows
            back over it. Needed for truncations, whose discount is not 0.
        time_axis: 0 for `[T, B]`, 1 for `[B, T]`.
    """
    delta = reward + discount * next_value - value
    carried = discount * lambda_
    if is_end is not None:
        carried = jnp.where(is_end, 0, carried)
    delta, carried = (jnp.moveaxis(x, time_axis, 0) for x in (delta, carried))

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    _, advantage = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, carried), reverse=True)
    return jnp.moveaxis(advantage, 0, time_axis)


def ppo_loss(
    logits: Float[Array, "*batch actions"],
    value: Float[Array, "*batch"],
    action: Integer[Array, "*batch"],
    old_log_prob: Float[Array, "*batch"],
    advantage: Float[Array, "*batch"],
    target: Float[Array, "*batch"],
    *,
    clip: float = 0.1,
    entropy: float = 0.01,
    value_weight: float = 0.5,
    normalise: bool = True,
    old_value: Float[Array, "*batch"] | None = None,
    mask: Bool[Array, "*batch"] | None = None,
    invalid_actions: Bool[Array, "*batch actions"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """Returns L = −min(ρA, clip(ρ, 1 ± ε)A) + c_v ½(v − target)² − c_e H, averaged over steps.

    Args:
        logits: of the policy that is trained.
        value: v, of the network that is trained.
        action: that was taken.
        old_log_prob: of the action, under the policy that took it.
        advantage: A, from `gae`.
        target: of the value, the advantage (before it is normalised) plus the old value.
        clip: ε.
        entropy: c_e.
        value_weight: c_v.
        normalise: whether the advantages get mean 0 and standard deviation 1 here.
        old_value: what the value was when the action was taken; where given, the value loss is the larger
            one of v and of v held within ε of it.
        mask: steps that count; all where not given.
        invalid_actions: the policy has none of these.
    """
    logits = mask_logits(logits, invalid_actions)
    mask = jnp.ones_like(action, bool) if mask is None else mask
    count = jnp.maximum(jnp.sum(mask), 1).astype(value.dtype)

    def mean(x: Array) -> Array:
        return jnp.sum(jnp.where(mask, x, 0)) / count

    if normalise:
        centred = advantage - mean(advantage)
        advantage = centred / (jnp.sqrt(mean(jnp.square(centred))) + 1e-8)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]
    log_ratio = jnp.where(mask, log_prob - old_log_prob, 0)
    ratio = jnp.exp(log_ratio)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
    error = jnp.square(value - target)
    if old_value is not None:
        held = old_value + jnp.clip(value - old_value, -clip, clip)
        error = jnp.maximum(error, jnp.square(held - target))
    terms = {"policy": -mean(gain), "value": value_weight * 0.5 * mean(error)}
    spread = mean(base.entropy(logits))
    loss = terms["policy"] + terms["value"] - entropy * spread
    return loss, {f"loss/{name}": term for name, term in terms.items()} | {
        "loss": loss,
        "policy_entropy": spread,
        "value": mean(value),
        "clipped": mean((jnp.abs(ratio - 1) > clip).astype(value.dtype)),
        "old_policy_kl": mean(ratio - 1 - log_ratio),
    }
