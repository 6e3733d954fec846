"""What every operator makes of a model that is wrong: entropy, and true improvement on random MDPs.

    ./dev python -m benchmarks.operators_under_error [--mdps 200] [--picture docs/images/operators.png]

The MDPs have 30 states, 4 actions and deterministic transitions; rewards and the prior's logits are standard
normal and γ is 0.9. The model has the true transitions, and normal errors of the same size, in standard
deviations of a reward, in each reward, and in each value that it predicts. Each operator improves the prior
in every state once, and the value of what it makes is computed in the true MDP by linear algebra. The gain is
the share of what lies between the prior's value and the best policy's.
"""

import argparse
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rosmo import operators
from rosmo.types import RecurrentFnOutput, Root

STATES, ACTIONS, GAMMA = 30, 4, 0.9
ERRORS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
OPERATORS = {
    "one_step": functools.partial(operators.one_step),
    "regularized": functools.partial(operators.regularized, num_simulations=20),
    "cmpo": functools.partial(operators.cmpo),
    "mpo": functools.partial(operators.mpo, epsilon=0.1),
    "sampled_one_step": functools.partial(operators.sampled_one_step, num_samples=4),
    "mcts": functools.partial(operators.mcts, num_simulations=20),
    "mcts_q": functools.partial(operators.mcts_q, num_simulations=20),
    "gumbel": functools.partial(operators.gumbel, num_simulations=20),
    "smc": functools.partial(operators.smc, num_particles=16, depth=4),
    "prior": functools.partial(operators.prior),
}


class Model(NamedTuple):
    """Tables of what is believed, `[S, A]` and `[S]`."""

    reward: jax.Array
    after: jax.Array
    value: jax.Array
    logits: jax.Array


def step(model: Model, key, action, state):
    """One step of a table, in mctx's language."""
    after = model.after[state, action]
    output = RecurrentFnOutput(  # pyright: ignore[reportCallIssue]
        reward=model.reward[state, action],
        discount=jnp.full(state.shape, GAMMA),
        prior_logits=model.logits[after],
        value=model.value[after],
    )
    return output, after


def true_value(policy: np.ndarray, reward: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The value of a policy, by its linear equations."""
    transition = np.zeros((STATES, STATES))
    np.add.at(transition, (np.repeat(np.arange(STATES), ACTIONS), after.reshape(-1)), policy.reshape(-1))
    return np.linalg.solve(np.eye(STATES) - GAMMA * transition, np.sum(policy * reward, axis=1))


def best_value(reward: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The value of the best policy, by iteration."""
    value = np.zeros(STATES)
    for _ in range(400):
        value = np.max(reward + GAMMA * value[after], axis=1)
    return value


def softmax(x: np.ndarray) -> np.ndarray:
    """Of each row."""
    x = np.exp(x - x.max(axis=1, keepdims=True))
    return x / x.sum(axis=1, keepdims=True)


def improve(operator, model: Model, key) -> jax.Array:
    """What an operator makes of every state, as weights that add up to one."""
    states = jnp.arange(STATES)
    root = Root(  # pyright: ignore[reportCallIssue]
        prior_logits=model.logits, value=model.value, embedding=states
    )
    weights = operator(model, key, root, step).action_weights
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def measure(mdps: int) -> dict[str, np.ndarray]:
    """Returns gains and entropies `[errors, mdps, 2]` of each operator."""
    compiled = {name: jax.jit(functools.partial(improve, operator)) for name, operator in OPERATORS.items()}
    found = {name: np.zeros((len(ERRORS), mdps, 2)) for name in OPERATORS}
    for number in range(mdps):
        rng = np.random.default_rng(number)
        reward, logits = rng.normal(size=(2, STATES, ACTIONS))
        after = rng.integers(0, STATES, (STATES, ACTIONS))
        wrong_reward, wrong_value = rng.normal(size=(STATES, ACTIONS)), rng.normal(size=STATES)
        before, best = true_value(softmax(logits), reward, after), best_value(reward, after)
        for place, error in enumerate(ERRORS):
            believed = (reward + error * wrong_reward, after, before + error * wrong_value, logits)
            model = Model(*(jnp.asarray(x, None if x is after else jnp.float32) for x in believed))
            for name in OPERATORS:
                weights = np.asarray(compiled[name](model, jax.random.key(number)), np.float64)
                gained = (true_value(weights, reward, after) - before).mean() / (best - before).mean()
                spread = -np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=1).mean()
                found[name][place, number] = gained, spread
    return found


def draw(found: dict[str, np.ndarray], path: str) -> None:
    """Draws gain and entropy over the model's error."""
    from rosmo.report.style import panels

    figure, axes = panels(1, 2, width=5.2, height=4.2)
    for panel, (axis, title) in enumerate(zip(axes[0], ("true gain", "entropy in nats"), strict=True)):
        for number, (name, numbers) in enumerate(found.items()):
            style = {"color": f"C{number}", "linestyle": "--" if "mc" in name or name == "gumbel" else "-"}
            mean = numbers[..., panel].mean(axis=1)
            low, high = (
                mean + s * 1.96 * numbers[..., panel].std(axis=1) / numbers.shape[1] ** 0.5 for s in (-1, 1)
            )
            axis.plot(ERRORS, mean, marker="o", markersize=3, label=name, **style)
            axis.fill_between(ERRORS, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axis.set(xlabel="error of the model, in deviations of a reward", title=title, xscale="symlog")
        axis.set_xscale("symlog", linthresh=0.1)
        axis.set_xticks(ERRORS, [f"{error:g}" for error in ERRORS])
    axes[0][0].axhline(0, color="grey", linewidth=0.8)
    axes[0][1].axhline(np.log(ACTIONS), color="grey", linewidth=0.8)
    axes[0][1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    """Prints a table of the gains, one of the entropies, and draws both."""
    parser = argparse.ArgumentParser(description="Operators on models that are wrong")
    parser.add_argument("--mdps", type=int, default=200)
    parser.add_argument("--picture", default="docs/images/operators.png")
    args = parser.parse_args()
    found = measure(args.mdps)
    for panel, title in enumerate(("true gain", "entropy")):
        print(f"\n| {title} at an error of | " + " | ".join(f"{error:g}" for error in ERRORS) + " |")
        print("|---" * (len(ERRORS) + 1) + "|")
        for name, numbers in found.items():
            cells = (f"{mean:.2f}" for mean in numbers[..., panel].mean(axis=1))
            print(f"| `{name}` | " + " | ".join(cells) + " |")
    draw(found, args.picture)


if __name__ == "__main__":
    main()
