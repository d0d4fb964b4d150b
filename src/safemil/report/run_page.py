"""The page about a run: what went in, how training went, what was learned, what the policy does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from safemil.data import Trajectories, describe
from safemil.data.describing import Description
from safemil.report import cost_quality, episode_table, extreme_segments, figures, maps, policies
from safemil.report.episode_table import Known
from safemil.report.figures import Figure
from safemil.report.inputs import Material
from safemil.report.maps import Trail
from safemil.report.observations import BUTTON, CIRCLE, LIDARS, column_names
from safemil.report.policies import Map
from safemil.report.replay import NAVIGATION, known_paths
from safemil.tasks.circle import WALL

Doubles = npt.NDArray[np.float64]
ARENAS = 6  # recorded episodes drawn in arenas of their own
TOGETHER = 24  # recorded episodes drawn in one arena
LENGTH = 10  # steps of a segment, where the method has no length of its own


def context(material: Material, *, progress: bool = False) -> dict[str, Any]:
    """All that the template shows."""
    described = {name: describe(held) for name, held in _piles(material).items()}
    found: dict[str, Any] = {
        "name": material.name,
        "algorithm": material.run.algorithm,
        "task": material.task,
        "described": described,
        "learned_from": material.learned_from,
        "training": figures.training(material.run.metrics, material.config["settings"]),
        "facts": facts(material),
        "settings": material.config["settings"],
        "made": _made(material),
        "learned": None,
        "hindsight": None,
        "data": {},
    }
    if material.risk is not None:
        found["learned"], found["data"] = _learned(material, described["unlabeled"], progress)
        found["hindsight"] = _hindsight(material)
    found["policy"] = _policy(material, progress)
    found["data"]["clips"] = found["policy"]["clips"]
    return found


def _piles(material: Material) -> dict[str, Trajectories]:
    piles = {"nonpreferred": material.nonpreferred, "unlabeled": material.unlabeled}
    return {name: pile for name, pile in piles.items() if pile is not None}


def facts(material: Material) -> list[tuple[str, str]]:
    """The numbers at the head of the page: a value and what it is."""
    found = []
    if material.risk is not None:
        logs = _means(material.risk).mean()
        if material.nonpreferred_risk is not None:
            found.append(
                (f"{_means(material.nonpreferred_risk).mean():.2f}", "mean ĉ of non-preferred episodes")
            )
        found.append((f"{logs:.2f}", "mean ĉ of unlabeled episodes"))
        if material.true_costs is not None:
            area = cost_quality.auc(np.concatenate(material.risk), material.true_costs > 0)
            if area is not None:
                found.append((f"{area:.3f}", "AUC of ĉ against true costs, in hindsight"))
    for each in policies.scores(material)[:2]:
        found.append((f"{each.costs.value:.1f}", f"true cost of an episode of {each.name}"))
    return found


def _learned(
    material: Material, description: Description, progress: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    assert material.risk is not None
    held, risk = material.unlabeled, material.risk
    costs = None if material.true_costs is None else held.by_episode(material.true_costs)
    sums = None if costs is None else np.array([each.sum() for each in costs], np.float64)
    listed, left_out = episode_table.rows(held, risk, sums)
    known = known_paths(material.task, held, material.seeds, progress=progress)
    above = None if material.nonpreferred_risk is None else _means(material.nonpreferred_risk)
    shown = {
        "spread": figures.spread(_means(risk), above),
        "projection": figures.projection(held, np.concatenate(risk).astype(np.float64)),
        "heat": _heat(material),
        "maps": _maps(material, listed, known),
        "behaviours": policies.behaviours(material, progress=progress) if not any(known) else [],
        "rows": listed,
        "left_out": left_out,
        "segments": _segments(material, description),
        "placed": any(each is not None for each in known),
    }
    content = episode_table.content(listed, held, risk, costs, known)
    return shown, content | {"wall": WALL if material.task == CIRCLE else None}


def _means(risk: Sequence[npt.NDArray[np.float32]]) -> Doubles:
    return np.array([each.mean(dtype=np.float64) for each in risk])


def _heat(material: Material) -> list[Figure]:
    """Mean ĉ by place: in the arena where that can be told, else around the robot."""
    assert material.risk is not None
    task, risk = material.task, np.concatenate(material.risk).astype(np.float64)
    seen = material.unlabeled.observations
    if task == CIRCLE:
        says = (
            "Mean ĉ of all unlabeled steps by place, seen from above. The lines are the walls behind which a "
            "step costs; the learner was never told of them."
        )
        return [Figure("Where ĉ is high", maps.circle_heat(seen, risk, says), says)]
    if task not in NAVIGATION:
        return []
    kinds = ["hazard", "gremlin"] if task == BUTTON else ["hazard"]
    return [_around(str(task), kind, seen, risk) for kind in kinds if kind in LIDARS[str(task)]]


def _around(task: str, kind: str, seen: npt.NDArray[np.float32], risk: Doubles) -> Figure:
    says = (
        f"Mean ĉ of all unlabeled steps by where the nearest {kind} is, within 1 m of the robot, which looks "
        "up the page. Inside the dashed ring (0.2 m) "
    )
    says += "a step costs; the learner was never told." if kind == "hazard" else "robot and gremlin touch."
    return Figure(
        f"ĉ around the robot: the nearest {kind}", maps.around_heat(task, kind, seen, risk, says), says
    )


def _maps(material: Material, listed: Sequence[episode_table.Row], known: Sequence[Known]) -> list[Map]:
    """Recorded episodes from the riskiest to the least risky, over what stands in their arenas."""
    assert material.risk is not None
    task = str(material.task)
    usable = [row for row in listed if known[row.number] is not None]
    if not usable:
        return []
    wanted = TOGETHER if task == CIRCLE else ARENAS
    chosen = [usable[i] for i in np.unique(np.linspace(0, len(usable) - 1, wanted).round().astype(int))]
    found = [(row, *_known(known[row.number])) for row in chosen]
    half = maps.half_width([path for _, path, _ in found])
    if task == CIRCLE:
        trails = [Trail(path, material.risk[row.number]) for row, path, _ in found]
        title = f"{len(trails)} unlabeled episodes, from the riskiest to the least risky"
        return [Map(maps.arena(task, trails, (), half, title), title, "each step in the colour of its ĉ")]
    return [
        Map(
            maps.arena(task, [Trail(path, material.risk[row.number])], things, half, f"episode {row.name}"),
            f"episode {row.name}",
            f"rank {row.rank}, mean ĉ {row.risk:.2f}"
            + ("" if row.cost is None else f", true cost {row.cost:g}"),
        )
        for row, path, things in found
    ]


def _known(each: Known) -> tuple[Doubles, list[Any]]:
    assert each is not None
    return each


def _segments(material: Material, description: Description) -> list[tuple[str, list[dict[str, Any]]]]:
    assert material.risk is not None
    held, wanted = material.unlabeled, material.config["settings"].get("length")
    length = wanted if isinstance(wanted, int) else LENGTH
    names = column_names(material.task, held.observation_size, held.action_size)
    columns = [replace(each, name=name) for each, name in zip(description.columns, names, strict=True)]
    kinds = extreme_segments.extreme(held, material.risk, columns, length)
    titles = "The riskiest segments", "The least risky segments"
    return [
        (title, [_segment(each, held) for each in kind]) for title, kind in zip(titles, kinds, strict=True)
    ]


def _segment(each: extreme_segments.Segment, held: Trajectories) -> dict[str, Any]:
    first = int(held.first_steps[each.episode]) + each.first
    return {
        "episode": str(held.ids[each.episode]),
        "first": first,
        "last": first + each.steps - 1,
        "risk": each.risk,
        "unusual": each.unusual,
    }


def _hindsight(material: Material) -> dict[str, Any] | None:
    """How well ĉ finds the true costs, where they are known."""
    if material.true_costs is None or material.risk is None:
        return None
    risk, costly = np.concatenate(material.risk).astype(np.float64), material.true_costs > 0
    means = _means(material.risk)
    held = material.unlabeled
    sums = np.add.reduceat(material.true_costs.astype(np.float64), held.starts)
    return {
        "auc": cost_quality.auc(risk, costly),
        "correlation": cost_quality.rank_correlation(means, sums),
        "share": float(costly.mean()),
        "figures": [
            figures.calibrated(cost_quality.calibration(risk, costly)),
            figures.against_truth(means, sums),
        ],
    }


def _policy(material: Material, progress: bool) -> dict[str, Any]:
    found = policies.scores(material)
    players = policies.players(material, progress=progress)
    return {
        "scores": found,
        "figures": policies.intervals(found) if found else [],
        "maps": policies.drawn(material, players),
        "clips": policies.filmed(material, players, progress=progress),
        "chosen": policies.chosen(material),
    }


def _made(material: Material) -> list[tuple[str, str]]:
    """Where the page comes from."""
    manifest = material.manifest
    rows = [
        ("algorithm", material.run.algorithm),
        ("seeds", ", ".join(map(str, material.run.seeds))),
        ("training", f"{manifest['seconds']:.0f} s" if "seconds" in manifest else "not finished"),
    ]
    names = ("safemil", "git", "jax", "numpy", "python", "machine", "unlabeled_sha256", "nonpreferred_sha256")
    return rows + [(name, str(manifest[name])) for name in names if manifest.get(name)]
