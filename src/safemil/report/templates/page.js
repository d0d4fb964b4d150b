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

  // Terms: their meaning on hover and focus; without a script the link leads to the glossary.
  const tip = $("tip");
  const hush = () => { tip.hidden = true; tip.classList.remove("wide"); };
  for (const link of document.querySelectorAll("a.term, a.chip-grade")) {
    const meaning = document.querySelector(`${link.getAttribute("href")} dd`);
    if (!meaning) continue;
    const tell = () => {
      const box = link.getBoundingClientRect();
      tip.textContent = meaning.textContent;
      tip.classList.add("wide");
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(box.left, room))}px`;
      const above = box.top - tip.offsetHeight - 6;
      tip.style.top = `${above > 4 ? above : box.bottom + 6}px`;
    };
    link.setAttribute("aria-describedby", "tip");
    for (const event of ["pointerenter", "focus"]) link.addEventListener(event, tell);
    for (const event of ["pointerleave", "blur"]) link.addEventListener(event, hush);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

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

  const smoothed = (values, width) => {
    const before = Math.floor((width - 1) / 2), after = Math.floor(width / 2);
    return values.map((_, i) => {
      const part = values.slice(Math.max(0, i - before), i + after + 1);
      return part.reduce((sum, each) => sum + each, 0) / part.length;
    });
  };
  // Where an episode opens: at the middle one of its highest places.
  const telling = (values) => {
    const most = Math.max(...values) - 0.01;
    const high = values.flatMap((value, i) => (value >= most ? [i] : []));
    return high[Math.floor(high.length / 2)];
  };
  const episodes = (data.episodes || []).map((each, i) => {
    const risk = Array.from(bytes(each.risk), (value) => value / 255);
    const smooth = smoothed(risk, Math.ceil(data.length / each.stride));
    const number = data.numbers[i];
    const details = data.columns.details[number];
    return {
      ...each, risk, smooth, details, differs: data.differs[number] || [],
      at: (step) => risk[Math.floor(step / each.stride)],
      smoothAt: (step) => smooth[Math.floor(step / each.stride)],
    };
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
    return [steps, `risk ${episode.at(step).toFixed(2)}`];
  };

  if (episodes.length) explore();
  if (data.clips && data.clips.length) play(data.clips);

  function explore() {
    const table = $("episodes"), slider = $("step"), line = $("detail-line"), map = $("detail-map");
    const rows = () => [...table.tBodies[0].rows];
    const HEIGHT = 192;
    const called = (name) => (/^\d+$/.test(name) ? `${data.one} ${name}` : name);
    let chosen = null, cursor = null, here = null, where = null, momentMark = null;

    const choose = (row) => {
      for (const other of rows()) {
        other.setAttribute("aria-selected", String(other === row));
        for (const each of other.querySelectorAll(".pick, .spark")) each.tabIndex = other === row ? 0 : -1;
      }
      chosen = episodes[row.dataset.number];
      slider.max = chosen.steps - 1;
      slider.step = chosen.stride;
      slider.value = chosen.stride * telling(chosen.smooth);
      drawLine();
      if (map) drawMap();
      show();
      showLabel();
    };

    const drawLine = () => {
      const x = (i) => ((i + 0.5) * 600) / chosen.risk.length;
      const points = (values) => values.map((risk, i) => [x(i).toFixed(1), (150 - 145 * risk).toFixed(1)]);
      const parts = [0, 0.5, 1].map((at) => element("path", { class: "half", d: `M0 ${150 - 145 * at}H600` }));
      parts.push(element("path", { class: "raw", d: `M${points(chosen.risk).map((at) => at.join(" ")).join("L")}` }));
      const scale = 600 / chosen.steps;
      const strip = (runs, style, y) => {
        for (const [from, to] of runs) {
          parts.push(element("rect", { class: style, x: from * scale, width: (to - from) * scale, y, height: 8 }));
        }
      };
      strip(chosen.costly || [], "costly", 158);
      strip(chosen.differs, "differs", 172);
      for (const at of chosen.marks || []) {
        parts.push(element("path", { class: "logged-mark", d: `M${(at + 0.5) * scale} 0V150` }));
      }
      $("marks-key").hidden = !(chosen.marks || []).length;
      $("differs-key").hidden = !chosen.details;
      cursor = element("path", { class: "cursor" });
      momentMark = element("path", { class: "moment-mark" });
      line.replaceChildren(...parts, ...trail(points(chosen.smooth), chosen.smooth), momentMark, cursor);
    };

    // The columns that drive the risk at a step, and the values there beside the range of good ones.
    const written = (value) => String(Number(value.toPrecision(3))).replace("-", "−");
    const percent = (value, low, high) => Math.min(Math.max(high > low ? (100 * (value - low)) / (high - low) : 50, 0), 100);
    const showReasons = (step) => {
      const list = $("reasons"), note = $("reason-note"), body = $("values");
      list.replaceChildren();
      body.replaceChildren();
      $("reason-step").textContent = "";
      if (!chosen.details) {
        note.textContent = "Columns and reasons are kept for the riskiest, the proposed and the example ones only.";
        return;
      }
      const { reasons, values, every } = chosen.details;
      const nearest = reasons.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));
      $("reason-step").textContent = `at step ${chosen.first + nearest[0]}`;
      note.textContent = nearest[0] === step
        ? ""
        : "This is the nearest explained step; some steps of each part are explained, the riskiest ones.";
      for (const [column, share] of nearest[1]) {
        const item = document.createElement("li"), name = document.createElement("span");
        const bar = document.createElement("i"), amount = document.createElement("b");
        name.textContent = data.columns.names[column];
        bar.className = share > 0 ? "up" : "down";
        bar.style.width = `${Math.min(Math.abs(share), 100)}%`;
        amount.textContent = `${share > 0 ? "+" : "−"}${(Math.abs(share) / 100).toFixed(2)}`;
        const track = document.createElement("span");
        track.className = "bar-track";
        track.append(bar);
        item.append(name, track, amount);
        list.append(item);
      }
      if (!nearest[1].length) note.textContent = "No column sets this step apart from good ones.";
      data.columns.shown.forEach((column, i) => {
        const view = new DataView(bytes(values[i]).buffer);
        const at = Math.min(Math.floor(step / every), view.byteLength / 2 - 1);
        const low = data.columns.low[i], high = data.columns.high[i], [from, to] = data.columns.good[i];
        const value = low + ((high - low) * view.getUint16(2 * at, true)) / 65535;
        const row = body.insertRow(), name = document.createElement("th");
        name.scope = "row";
        name.textContent = data.columns.names[column];
        const outside = value < from - 1e-4 * (high - low) || value > to + 1e-4 * (high - low);
        row.append(name);
        const number = row.insertCell(), range = row.insertCell();
        number.className = outside ? "num outside" : "num";
        number.textContent = written(value);
        const track = document.createElement("span"), good = document.createElement("i"), mark = document.createElement("b");
        track.className = "range";
        track.setAttribute("aria-hidden", "true");
        good.style.left = `${percent(from, low, high)}%`;
        good.style.width = `${Math.max(percent(to, low, high) - percent(from, low, high), 1)}%`;
        mark.style.left = `${percent(value, low, high)}%`;
        mark.className = outside ? "outside" : "";
        track.append(good, mark);
        const words = document.createElement("small");
        words.textContent = `${written(from)} to ${written(to)}${outside ? ", outside" : ""}`;
        range.append(track, words);
      });
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
      $("detail-title").textContent = called(chosen.name);
      const costly = (chosen.costly || []).some(([from, to]) => from <= step && step < to);
      const strong = document.createElement("b");
      const [steps, risk] = said(chosen, step);
      strong.textContent = risk;
      const truth = chosen.costly ? (costly ? ", true cost above 0" : ", true cost 0") : "";
      const mean = data.length > 1 ? `, mean of ${data.length} steps ${chosen.smoothAt(step).toFixed(2)}` : "";
      $("readout").replaceChildren(`${steps}: `, strong, mean, truth);
      slider.setAttribute("aria-valuetext", `${steps}, ${risk}`);
      const x = ((Math.floor(step / chosen.stride) + 0.5) * 600) / chosen.risk.length;
      cursor.setAttribute("d", `M${x} 0V${HEIGHT}`);
      showReasons(step);
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
      tip.classList.remove("wide");
      tip.textContent = said(episode, step).join(" · ");
      tip.hidden = false;
      const x = box.left + (box.width * (step + episode.stride / 2)) / episode.steps;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(x - tip.offsetWidth / 2, room))}px`;
      tip.style.top = `${Math.max(4, box.top - tip.offsetHeight - 6)}px`;
    };

    slider.addEventListener("input", show);
    line.addEventListener("pointerdown", (event) => {
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

    // Review: judgements are kept in this browser, under the hash of the episodes they are about.
    const review = data.review, key = `safemil-labels-${review.unlabeled_sha256}`;
    const texts = { incident: "an incident", fine: "fine", unsure: "unsure" };
    const stored = () => { try { return JSON.parse(localStorage.getItem(key)) || {}; } catch { return {}; } };
    const labels = new Map(Object.entries(stored()).filter(([, each]) => texts[each && each.label]));
    const keep = () => {
      try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(labels))); } catch { /* kept until the page closes */ }
    };
    const buttons = [...document.querySelectorAll("[data-label]")];
    const proposals = [...document.querySelectorAll("#proposed button")];
    const rowOf = (name) => rows().find((row) => episodes[row.dataset.number].name === name);
    const labelled = (row) => {
      const found = labels.get(episodes[row.dataset.number].name);
      row.querySelector(".label-cell").textContent = found ? found.label : "";
    };
    const showLabel = () => {
      const found = labels.get(chosen.name);
      for (const button of buttons) button.setAttribute("aria-pressed", String(Boolean(found) && found.label === button.dataset.label));
      const moment = found && found.step !== null && found.step !== undefined;
      $("moment").setAttribute("aria-pressed", String(Boolean(moment)));
      $("unlabel").disabled = !found;
      $("label-status").textContent = found
        ? `${called(chosen.name)} is ${texts[found.label]}${moment ? `, at step ${found.step}` : ""}.`
        : `${called(chosen.name)} has no label yet.`;
      $("moment-key").hidden = !moment;
      const x = moment ? ((found.step - chosen.first + 0.5) * 600) / chosen.steps : 0;
      momentMark.setAttribute("d", moment ? `M${x} 0V150` : "");
    };
    const earlier = () => review.labels.filter((each) => !labels.has(each.episode)); // of the run's own training
    const count = () => {
      const all = [...labels.values()];
      const parts = Object.keys(texts).map((name) => [all.filter((each) => each.label === name).length, name]);
      const given = parts.filter(([number]) => number).map(([number, name]) => `${number} ${name}`).join(", ");
      const before = earlier().length ? ` ${earlier().length} from before this training are kept in the file.` : "";
      $("label-count").textContent = (given ? `${given}.` : "None yet.") + before;
      $("download").disabled = !labels.size;
      $("forget").disabled = !labels.size;
      for (const button of proposals) button.classList.toggle("done", labels.has(button.dataset.name));
    };
    const changed = () => { keep(); rows().forEach(labelled); showLabel(); count(); };
    const label = (name) => { labels.set(chosen.name, { label: name, step: null }); changed(); };
    const markMoment = () => {
      const step = chosen.first + Number(slider.value), found = labels.get(chosen.name);
      const same = found && found.label === "incident" && found.step === step;
      labels.set(chosen.name, { label: "incident", step: same ? null : step });
      changed();
    };
    const unlabel = () => { labels.delete(chosen.name); changed(); };
    const open = (name, step) => {
      const row = rowOf(name);
      if (!row) return;
      choose(row);
      if (step !== undefined) { slider.value = step; show(); }
      $("detail").scrollIntoView({ block: "start" });
    };
    const next = () => {
      const button = proposals.find((each) => !labels.has(each.dataset.name));
      if (button) open(button.dataset.name);
    };
    for (const button of buttons) button.addEventListener("click", () => label(button.dataset.label));
    $("moment").addEventListener("click", markMoment);
    $("unlabel").addEventListener("click", unlabel);
    for (const button of proposals) button.addEventListener("click", () => open(button.dataset.name));
    for (const button of document.querySelectorAll(".example")) {
      button.addEventListener("click", () => open(button.dataset.name, Number(button.dataset.step)));
    }
    $("forget").addEventListener("click", () => { labels.clear(); changed(); });
    $("download").addEventListener("click", () => {
      const own = [...labels].map(([episode, each]) => ({ episode, label: each.label, step: each.step ?? null }));
      const file = { format: review.format, unlabeled_sha256: review.unlabeled_sha256, labels: [...earlier(), ...own] };
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(file, null, 2) + "\n"], { type: "application/json" }));
      link.download = "labels.json";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    const section = $("episodes-by-risk");
    const actions = {
      i: () => label("incident"), f: () => label("fine"), u: () => label("unsure"), m: markMoment, x: unlabel, n: next,
    };
    section.addEventListener("keydown", (event) => {
      const action = actions[event.key];
      if (!action || !$("keys").checked || event.ctrlKey || event.metaKey || event.altKey) return;
      action();
      event.preventDefault();
    });

    choose(rows()[0]);
    rows().forEach(labelled);
    count();
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
      const risk = clip.risk ? `, risk ${clip.risk[at].toFixed(2)}` : "";
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
    // The first frames are alike, so the clips rest where their risk or cost differs most, or in the middle.
    const differs = (at) => {
      const each = clips.map((clip) => [clip.cost, clip.risk].map((row) => (row ? row[Math.min(at, clip.frames - 1)] : 0)));
      return Math.max(...[0, 1].map((i) => Math.max(...each.map((row) => row[i])) - Math.min(...each.map((row) => row[i]))));
    };
    const spread = Array.from({ length: last + 1 }, (_, at) => differs(at));
    slider.value = clips.length > 1 && Math.max(...spread) > 0 ? spread.indexOf(Math.max(...spread)) : Math.floor(last / 2);
    show();

    // Clips begin by themselves when they come into view, unless motion is not wanted.
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { slider.value = 0; start(); seen.disconnect(); }
    });
    seen.observe(frames[0]);
  }
})();
