"""Fitted Q evaluation here and in d3rlpy on the same data, both held against exact values.

    pip install torch==2.13.0 d3rlpy
    python -m benchmarks.fqe_against_d3rlpy [--seeds 3] [--updates 4000]

The data is of a random policy on a random MDP of 8 states and 3 actions with γ = 0.8, in episodes of up to 12
steps, of which some terminate and the others are cut off; observations are one-hot. The policy that is
evaluated takes the best action of the random policy's Q in every state. Both learn with two hidden layers of
64 units, batches of 128 transitions and a target network that is renewed every 50 updates; d3rlpy's by Adam
at 1e-3 on squared errors, ours as `rosmo select` does.
"""

import argparse
import functools

import jax
import numpy as np

from rosmo import Learner, adamw, latent_model
from rosmo.agents import FQE
from rosmo.evaluate import Judge
from rosmo.types import Trajectory

STATES, ACTIONS, GAMMA, LENGTH, EPISODES = 8, 3, 0.8, 12, 3_000


def problem():
    """Rewards, next states, where episodes end, and the policy that is evaluated, one-hot."""
    rng = np.random.default_rng(0)
    reward, after = rng.normal(size=(STATES, ACTIONS)), rng.integers(0, STATES, (STATES, ACTIONS))
    ends = rng.random((STATES, ACTIONS)) < 0.1
    uniform = np.full((STATES, ACTIONS), 1 / ACTIONS)
    best = np.argmax(exact(reward, after, ends, uniform), axis=1)
    return reward, after, ends, np.eye(ACTIONS)[best]


def exact(reward, after, ends, policy):
    """Q of a policy, by iteration."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(400):
        q = reward + GAMMA * np.where(ends, 0, np.sum(policy * q, axis=1)[after])
    return q


def record(reward, after, ends) -> Trajectory:
    """Episodes of random actions."""
    rng, rows = np.random.default_rng(1), []
    for _ in range(EPISODES):
        state, over = rng.integers(STATES), False
        for time in range(LENGTH):
            action = rng.integers(ACTIONS)
            over = bool(ends[state, action])
            rows.append((state, action, reward[state, action], not over, time == 0, False, False))
            state = after[state, action]
            if over:
                break
        rows.append((state, 0, 0.0, 0.0, False, True, over))
    state, action, earned, discount, first, last, terminal = map(np.array, zip(*rows, strict=True))
    floats = {"reward": earned.astype(np.float32), "discount": discount.astype(np.float32)}
    flags = {"is_first": first, "is_last": last, "is_terminal": terminal}
    shown = np.eye(STATES, dtype=np.float32)[state]
    return Trajectory(observation=shown, action=action.astype(np.int32), **floats, **flags)


def ours(steps: Trajectory, policy: np.ndarray, seed: int, updates: int) -> np.ndarray:
    """Q of all states, by this library."""
    sizes = {"representation": (64,), "dynamics": (64,), "prediction": (8,), "discount": GAMMA}
    model = functools.partial(latent_model, observation_shape=(STATES,), num_actions=ACTIONS, **sizes)

    def learner(agent):
        size = 128 // agent.positions if isinstance(agent, FQE) else 128
        return Learner(agent, adamw(warmup_steps=100), batch_size=size, target_update_interval=50)

    judge = Judge(
        steps, model=model, num_actions=ACTIONS, learner=learner, updates=updates, clone_updates=1, seed=seed
    )
    fitted = judge.evaluate(policy[np.argmax(steps.observation, axis=1)])
    return np.asarray(FQE(model).qvalues(fitted, jax.numpy.eye(STATES)))


def theirs(steps: Trajectory, policy: np.ndarray, seed: int, updates: int) -> np.ndarray:
    """Q of all states, by d3rlpy."""
    import d3rlpy  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from d3rlpy.models.encoders import VectorEncoderFactory  # pyright: ignore[reportMissingImports]

    d3rlpy.seed(seed)
    kept = ~(steps.is_last & steps.is_terminal)  # of a cut-off episode it takes the last observation too
    ended = np.roll(steps.is_last & steps.is_terminal, -1)
    data = d3rlpy.dataset.MDPDataset(
        steps.observation[kept],
        steps.action[kept, None],
        steps.reward[kept, None],
        ended[kept].astype(np.float32),
        timeouts=(steps.is_last & ~steps.is_terminal)[kept].astype(np.float32),
        action_size=ACTIONS,
    )
    chosen = torch.as_tensor(np.argmax(policy, axis=1))
    agent = d3rlpy.algos.DQNConfig().create(device="cpu:0")
    agent.build_with_dataset(data)
    agent.impl.predict_best_action = lambda shown: chosen[torch.argmax(shown, dim=1)]
    config = d3rlpy.ope.FQEConfig(
        learning_rate=1e-3,
        batch_size=128,
        gamma=GAMMA,
        target_update_interval=50,
        encoder_factory=VectorEncoderFactory([64, 64]),
    )
    fqe = d3rlpy.ope.DiscreteFQE(algo=agent, config=config, device="cpu:0")
    quiet = d3rlpy.logging.NoopAdapterFactory()
    fqe.fit(data, n_steps=updates, n_steps_per_epoch=updates, logger_adapter=quiet, show_progress=False)
    states, actions = np.divmod(np.arange(STATES * ACTIONS), ACTIONS)
    shown = np.eye(STATES, dtype=np.float32)[states]
    return fqe.predict_value(shown, actions[:, None]).reshape(STATES, ACTIONS)


def main() -> None:
    """Prints the errors of both, and how far the seeds of each are apart."""
    parser = argparse.ArgumentParser(description="Fitted Q evaluation here and in d3rlpy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4_000)
    args = parser.parse_args()
    reward, after, ends, policy = problem()
    steps, truth = record(reward, after, ends), exact(reward, after, ends, policy)
    print(f"exact Q from {truth.min():.2f} to {truth.max():.2f}")
    found = {}
    for name, learn in (("rosmo", ours), ("d3rlpy", theirs)):
        found[name] = np.array([learn(steps, policy, seed, args.updates) for seed in range(args.seeds)])
        error, spread = np.abs(found[name] - truth), np.ptp(found[name], axis=0)
        print(f"{name:<8} error: mean {error.mean():.4f}, largest {error.max():.4f}; largest spread of the "
              f"seeds {spread.max():.4f}")  # fmt: skip
    apart = np.abs(found["rosmo"].mean(axis=0) - found["d3rlpy"].mean(axis=0))
    print(f"the means of both are {apart.mean():.4f} apart, at most {apart.max():.4f}")


if __name__ == "__main__":
    main()
