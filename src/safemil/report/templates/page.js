"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const $ = (id) => document.getElementById(id);

  // Light and dark: as the system says, until the button says otherwise.
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("safemil-theme"); } catch { return null; } };
  if (remembered()) root.dataset.theme = remembered();
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("safemil-theme", root.dataset.theme); } catch { /* a page without storage */ }
  });

  // Tables: a click on a header, or Enter on it, sorts by its column; once more turns the order round.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead button").forEach((button) => {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const number = button.dataset.kind === "number";
        const first = number && button.textContent !== "rank" ? "descending" : "ascending";
        const next = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")] || first;
        for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const value = (row) => row.cells[head.cellIndex].dataset.value;
        const compare = number
          ? (a, b) => Number(value(a)) - Number(value(b))
          : (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true });
        body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
      });
    });
  }

  const holder = $("data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const level = (risk) => Math.min(Math.floor(risk * data.levels), data.levels - 1);
  const element = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // A path whose parts have the colours of their risk, the riskiest on top.
  const trail = (points, risks) => {
    const pieces = Array.from({ length: data.levels }, () => "");
    points.forEach(([x, y], i) => {
      const own = level(risks[i]);
      const before = i && level(risks[i - 1]);
      if (i && before !== own) pieces[before] += `L${x} ${y}`;
      pieces[own] += `${i && before === own ? "L" : "M"}${x} ${y}`;
    });
    return pieces.flatMap((d, i) => (d ? [element("path", { class: `trail r${i}`, d })] : []));
  };

  const episodes = (data.episodes || []).map((each) => {
    const risk = Array.from(bytes(each.risk), (value) => value / 255);
    return { ...each, risk, at: (step) => risk[Math.floor(step / each.stride)] };
  });
  const places = (episode) => {
    const whole = new DataView(bytes(episode.path).buffer);
    const found = [];
    for (let i = 0; i < whole.byteLength; i += 4) {
      found.push([whole.getInt16(i, true) / data.fineness, whole.getInt16(i + 2, true) / data.fineness]);
    }
    return found;
  };
  const said = (episode, step) => {
    const last = Math.min(step + episode.stride, episode.steps) - 1;
    const name = episode.first + step;
    const steps = episode.stride > 1 ? `steps ${name}–${episode.first + last}` : `step ${name}`;
    return [steps, `ĉ ${episode.at(step).toFixed(2)}`];
  };

  if (episodes.length) explore();
  if (data.clips && data.clips.length) play(data.clips);

  function explore() {
    const table = $("episodes"), slider = $("step"), tip = $("tip"), line = $("detail-line"), map = $("detail-map");
    const rows = () => [...table.tBodies[0].rows];
    let chosen = null, cursor = null, here = null, where = null;

    const choose = (row) => {
      for (const other of rows()) {
        other.setAttribute("aria-selected", String(other === row));
        for (const each of other.querySelectorAll(".pick, .spark")) each.tabIndex = other === row ? 0 : -1;
      }
      chosen = episodes[row.dataset.number];
      slider.max = chosen.steps - 1;
      slider.step = chosen.stride;
      slider.value = chosen.stride * chosen.risk.indexOf(Math.max(...chosen.risk));
      drawLine();
      if (map) drawMap();
      show();
    };

    const drawLine = () => {
      const x = (i) => ((i + 0.5) * 600) / chosen.risk.length;
      const points = chosen.risk.map((risk, i) => [x(i).toFixed(1), (150 - 145 * risk).toFixed(1)]);
      const parts = [0, 0.5, 1].map((at) => element("path", { class: "half", d: `M0 ${150 - 145 * at}H600` }));
      cursor = element("path", { class: "cursor" });
      for (const [from, to] of chosen.costly || []) {
        const scale = 600 / chosen.steps;
        parts.push(element("rect", { class: "costly", x: from * scale, width: (to - from) * scale, y: 158, height: 8 }));
      }
      line.replaceChildren(...parts, ...trail(points, chosen.risk), cursor);
    };

    const drawMap = () => {
      map.replaceChildren();
      where = null;
      map.style.visibility = chosen.path ? "visible" : "hidden";
      if (!chosen.path) return;
      const walked = places(chosen);
      const half = data.half;
      const put = ([x, y]) => [((x + half) * 150) / half, ((half - y) * 150) / half];
      const parts = [];
      for (const [style, x, y, radius] of chosen.discs) {
        const [cx, cy] = put([x, y]);
        parts.push(element("circle", { class: style, cx, cy, r: (radius * 150) / half }));
      }
      for (const [x0, y0, x1, y1] of chosen.walls) {
        parts.push(element("path", { class: "wall", d: `M${put([x0, y0])}L${put([x1, y1])}` }));
      }
      const spots = walked.map((place) => put(place).map((each) => each.toFixed(1)));
      const risks = walked.map((_, i) => chosen.at(Math.min(i * chosen.every, chosen.steps - 1)));
      here = element("circle", { r: 6 });
      where = (step) => spots[Math.min(Math.round(step / chosen.every), spots.length - 1)];
      map.replaceChildren(...parts, ...trail(spots, risks), here);
    };

    const show = () => {
      const step = Number(slider.value);
      $("detail-title").textContent = `Episode ${chosen.name}`;
      const costly = (chosen.costly || []).some(([from, to]) => from <= step && step < to);
      const strong = document.createElement("b");
      const [steps, risk] = said(chosen, step);
      strong.textContent = risk;
      const truth = chosen.costly ? (costly ? ", true cost above 0" : ", true cost 0") : "";
      $("readout").replaceChildren(`${steps}: `, strong, truth);
      slider.setAttribute("aria-valuetext", `${steps}, ${risk}`);
      const x = ((Math.floor(step / chosen.stride) + 0.5) * 600) / chosen.risk.length;
      cursor.setAttribute("d", `M${x} 0V170`);
      if (map && where) {
        const [cx, cy] = where(step);
        here.setAttribute("class", `here r${level(chosen.at(step))}`);
        here.setAttribute("cx", cx);
        here.setAttribute("cy", cy);
      }
    };

    const stepAt = (event, box, episode) => {
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999);
      return Math.floor((share * episode.steps) / episode.stride) * episode.stride;
    };
    const tell = (episode, step, box) => {
      tip.textContent = said(episode, step).join(" · ");
      tip.hidden = false;
      const x = box.left + (box.width * (step + episode.stride / 2)) / episode.steps;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(x - tip.offsetWidth / 2, room))}px`;
      tip.style.top = `${Math.max(4, box.top - tip.offsetHeight - 6)}px`;
    };
    const hush = () => { tip.hidden = true; };

    slider.addEventListener("input", show);
    line.addEventListener("pointermove", (event) => {
      slider.value = stepAt(event, line.getBoundingClientRect(), chosen);
      show();
    });
    table.tBodies[0].addEventListener("click", (event) => choose(event.target.closest("tr")));
    table.addEventListener("pointermove", (event) => {
      const spark = event.target.closest(".spark");
      if (!spark) return hush();
      const episode = episodes[spark.closest("tr").dataset.number], box = spark.getBoundingClientRect();
      tell(episode, stepAt(event, box, episode), box);
    });
    table.addEventListener("pointerleave", hush);
    table.addEventListener("focusout", hush);

    // With the keyboard: up and down go through the rows, left and right through the steps of a timeline.
    const focused = () => Number(slider.value);
    table.addEventListener("focusin", (event) => {
      const spark = event.target.closest(".spark");
      if (spark) tell(chosen, focused(), spark.getBoundingClientRect());
    });
    table.tBodies[0].addEventListener("keydown", (event) => {
      const row = event.target.closest("tr"), spark = event.target.closest(".spark");
      const beside = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -25, PageDown: 25 }[event.key];
      if (beside) {
        choose(beside);
        beside.querySelector(spark ? ".spark" : ".pick").focus();
      } else if (spark && move) {
        slider.value = focused() + move * chosen.stride;
        show();
        tell(chosen, focused(), spark.getBoundingClientRect());
      } else return;
      event.preventDefault();
    });

    choose(rows()[0]);
  }

  function play(clips) {
    const slider = $("frame"), button = $("play");
    const frames = [...document.querySelectorAll(".frame")];
    const readouts = [...document.querySelectorAll(".clip-readout")];
    const last = Math.max(...clips.map((clip) => clip.frames)) - 1;
    let timer = null;
    slider.max = last;

    const show = () => clips.forEach((clip, i) => {
      const at = Math.min(Number(slider.value), clip.frames - 1);
      const rows = Math.ceil(clip.frames / clip.columns);
      const share = (part, all) => (all > 1 ? (100 * part) / (all - 1) : 0);
      frames[i].style.backgroundSize = `${100 * clip.columns}% ${100 * rows}%`;
      frames[i].style.backgroundPosition =
        `${share(at % clip.columns, clip.columns)}% ${share(Math.floor(at / clip.columns), rows)}%`;
      const risk = clip.risk ? `, ĉ ${clip.risk[at].toFixed(2)}` : "";
      readouts[i].textContent = `step ${clip.steps[at]}${risk}, cost so far ${clip.cost[at]}`;
    });
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "Play";
      button.setAttribute("aria-pressed", "false");
    };
    const start = () => {
      stop();
      button.textContent = "Pause";
      button.setAttribute("aria-pressed", "true");
      timer = setInterval(() => {
        slider.value = Number(slider.value) >= last ? 0 : Number(slider.value) + 1;
        show();
      }, 1000 / clips[0].rate);
    };
    button.addEventListener("click", () => (timer ? stop() : start()));
    slider.addEventListener("input", () => { stop(); show(); });
    show();

    // Clips begin by themselves when they come into view, unless motion is not wanted.
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { start(); seen.disconnect(); }
    });
    seen.observe(frames[0]);
  }
})();
