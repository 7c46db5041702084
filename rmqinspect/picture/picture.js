// The map of a store, drawn from the JSON in its figure. It can be zoomed and moved: by wheel, by touch, by keys.
//
//     view [from, to) of the log          what is seen; places become per cent of it
//     bars: {start, end, element}         every element that has a place; `draw` moves all of them
//     told: text, command                 the panel above: of what is pointed at, or has the focus
//
// Texts come from the evidence: they are set as text, never parsed. Nothing is fetched, nothing is evaluated.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const STEP = 1.25; // of a zoom
  const LEAST = 16; // bytes that are seen at least
  const LEAST_WIDE = 8; // pixels of a segment
  const MOST_STOPS = 200; // damaged runs that Tab stops at; N and P go to all

  const make = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const html = (name, className, text) => {
    const element = document.createElement(name);
    element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u00a0");
  const described = (value) => `${grouped(value)} (0x${BigInt(value).toString(16)})`;
  const bytes = (size) => `${grouped(size)} ${String(size) === "1" ? "byte" : "bytes"}`;

  // Segments come as [start, size, how many of this size follow each other, their name if it is another].
  function* segments(rows) {
    for (const [first, size, number, name] of rows) {
      for (let at = 0n; at < BigInt(number); at += 1n) {
        const start = BigInt(first) + at * BigInt(size);
        yield { start, end: start + BigInt(size), file: name ?? `commitlog/${String(start).padStart(20, "0")}` };
      }
    }
  }

  class StoreMap {
    constructor(figure) {
      this.figure = figure;
      this.name = figure.id;
      this.data = JSON.parse(figure.querySelector("script.rm-data").textContent);
      this.strips = [...segments(this.data.strips)];
      this.svg = figure.querySelector("svg.rm-svg");
      this.start = Number(this.data.start);
      this.end = Math.max(Number(this.data.end), this.start + 1);
      this.from = this.start;
      this.to = this.end;
      this.bars = [];
      this.damage = []; // elements of the damaged runs, in order
      this.pointers = new Map();
      this.waits = false;
      this.build();
      this.listen();
      this.place();
    }

    // --- what is drawn ----------------------------------------------------------------------------------------

    build() {
      const { svg, data } = this;
      const [laneTop, laneHeight] = data.layout.lane;
      for (const child of [...svg.childNodes]) if (child.localName !== "defs") child.remove();
      svg.removeAttribute("aria-labelledby");
      svg.setAttribute("role", "application");
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("aria-label", `Map of the store ${data.store}: arrows move, plus and minus zoom, Home and End go ` +
        "to its ends, N and P to the next and previous damage, Escape shows all, Tab goes through marks and damage");
      svg.classList.add("rm-view");
      svg.setAttribute("height", laneTop + laneHeight * data.lanes.length);
      this.axis = ["start", "middle", "end"].map((anchor, number) =>
        svg.appendChild(make("text", { class: "rm-label", x: `${50 * number}%`, y: 14, "text-anchor": anchor })));
      const runs = data.runs.map((run) => ({ start: run[0], end: run[1], kind: data.kinds[run[2]], mixed: run[3] === 1 }));
      const sound = runs.filter((run) => run.kind[0] !== "damage");
      for (const run of sound) this.addRun(run);
      this.dividers = svg.appendChild(make("g", {}));
      for (const strip of this.strips.slice(1)) {
        const line = make("rect", { class: "rm-divide", y: data.layout.log[0], height: data.layout.log[1], width: 1 });
        this.add(line, strip.start, strip.start, this.dividers);
      }
      // Damage is drawn last: no neighbour hides it.
      for (const run of runs) if (run.kind[0] === "damage") this.addRun(run);
      data.lanes.forEach(([label, items], number) => this.addLane(label, items, laneTop + laneHeight * number));
      this.controls();
    }

    addRun(run) {
      const [kind, words] = run.kind;
      const isDamage = kind === "damage";
      const [top, height] = this.data.layout.log;
      const element = make("rect", { y: top, height, fill: `url(#${this.name}-${kind})` });
      const size = BigInt(run.end) - BigInt(run.start);
      const codes = this.data.codes[run.start];
      const told = `${kind}${codes === undefined ? "" : ` (${codes})`}: ${words}${run.mixed ? ", and other bytes between" : ""}; ${bytes(size)}`;
      if (isDamage) {
        element.setAttribute("class", "rm-outline");
        this.damage.push(element);
      }
      this.addTold(element, run.start, run.end, told, isDamage && this.damage.length <= MOST_STOPS, !isDamage);
    }

    addLane(label, items, top) {
      const [barTop, barHeight] = this.data.layout.bar;
      this.svg.appendChild(make("text", { class: "rm-label", x: 0, y: top + 11 }, label));
      for (const [start, end, kind, text] of items) {
        const isTick = start === end;
        const element = make("rect", {
          class: `rm-item rm-${kind}`, y: isTick ? top + barTop - 3 : top + barTop,
          height: isTick ? barHeight + 6 : barHeight, width: 2,
        });
        this.addTold(element, start, end, text, this.data.stops.includes(kind));
      }
    }

    add(element, start, end, parent) {
      this.bars.push({ element, start: Number(start), end: Number(end) });
      parent.appendChild(element);
    }

    // `text` says what it is; of a `long` one the place below the pointer is told, not its beginning.
    addTold(element, start, end, text, isStop = false, long = false) {
      this.add(element, start, end, this.svg);
      const place = { start, end, text, long };
      element.addEventListener("pointermove", (event) => this.tell(place, long ? this.placeAt(event) : start));
      element.addEventListener("click", (event) => this.copy(place, long ? this.placeAt(event) : start));
      if (!isStop) return;
      element.setAttribute("tabindex", "0");
      element.setAttribute("role", "button");
      element.setAttribute("aria-label", `${text}; ${this.where(start)}`);
      element.addEventListener("focus", () => { this.show(Number(start), Number(end)); this.tell(place, start); });
      element.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.moved = false;
        this.copy(place, start);
      });
    }

    controls() {
      const bar = html("div", "rm-bar");
      const buttons = [["+", "Zoom in", () => this.zoom(1 / STEP / STEP)], ["\u2212", "Zoom out", () => this.zoom(STEP * STEP)],
        ["\u2190", "Move left", () => this.move(-0.3)], ["\u2192", "Move right", () => this.move(0.3)],
        ["All", "Show the whole log", () => this.look(this.start, this.end)]];
      if (this.damage.length) buttons.push(["Next damage", "Go to the next damaged bytes", () => this.jump(1)]);
      for (const [text, label, act] of buttons) {
        const button = html("button", "", text);
        button.type = "button";
        if (!label.includes(text)) button.setAttribute("aria-label", text.length > 3 ? `${text}: ${label}` : label);
        button.addEventListener("click", act);
        bar.append(button);
      }
      this.told = html("div", "rm-told");
      this.told.setAttribute("role", "status");
      this.words = html("div", "");
      this.command = html("code", "");
      this.copied = html("span", "");
      this.told.append(this.words, this.command, this.copied);
      this.words.textContent = "Point at the map, or go through it with Tab: here stands what it is and where.";
      this.svg.before(bar, this.told);
    }

    // Moves every element to its place in the view; at most once a frame.
    draw() {
      if (this.waits) return;
      this.waits = true;
      requestAnimationFrame(() => this.place());
    }

    place() {
      this.waits = false;
      const size = this.to - this.from;
      for (const { element, start, end } of this.bars) {
        // Far outside all places are alike: numbers stay small.
        const low = Math.min(Math.max((start - this.from) / size, -1), 2);
        const high = Math.min(Math.max((end - this.from) / size, -1), 2);
        element.setAttribute("x", `${100 * low}%`);
        if (start !== end) element.setAttribute("width", `${Math.max(100 * (high - low), 0.0001)}%`);
      }
      // Borders of segments only where these are wide enough to be seen between them.
      const seen = (this.strips.length * size) / (this.end - this.start);
      this.dividers.setAttribute("display", this.svg.clientWidth / seen < LEAST_WIDE ? "none" : "inline");
      const places = [this.from, (this.from + this.to) / 2, this.to];
      this.axis.forEach((text, number) => { text.textContent = grouped(BigInt(Math.round(places[number]))); });
      this.figure.dataset.from = Math.round(this.from);
      this.figure.dataset.to = Math.round(this.to);
    }

    // --- what is told -----------------------------------------------------------------------------------------

    where(place, end = place) {
      const at = BigInt(place);
      const span = `offset ${described(at)}${at === BigInt(end) ? "" : ` to ${grouped(end)}`}`;
      const strip = this.strips.findLast((one) => one.start <= at && at < one.end);
      return strip === undefined ? span : `${span}, ${strip.file} at ${described(at - strip.start)}`;
    }

    tell(place, at) {
      this.words.textContent = `${place.text}; ${this.where(at, place.long ? at : place.end)}`;
      this.command.textContent = this.data.command + String(at);
      this.copied.textContent = " (Enter or a click copies it)";
    }

    copy(place, at) {
      if (this.moved) return;
      this.tell(place, at);
      const done = (worked) => { this.copied.textContent = worked ? " copied" : " (select it to copy it)"; };
      const select = () => {
        const range = document.createRange();
        range.selectNodeContents(this.command);
        const selection = getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        done(document.execCommand("copy"));
      };
      // Without a secure context there is no clipboard.
      if (navigator.clipboard === undefined) select();
      else navigator.clipboard.writeText(this.command.textContent).then(() => done(true), select);
    }

    placeAt(event) {
      const place = Math.floor(this.from + this.share(event.clientX) * (this.to - this.from));
      return Math.min(Math.max(place, this.start), this.end - 1);
    }

    share(clientX) {
      const box = this.svg.getBoundingClientRect();
      return (clientX - box.left) / Math.max(box.width, 1);
    }

    // --- the view ---------------------------------------------------------------------------------------------

    look(from, to) {
      const size = Math.min(Math.max(to - from, Math.min(LEAST, this.end - this.start)), this.end - this.start);
      this.from = Math.min(Math.max(from, this.start), this.end - size);
      this.to = this.from + size;
      this.draw();
    }

    zoom(factor, share = 0.5) {
      const size = (this.to - this.from) * factor;
      const place = this.from + share * (this.to - this.from);
      this.look(place - share * size, place + (1 - share) * size);
    }

    move(share) {
      const way = share * (this.to - this.from);
      this.look(this.from + way, this.to + way);
    }

    // Moves the view if a place is outside of it.
    show(start, end) {
      if (start >= this.from && start < this.to) return;
      const size = this.to - this.from;
      const middle = end - start < size ? (start + end) / 2 : start;
      this.look(middle - size / 2, middle + size / 2);
    }

    // To the next damage, or back: so near that it is seen between what is around it.
    jump(step) {
      if (!this.damage.length) return;
      const now = this.damage.indexOf(document.activeElement);
      const next = now < 0 ? (step > 0 ? 0 : this.damage.length - 1) : (now + step + this.damage.length) % this.damage.length;
      const element = this.damage[next];
      const { start, end } = this.bars.find((bar) => bar.element === element);
      const margin = Math.max((end - start) * 2, 512);
      this.look(start - margin, end + margin);
      element.setAttribute("tabindex", "0");
      element.focus({ preventScroll: true });
    }

    // --- wheel, touch, keys -----------------------------------------------------------------------------------

    listen() {
      const { svg } = this;
      svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      svg.addEventListener("keydown", (event) => this.key(event));
      svg.addEventListener("pointerdown", (event) => {
        this.pointers.set(event.pointerId, event.clientX);
        this.moved = false;
      });
      svg.addEventListener("pointermove", (event) => this.drag(event));
      for (const name of ["pointerup", "pointercancel"]) {
        svg.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
      }
      // Printed is the whole log.
      let before;
      addEventListener("beforeprint", () => {
        before ??= [this.from, this.to];
        this.look(this.start, this.end);
        this.place();
      });
      addEventListener("afterprint", () => {
        if (before !== undefined) this.look(...before);
        before = undefined;
      });
    }

    wheel(event) {
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const way = isSideways && event.deltaX !== 0 ? event.deltaX : event.deltaY;
      const inLog = event.clientY - this.svg.getBoundingClientRect().top < this.data.layout.lane[0];
      // Below the log a wheel scrolls the page, and so it does where nothing is left to zoom.
      const isAll = this.to - this.from >= this.end - this.start;
      if (!(inLog || event.ctrlKey || isSideways) || (isAll && (isSideways || way > 0))) return;
      event.preventDefault();
      if (isSideways) this.move(Math.sign(way) * 0.1);
      else this.zoom(way < 0 ? 1 / STEP : STEP, this.share(event.clientX));
    }

    drag(event) {
      if (event.pointerType === "mouse" && event.buttons === 0) this.pointers.delete(event.pointerId);
      if (!this.pointers.has(event.pointerId)) return;
      const old = [...this.pointers.values()];
      const before = this.pointers.get(event.pointerId);
      if (!this.moved && this.pointers.size === 1 && Math.abs(event.clientX - before) < 4) return;
      this.moved = true;
      this.svg.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.clientX);
      const size = this.to - this.from;
      if (this.pointers.size === 1) {
        this.move(this.share(before) - this.share(event.clientX));
      } else if (this.pointers.size === 2) {
        // What was below the two fingers stays below them.
        const [a, b] = old.map((x) => this.share(x)).sort((x, y) => x - y);
        const [c, d] = [...this.pointers.values()].map((x) => this.share(x)).sort((x, y) => x - y);
        if (b - a < 0.01 || d - c < 0.01) return;
        const now = (size * (b - a)) / (d - c);
        const from = this.from + a * size - c * now;
        this.look(from, from + now);
      }
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const size = this.to - this.from;
      const acts = {
        ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
        ArrowUp: () => this.zoom(1 / STEP), ArrowDown: () => this.zoom(STEP),
        "+": () => this.zoom(1 / STEP), "=": () => this.zoom(1 / STEP), "-": () => this.zoom(STEP),
        Home: () => this.look(this.start, this.start + size), End: () => this.look(this.end - size, this.end),
        Escape: () => this.look(this.start, this.end), n: () => this.jump(1), p: () => this.jump(-1),
      };
      const act = acts[event.key];
      if (act === undefined) return;
      event.preventDefault();
      act();
    }
  }

  for (const figure of document.querySelectorAll("figure.rm-map")) new StoreMap(figure);
})();
