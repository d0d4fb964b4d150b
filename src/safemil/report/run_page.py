"""The page about a run: its data, its training, what it learned and what its policy does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from safemil import stats
from safemil.arrays import Doubles, Floats, Ints
from safemil.data import Trajectories, describe
from safemil.data.describing import Description
from safemil.labels import Labels, boundary_share, episode_scores, propose
from safemil.report import (
    cost_quality,
    decisions,
    episode_table,
    extreme_segments,
    figures,
    maps,
    moments,
    policies,
    wording,
)
from safemil.report.figures import Figure
from safemil.report.inputs import Material
from safemil.report.maps import Trail
from safemil.report.policies import Map
from safemil.report.replay import Route, known_routes
from safemil.scoring import rank
from safemil.worlds import Nearby

ARENAS = 6  # recorded episodes drawn in arenas of their own
TOGETHER = 24  # recorded episodes drawn in one arena
LEADS = 0.2  # of the largest share: a second column with less is not drawn
LENGTH = 10  # steps of a segment, where the algorithm has no length of its own


def context(material: Material, *, progress: bool = False) -> dict[str, Any]:
    """Content of the template."""
    evidence, reading = material.run.evidence, material.run.reading
    names = wording.nouns(reading.columns.episode if reading else None)
    described = {name: describe(held) for name, held in _piles(material).items()}
    policy = _policy(material, progress)
    found: dict[str, Any] = {
        "name": material.name,
        "names": names,
        "title": _title(material, names),
        "algorithm": material.run.algorithm,
        "task": material.task,
        "evidence": evidence,
        "verdict": None if evidence is None else wording.verdict(evidence, names),
        "advice": None if evidence is None else wording.GRADES[evidence.grade],
        "leaks": [] if evidence is None else wording.warnings(evidence),
        "in_task": policies.in_words(material),
        "described": described,
        "learned_from": material.learned_from,
        "training": figures.training(material.run.metrics, material.config["settings"]),
        "facts": facts(material, names),
        "settings": material.config["settings"],
        "made": _made(material),
        "policy": policy,
        "first": None,
        "learned": None,
        "why": None,
        "decisions": None,
        "hindsight": _hindsight(material),
        "glossary": wording.glossary(names, hindsight=material.true_costs is not None),
        "data": {"clips": policy["clips"]},
    }
    if material.risk is not None:
        learned = _learned(material, described["unlabeled"], names, progress)
        found |= {name: learned[name] for name in ("learned", "why", "decisions", "first")}
        found["data"] |= learned["data"]
    return found


def _piles(material: Material) -> dict[str, Trajectories]:
    piles = {"nonpreferred": material.nonpreferred, "unlabeled": material.unlabeled}
    return {name: pile for name, pile in piles.items() if pile is not None}


def _title(material: Material, names: wording.Nouns) -> str:
    """Name the page by what is in it."""
    logs = wording.counted(len(material.unlabeled), names.one, names.many)
    if material.nonpreferred is None:
        return logs
    return f"{logs} and {wording.counted(len(material.nonpreferred), 'incident', 'incidents')}"


def facts(material: Material, names: wording.Nouns) -> list[wording.Fact]:
    """Three numbers at the head of the page."""
    evidence = material.run.evidence
    found = [] if evidence is None else wording.facts(evidence, names)
    scored = [
        wording.Fact(f"{each.costs.value:.1f}", f"true cost of an episode of {each.name} in the task")
        for each in policies.scores(material)[:2]
    ]
    if evidence is None and material.risk is not None:
        mean = float(_means(material.risk).mean())
        found = [
            wording.Fact(f"{mean:.2f}", f"mean risk of a step of the {names.many} that nobody has judged")
        ]
    return found[: 3 - min(len(scored), 1)] + scored[:1] if found else scored


def _learned(
    material: Material, description: Description, names: wording.Nouns, progress: bool
) -> dict[str, Any]:
    """Ranked episodes, reasons, decisions and maps, and the data of the page's script."""
    assert material.risk is not None
    held, risk, evidence = material.unlabeled, material.risk, material.run.evidence
    costs = None if material.true_costs is None else held.by_episode(material.true_costs)
    sums = None if costs is None else np.array([each.sum() for each in costs], np.float64)
    kept = max(1, len(held) // 2 if evidence is None else min(evidence.kept, len(held)))
    order = np.asarray(rank(risk), np.int64)
    length = _length(material)
    moment = moments.find(
        material.run, held, risk, order, kept, length, _column_names(material), progress=progress
    )
    proposed = _proposed(material, kept)
    examples = [kind.episode for kind in moment.kinds]
    listed, left_out = episode_table.rows(held, risk, sums, [*proposed, *examples])
    known = known_routes(material.task, held, material.seeds, progress=progress)
    above = None if material.nonpreferred_risk is None else _means(material.nonpreferred_risk)
    detailed = list(dict.fromkeys([*order[: moments.DETAILED].tolist(), *proposed, *examples]))
    against = decisions.compare(material.run, held, risk, moment.good, detailed)
    data = episode_table.content(listed, held, risk, costs, known)
    place = {row.number: i for i, row in enumerate(listed)}
    differs = {str(n): each for n, each in zip(against.episodes, against.otherwise, strict=True)}
    data |= {
        "one": names.one,
        "numbers": [row.number for row in listed],
        "length": length,
        "columns": moments.content(material.run, held, risk, moment, detailed, progress=progress),
        "differs": {n: episode_table.runs_of(each) for n, each in differs.items()},
        "review": _review(material, [place[number] for number in proposed]),
    }
    heat = _heat(material)
    maps_found = _maps(material, listed, known)
    shown = {
        "spread": figures.spread(_means(risk), above),
        "projection": figures.projection(held, np.concatenate(risk).astype(np.float64)),
        "heat": heat,
        "maps": maps_found,
        "behaviours": policies.behaviours(material, progress=progress) if not any(known) else [],
        "rows": listed,
        "left_out": left_out,
        "detailed": len(detailed),
        "proposed": [listed[place[number]] for number in proposed],
        "segments": _segments(material, description),
        "placed": any(each is not None for each in known),
        "legend": "" if material.scene is None else maps.legend(material.scene.markers(0)),
    }
    why = {
        "bars": figures.bars(list(moment.found.overall().items())[: moments.SHOWN]),
        "kinds": [(kind, place[kind.episode]) for kind in moment.kinds],
        "moments": len(moment.explained),
        "rounds": moments.rounds_for(len(moment.columns)),
    }
    same_arena = material.scene is not None and material.scene.same_arena
    first = heat[0] if heat and same_arena else _moment(material, moment, order, length, names)
    return {"learned": shown, "why": why, "decisions": against, "first": first, "data": data}


def _length(material: Material) -> int:
    wanted = material.config["settings"].get("length")
    return wanted if isinstance(wanted, int) else LENGTH


def _column_names(material: Material) -> list[str]:
    """Names of the columns: the log's, else those of the task, else numbers."""
    if material.scene is not None and material.unlabeled.observation_names is None:
        return [*material.scene.column_names()]
    return material.unlabeled.column_names


def _proposed(material: Material, kept: int) -> list[int]:
    """Numbers of the episodes to look at next."""
    assert material.risk is not None
    evidence, held = material.run.evidence, material.unlabeled
    scores = episode_scores(material.risk, "mean" if evidence is None else evidence.aggregate)
    share = None if evidence is None or evidence.share is None else evidence.share.value
    return propose(scores, boundary_share(share, kept, len(held))).tolist()


def _review(material: Material, proposed: Sequence[int]) -> dict[str, Any]:
    """What the page needs to keep labels and to write them."""
    earlier = material.run.labels
    if earlier is not None and earlier.unlabeled_sha256 != material.judged_sha256:
        earlier = None
    return Labels(material.judged_sha256, earlier.labels if earlier else []).to_json() | {
        "proposed": [*proposed]
    }


def _moment(
    material: Material, moment: moments.Moments, order: Ints, length: int, names: wording.Nouns
) -> Figure:
    """Picture of the riskiest moment, with the two columns that drive it."""
    assert material.risk is not None
    held = material.unlabeled
    number = int(moment.explained[moment.found.risk.argmax()])
    every = -(-int(held.lengths[number]) // moments.POINTS)
    raw = np.maximum.reduceat(material.risk[number], np.arange(0, held.lengths[number], every))
    smooth = moments.smoothed(material.risk[number], length)[::every]
    start, peak = int(held.starts[number]), int(moment.peaks[number])
    values = moments.values_at(held, np.arange(start, start + held.lengths[number], every)).astype(np.float64)
    shares = moment.found.shares[moment.found.risk.argmax()]
    drive = [i for i in np.argsort(-shares, kind="stable")[:2] if shares[i] >= LEADS * shares.max()]
    good = moment.good
    panels = [
        figures.Panel(moment.columns[i], values[:, i], float(good.low[i]), float(good.high[i])) for i in drive
    ]
    first = int(held.first_steps[number])
    says = (
        f"The riskiest moment of {wording.called(str(held.ids[number]), names)}, at step {first + peak}, "
        f"and what drives it. Thin line: every step; coloured: the mean of {length} steps; shaded: the "
        f"middle 90% of good {names.many}."
    )
    steps = first, first + int(held.lengths[number]) - 1
    picture = figures.moment(raw.astype(np.float64), smooth, peak // every, panels, steps, says)
    return Figure("The riskiest moment", picture, says)


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
    says = f"Mean risk of all unlabeled steps by place, seen from above. {maps.legend(markers)}"
    return [Figure("Where the risk is high", maps.place_heat(places, risk, markers, says), says)]


def _around(nearby: Nearby, seen: Floats, risk: Doubles) -> Figure:
    says = (
        f"Mean risk of all unlabeled steps by where the nearest {nearby.kind} is, within "
        f"{maps.AROUND * nearby.radius:g} m of the robot, which faces up the page. Inside the dashed ring "
        f"({nearby.radius:g} m) {nearby.inside}; the learner was never told."
    )
    return Figure(
        f"Risk around the robot: the nearest {nearby.kind}", maps.around_heat(nearby, seen, risk, says), says
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
        return [Map(maps.arena(trails, markers, half, title), title, "each step in the colour of its risk")]
    return [
        Map(
            maps.arena([Trail(path, material.risk[row.number])], things, half, f"episode {row.name}"),
            f"episode {row.name}",
            f"rank {row.rank}, mean risk {row.risk:.2f}"
            + ("" if row.cost is None else f", true cost {row.cost:g}"),
        )
        for row, (path, things) in found
    ]


def _segments(material: Material, description: Description) -> list[tuple[str, list[dict[str, Any]]]]:
    assert material.risk is not None
    held, names = material.unlabeled, _column_names(material)
    columns = [replace(each, name=name) for each, name in zip(description.columns, names, strict=True)]
    kinds = extreme_segments.extreme(held, material.risk, columns, _length(material))
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
