"""The page about a run: its data, its training, what it learned and what its policy does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from safemil import stats
from safemil.arrays import Doubles, Floats
from safemil.data import Trajectories, describe
from safemil.data.describing import Description
from safemil.report import cost_quality, episode_table, extreme_segments, figures, maps, policies
from safemil.report.figures import Figure
from safemil.report.inputs import Material
from safemil.report.maps import Trail
from safemil.report.policies import Map
from safemil.report.replay import Route, known_routes
from safemil.worlds import Nearby

ARENAS = 6  # recorded episodes drawn in arenas of their own
TOGETHER = 24  # recorded episodes drawn in one arena
LENGTH = 10  # steps of a segment, where the algorithm has no length of its own


def context(material: Material, *, progress: bool = False) -> dict[str, Any]:
    """Content of the template."""
    evidence = material.run.evidence
    described = {name: describe(held) for name, held in _piles(material).items()}
    found: dict[str, Any] = {
        "name": material.name,
        "algorithm": material.run.algorithm,
        "task": material.task,
        "no_evidence": evidence.lines()[:2] if evidence is not None and evidence.grade == "none" else [],
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
    """Numbers at the head of the page: a value and its meaning."""
    found = []
    if material.risk is not None:
        logs = _means(material.risk).mean()
        if material.nonpreferred_risk is not None:
            found.append(
                (f"{_means(material.nonpreferred_risk).mean():.2f}", "mean ĉ of non-preferred episodes")
            )
        found.append((f"{logs:.2f}", "mean ĉ of unlabeled episodes"))
        if material.true_costs is not None:
            area = stats.auc(np.concatenate(material.risk), material.true_costs > 0)
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
    known = known_routes(material.task, held, material.seeds, progress=progress)
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
        "legend": "" if material.scene is None else maps.legend(material.scene.markers(0)),
    }
    return shown, episode_table.content(listed, held, risk, costs, known)


def _means(risk: Sequence[Floats]) -> Doubles:
    return np.array([each.mean(dtype=np.float64) for each in risk])


def _heat(material: Material) -> list[Figure]:
    """Mean ĉ by place: in the arena if the observations tell, else around the robot."""
    assert material.risk is not None
    risk, seen = np.concatenate(material.risk).astype(np.float64), material.unlabeled.observations
    if material.scene is None:
        return []
    places = material.scene.positions(seen)
    if places is None or not material.scene.same_arena:
        return [_around(nearby, seen, risk) for nearby in material.scene.nearby]
    markers = material.scene.markers(0)
    says = f"Mean ĉ of all unlabeled steps by place, seen from above. {maps.legend(markers)}"
    return [Figure("Where ĉ is high", maps.place_heat(places, risk, markers, says), says)]


def _around(nearby: Nearby, seen: Floats, risk: Doubles) -> Figure:
    says = (
        f"Mean ĉ of all unlabeled steps by where the nearest {nearby.kind} is, within "
        f"{maps.AROUND * nearby.radius:g} m of the robot, which faces up the page. Inside the dashed ring "
        f"({nearby.radius:g} m) {nearby.inside}; the learner was never told."
    )
    return Figure(
        f"ĉ around the robot: the nearest {nearby.kind}", maps.around_heat(nearby, seen, risk, says), says
    )


def _maps(
    material: Material, listed: Sequence[episode_table.Row], known: Sequence[Route | None]
) -> list[Map]:
    """Recorded episodes in their arenas, from the riskiest to the least risky."""
    assert material.risk is not None
    together = material.scene is not None and material.scene.same_arena
    usable = [row for row in listed if known[row.number] is not None]
    if not usable:
        return []
    wanted = TOGETHER if together else ARENAS
    chosen = [usable[i] for i in np.unique(np.linspace(0, len(usable) - 1, wanted).round().astype(int))]
    found = [(row, route) for row in chosen if (route := known[row.number]) is not None]
    markers = found[0][1].markers
    half = maps.half_width([route.path for _, route in found], markers)
    if together:
        trails = [Trail(route.path, material.risk[row.number]) for row, route in found]
        title = f"{len(trails)} unlabeled episodes, from the riskiest to the least risky"
        return [Map(maps.arena(trails, markers, half, title), title, "each step in the colour of its ĉ")]
    return [
        Map(
            maps.arena([Trail(path, material.risk[row.number])], things, half, f"episode {row.name}"),
            f"episode {row.name}",
            f"rank {row.rank}, mean ĉ {row.risk:.2f}"
            + ("" if row.cost is None else f", true cost {row.cost:g}"),
        )
        for row, (path, things) in found
    ]


def _segments(material: Material, description: Description) -> list[tuple[str, list[dict[str, Any]]]]:
    assert material.risk is not None
    held, wanted = material.unlabeled, material.config["settings"].get("length")
    length = wanted if isinstance(wanted, int) else LENGTH
    columns = list(description.columns)
    if material.scene is not None and held.observation_names is None:
        names = material.scene.column_names()
        columns = [replace(each, name=name) for each, name in zip(columns, names, strict=True)]
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
    """Quality of ĉ, where the true costs are known."""
    if material.true_costs is None or material.risk is None:
        return None
    risk, costly = np.concatenate(material.risk).astype(np.float64), material.true_costs > 0
    means = _means(material.risk)
    held = material.unlabeled
    sums = np.add.reduceat(material.true_costs.astype(np.float64), held.starts)
    return {
        "auc": stats.auc(risk, costly),
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
    """Versions and hashes behind the page."""
    manifest = material.manifest
    rows = [
        ("algorithm", material.run.algorithm),
        ("seeds", ", ".join(map(str, material.run.seeds))),
        ("training", f"{manifest['seconds']:.0f} s" if "seconds" in manifest else "not finished"),
    ]
    names = ("safemil", "git", "jax", "numpy", "python", "machine", "unlabeled_sha256", "nonpreferred_sha256")
    return rows + [(name, str(manifest[name])) for name in names if manifest.get(name)]
