"""Speed and cost of the learner's update for every preset, beside the machine's own large matrix product.

    ./dev python -m benchmarks.learner_step [--settings bsuite atari] [--presets rosmo mzu] [--roots 1 4 8]

Each round times a 4,096³ float32 product and then every preset; a share is taken within its round, and the
table holds medians over the rounds. FLOP are counted by walking the trace, loops multiplied out, in three
pieces (target encoder with its heads, operator, gradient of the online loss), for baselines all in the last;
XLA's own count of the compiled step takes a loop's body once, so it is low for searches. "Kept" targets are
those of a small data set that are computed once for all updates between two changes of the target network
(20,000 steps here, like catch); their share counts what is then still computed.

ROSMO is timed with each number of roots R in a window, B·R of them an update, as many as the windows of one
root. A trained observation is one that the representation h gets a gradient of: the roots, and each step of a
baseline's windows.
"""

import argparse
import functools
import os
import statistics
from typing import NamedTuple

import jax

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import equinox as eqx
from jax.sharding import AxisType

from rosmo import Codec, Learner, Trajectory, agents, latent_model
from rosmo.costs.flops import count_flops
from rosmo.costs.speed import made_up_steps, product_rate, update_rate
from rosmo.data import window_sampler

_NAMES = [name for name in agents.names() if name not in ("combo", "mopo", "morel")]  # those have worlds

BASELINES = ("bc", "cql", "crr")  # with td_steps of their own, and no targets to keep


class Setting(NamedTuple):
    """A network, data of the right shape, and how to train on it."""

    model: functools.partial
    batch_size: int
    td_steps: int
    simulations: int
    updates_per_call: int
    layouts: tuple[int, ...]
    caches: tuple[bool, ...]


def settings() -> dict[str, Setting]:
    cores = len(jax.devices())
    bsuite = functools.partial(latent_model, observation_shape=(10, 5), num_actions=3)
    atari = functools.partial(
        latent_model, network="resnet", observation_shape=(84, 84, 4), num_actions=6, value_codec=Codec(601)
    )
    minatar = functools.partial(
        latent_model,
        network="conv",
        observation_shape=(10, 10, 4),
        num_actions=4,
        channels=(16,),
        representation=(256, 128),
        dynamics=(256,),
        prediction=(128,),
    )
    return {
        "bsuite": Setting(bsuite, 128, 3, 4, 1_000, (1, cores), (False, True)),
        "minatar": Setting(minatar, 64, 5, 4, 20, (1,), (False,)),
        "atari": Setting(atari, 8, 5, 20, 1, (1,), (False,)),
    }


def make_agent(setting: Setting, preset: str, roots: int = 1):
    if preset in BASELINES:
        return agents.get(preset)(setting.model)
    extra = {"num_simulations": setting.simulations} if preset.startswith("mzu") else {}
    return agents.get(preset)(setting.model, td_steps=setting.td_steps, roots=roots, **extra)


def fake_data(setting: Setting) -> Trajectory:
    shape, actions = (setting.model.keywords[name] for name in ("observation_shape", "num_actions"))
    return made_up_steps(20_000 if len(shape) == 2 else 200, shape, actions)


def count_pieces(agent, batch: Trajectory) -> dict[str, int]:
    """FLOP of one update, by piece."""
    model = agent.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(0), len(batch.action))
    if not isinstance(agent, agents.LatentAgent):
        gradient = eqx.filter_grad(agent.loss, has_aux=True)
        whole = count_flops(lambda m, t: gradient(m, t, batch, keys), model, model)
        return {"target encoder": 0, "operator": 0, "online gradient": whole}
    step_targets = jax.vmap(agent.step_targets, in_axes=(None, 0, 0))
    targets = jax.eval_shape(step_targets, model, batch, keys)
    flat = batch.observation.reshape(-1, *batch.observation.shape[2:])
    all_targets = count_flops(step_targets, model, batch, keys)
    encoder = count_flops(lambda m, o: m.root(m.encode(o)), model, flat)
    online = count_flops(
        lambda m, t: eqx.filter_grad(agent.loss_from_targets, has_aux=True)(m, batch, t, keys), model, targets
    )
    return {"target encoder": encoder, "operator": all_targets - encoder, "online gradient": online}


class Subject:
    """One preset on one layout, compiled, that can be timed."""

    def __init__(self, setting: Setting, preset: str, roots: int, devices: int, cache: bool):
        agent = make_agent(setting, preset, roots)
        windows, num_actions = setting.batch_size // roots, setting.model.keywords["num_actions"]
        source = window_sampler(fake_data(setting), window=agent.window, num_actions=num_actions)
        mesh = jax.make_mesh(
            (devices,), ("data",), devices=jax.devices()[:devices], axis_types=(AxisType.Auto,)
        )
        self.name, self.devices, self.updates = preset, devices, setting.updates_per_call
        self.windows = f"{windows} × {roots}" if isinstance(agent, agents.LatentAgent) else str(windows)
        self.trained = windows * (roots if isinstance(agent, agents.LatentAgent) else agent.positions)
        self.targets = "kept" if cache else "fresh"
        self.learner = Learner(agent, batch_size=windows, mesh=mesh, cache_targets=cache)
        self.source = self.learner.place(source)
        self.state = self.learner.init(jax.random.key(0))
        # XLA counts the body of the loop over updates once: one update.
        compiled = self.learner.lower_many(self.state, self.source, self.updates).compile()
        self.compiled_flops = dict(compiled.cost_analysis() or {})["flops"] * devices
        self.temporaries = compiled.memory_analysis().temp_size_in_bytes  # pyright: ignore
        batch = jax.vmap(source.sample)(jax.random.split(jax.random.key(0), windows))
        self.pieces = count_pieces(agent, batch)
        if cache:  # the targets of all steps, once in as many updates as the target network stands still
            judged = count_flops(agent.judge, agent.init(jax.random.key(0)), source.steps, jax.random.key(0))
            per_update = judged // self.learner.target_update_interval
            self.pieces |= {"target encoder": 0, "operator": per_update}
        self.rates, self.shares = [], []
        self.run()

    def run(self) -> float:
        """Returns updates per second."""
        self.state, rate = update_rate(self.learner, self.state, self.source, self.updates)
        return rate


def measure(name: str, setting: Setting, presets: list[str], roots: list[int], rounds: int) -> None:
    """Prints the table of one setting."""
    num_actions = setting.model.keywords["num_actions"]
    subjects = [
        Subject(setting, preset, count, devices, cache)
        for preset in presets
        for count in (roots if preset == "rosmo" else [1])
        for devices in setting.layouts
        for cache in setting.caches
        if not (cache and preset in BASELINES)
    ]
    products = []
    for _ in range(rounds):
        products.append(product_rate())
        for subject in subjects:
            subject.rates.append(subject.run())
            subject.shares.append(subject.rates[-1] * sum(subject.pieces.values()) / products[-1])
    print(
        f"\n## {name}: batch {setting.batch_size}, {num_actions} actions, {setting.updates_per_call} a call\n"
    )
    print(f"Large product: {statistics.median(products) / 1e9:.0f} GFLOP/s. Medians of {rounds} rounds.\n")
    columns = [
        "preset",
        "windows × roots",
        "devices",
        "targets",
        "updates/s",
        "share of product",
        "trained observations/s",
        "MFLOP of each",
        "MFLOP/update",
        *subjects[0].pieces,
    ]
    print("| " + " | ".join([*columns, "XLA's MFLOP", "temporaries/device, MB"]) + " |")
    print("|---" * (len(columns) + 2) + "|")
    for s in subjects:
        pieces = [f"{flops / 1e6:,.0f}" for flops in (sum(s.pieces.values()), *s.pieces.values())]
        rate, share = statistics.median(s.rates), statistics.median(s.shares)
        each = sum(s.pieces.values()) / s.trained / 1e6
        cells = [s.name, s.windows, str(s.devices), s.targets, f"{rate:,.1f}", f"{share:.1%}"]
        cells += [f"{rate * s.trained:,.0f}", f"{each:,.2f}", *pieces]
        cells += [f"{s.compiled_flops / 1e6:,.0f}", f"{s.temporaries / 1e6:,.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="+", choices=list(settings()), default=list(settings()))
    parser.add_argument("--roots", nargs="+", type=int, default=[1, 4, 8], help="in a window of ROSMO's")
    parser.add_argument("--presets", nargs="+", choices=_NAMES, default=_NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for name in args.settings:
        measure(name, settings()[name], args.presets, args.roots, args.rounds)


if __name__ == "__main__":
    main()
