/* The grid of the schedule bench on one canvas: actions as boxes that are dragged, chosen, zoomed and panned.
   A canvas because 65,000 boxes are panned at every frame; what it needs is ipywidgets alone.
   Data comes as JSON in a hidden element (kit/panels/bench/sheet.py), and what a person does goes back through a field. */
(function () {
  const ROLES = ["forward", "backward", "weights"]; // of F, of B and I, of W
  const KINDS = "FBIW", ROLE_OF = [0, 1, 1, 2];
  const VERBS = ["takes micro-batch # forward", "takes micro-batch # back",
    "passes the gradient of micro-batch # back", "computes the weights' gradients of micro-batch #"];
  const LEFT = 48, RIGHT = 66, HEAD = 20, FOOT = 20, HELD = 20; // px
  const THIN = 6, WIDE = 12, TALL = 380, GRIP = 5; // px: a row at least, one with numbers, all rows, a box to drag
  const MANY = 4000; // boxes that a canvas paints as rectangles within a frame
  const unpack = (text, type) => new type(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer);

  function unpacked(block) {
    const starts = [0];
    for (const count of block.counts) starts.push(starts.at(-1) + count);
    return { ...block, starts, began: unpack(block.began, Float32Array), ended: unpack(block.ended, Float32Array),
      kind: unpack(block.kind, Uint8Array), stage: unpack(block.stage, Uint16Array),
      micro: unpack(block.micro, Uint16Array), half: unpack(block.half, Uint8Array) };
  }

  class Grid {
    constructor(place, data, hand) {
      Object.assign(this, { place, data, hand, view: null, looked: 0, said: 0, gesture: 0, sent: new Map() });
      this.canvas = document.createElement("canvas");
      this.canvas.className = "lsp-grid";
      this.canvas.setAttribute("aria-hidden", "true"); // the words beneath say the same
      this.pen = this.canvas.getContext("2d");
      place.append(this.canvas);
      const read = () => this.read();
      new MutationObserver(read).observe(data, { childList: true, subtree: true, characterData: true });
      new ResizeObserver(() => this.soon()).observe(place);
      new MutationObserver(() => this.recolour()).observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
      for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel", "wheel", "dblclick"])
        this.canvas.addEventListener(kind, event => this[kind](event), { passive: false });
      window.addEventListener("keydown", event => this.drag && event.key === "Escape" && this.drop(true), true);
      this.recolour();
      read();
    }

    // ---------------------------------------------------------------------------------------- data

    read() {
      const text = this.data.querySelector("pre")?.textContent;
      if (!text) return;
      const news = JSON.parse(text);
      this.blocks = news.blocks.map(unpacked);
      this.news = news;
      this.told = false;
      if (news.look.number !== this.looked) {
        this.looked = news.look.number;
        this.look(news.look);
      }
      this.soon();
    }

    say(what) {
      this.said = Math.max(this.said, this.news?.answers ?? 0) + 1;
      this.sent.set(this.said, performance.now());
      this.hand.value = JSON.stringify({ ...what, number: this.said });
      this.hand.dispatchEvent(new Event("change", { bubbles: true }));
    }

    look({ begin, end, factor }) {
      if (factor) this.zoom(factor);
      else this.view = end > begin ? [begin, end] : null;
    }

    zoom(factor, around) {
      const [from, to] = this.window(), middle = around ?? (from + to) / 2;
      this.shift(middle - (middle - from) / factor, (to - from) / factor);
    }

    shift(from, width) {
      const span = this.news.span;
      if (width >= span) this.view = null;
      else {
        const begin = Math.min(Math.max(from, 0), span - width);
        this.view = [begin, begin + width];
      }
      this.soon();
    }

    window() { return this.drag?.window ?? this.view ?? [0, this.news.span || 1]; }

    // ---------------------------------------------------------------------------------------- painting

    recolour() {
      const probe = document.createElement("i");
      this.place.append(probe);
      const of = name => { probe.className = name; return getComputedStyle(probe).getPropertyValue("--c").trim(); };
      for (const block of this.blocks ?? []) block.picture = null;
      this.fill = ROLES.map(role => of("ls-" + role));
      this.ink = ROLES.map(role => of("ls-on-" + role));
      this.idle = of("ls-idle");
      this.activations = of("ls-activations");
      probe.remove();
      const own = getComputedStyle(this.place);
      for (const name of ["fg", "mut", "bad", "accent", "line", "bg", "sans"]) this[name] = own.getPropertyValue("--ls-" + name).trim();
      this.soon();
    }

    soon() {
      if (this.asked) return;
      this.asked = true;
      requestAnimationFrame(() => { this.asked = false; this.paint(); });
    }

    x(time) { const [from, to] = this.window(); return LEFT + (time - from) / (to - from) * (this.width - LEFT - RIGHT); }
    time(x) { const [from, to] = this.window(); return from + (x - LEFT) / (this.width - LEFT - RIGHT) * (to - from); }

    paint() {
      const width = this.place.clientWidth;
      if (!this.news || !width || !this.canvas.isConnected) return;
      const { pen, news } = this, ranks = this.blocks[0].counts.length;
      const pitch = this.pitch = Math.max(THIN, Math.min(24, TALL / ranks));
      let top = 0;
      for (const block of this.blocks) { block.top = top + HEAD; top = block.top + ranks * pitch + 4; }
      const held = top, height = held + (news.held.length ? HEAD + news.held.length * HELD : 0) + FOOT;
      const ratio = window.devicePixelRatio || 1;
      this.width = width;
      if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        this.canvas.style.height = height + "px";
      }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.textBaseline = "middle";
      this.paintRuler(height);
      for (const block of this.blocks) this.paintBlock(block);
      if (news.held.length) this.paintHeld(held);
      this.paintMarks();
      this.painted();
    }

    painted() {
      const sent = this.sent.get(this.news.answers);
      if (sent !== undefined) { // how long a person waited for the answer, for whoever measures it
        performance.measure("lockstep-answer", { start: sent, end: performance.now() });
        for (const number of this.sent.keys()) if (number <= this.news.answers) this.sent.delete(number);
      }
      if (!this.place.classList.contains("lsp-painted")) performance.mark("lockstep-painted");
      this.place.classList.add("lsp-painted");
      if (!this.news.painted && !this.told) { this.told = true; this.say({ what: "painted" }); }
    }

    paintRuler(height) {
      const { pen } = this, [from, to] = this.window();
      const rough = (to - from) / Math.max(2, (this.width - LEFT - RIGHT) / 90), ten = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map(n => n * ten).find(n => n >= rough) ?? 10 * ten;
      const unit = this.news.unit === "s" ? (to < 2e-3 ? [1e6, "µs"] : to < 2 ? [1e3, "ms"] : [1, "s"]) : [1, this.news.unit];
      pen.font = "10px " + this.sans;
      pen.textAlign = "center";
      for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-9); i++) {
        const x = Math.round(this.x(i * step)) + 0.5;
        pen.fillStyle = this.line;
        pen.fillRect(x - 0.5, HEAD, 1, height - HEAD - FOOT);
        pen.fillStyle = this.mut;
        pen.fillText(Number((i * step * unit[0]).toPrecision(6)) + (i ? "" : " " + unit[1]), x, height - FOOT / 2);
      }
    }

    title(text, y) {
      this.pen.font = "600 11px " + this.sans;
      this.pen.textAlign = "left";
      this.pen.fillStyle = this.mut;
      this.pen.fillText(text, LEFT, y + HEAD / 2 - 1, this.width - LEFT - 6);
    }

    place_(block, rank, index) { // of a box: y and height
      const thick = this.pitch - (this.pitch >= WIDE ? 3 : 1), y = block.top + rank * this.pitch;
      const half = block.half[index];
      return half === 0 ? [y, thick] : half === 1 ? [y, thick / 2 - 0.5] : [y + thick / 2 + 0.5, thick / 2 - 0.5];
    }

    paintBlock(block) {
      const { pen, pitch } = this, [from, to] = this.window(), right = this.width - RIGHT;
      this.title(block.title, block.top - HEAD);
      const seen = block.counts.map((_, rank) => this.visible(block, rank, from, to));
      const thin = pitch < WIDE || seen.reduce((sum, [first, last]) => sum + last - first, 0) > MANY;
      if (thin) this.paintThin(block);
      const every = 2 ** Math.ceil(Math.log2(Math.max(1, 11 / pitch)));
      pen.save();
      pen.beginPath();
      pen.rect(LEFT, block.top, right - LEFT, block.counts.length * pitch);
      pen.clip();
      for (let rank = 0; !thin && rank < block.counts.length; rank++) {
        const [first, last] = seen[rank], stops = block.starts[rank] + block.runs[rank];
        const [y, thick] = this.place_({ ...block, half: [0] }, rank, 0);
        pen.fillStyle = this.idle;
        pen.fillRect(LEFT, y, Math.min(this.x(block.seconds), right) - LEFT, thick);
        for (let role = 0; role < 3; role++) {
          pen.fillStyle = this.fill[role];
          let reached = -1;
          for (let i = first; i < last && i < stops; i++) {
            if (ROLE_OF[block.kind[i]] !== role) continue;
            const x0 = this.x(block.began[i]), x1 = this.x(block.ended[i]);
            if (x1 - reached < 0.5) continue; // less than half a pixel more than what is painted already
            const [y, tall] = this.place_(block, rank, i);
            pen.fillRect(x0, y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 1 : 0), 0.5), tall);
            reached = x1;
          }
        }
        pen.setLineDash([3, 2]); // what never runs
        for (let i = Math.max(first, stops); i < last; i++) {
          const x0 = this.x(block.began[i]), x1 = this.x(block.ended[i]), role = ROLE_OF[block.kind[i]];
          pen.globalAlpha = 0.25;
          pen.fillStyle = this.fill[role];
          pen.fillRect(x0, y, x1 - x0 - 1, thick);
          pen.globalAlpha = 1;
          pen.strokeStyle = this.mut;
          if (x1 - x0 > 4) pen.strokeRect(x0 + 0.5, y + 0.5, x1 - x0 - 2, thick - 1);
        }
        pen.setLineDash([]);
        this.paintNumbers(block, rank, first, last, stops);
      }
      pen.restore();
      pen.font = "10px " + this.sans;
      pen.textAlign = "right";
      pen.fillStyle = this.mut;
      for (let rank = 0; rank < block.counts.length; rank += every)
        pen.fillText("rank " + rank, LEFT - 6, block.top + rank * pitch + pitch / 2 - 1);
    }

    paintThin(block) { // pixel by pixel, and in a pan only those that came in: a canvas is too slow for 65,000 rectangles
      const ratio = window.devicePixelRatio || 1, [from, to] = this.window();
      const wide = Math.round((this.width - LEFT - RIGHT) * ratio), tall = Math.round(block.counts.length * this.pitch * ratio);
      let old = block.picture;
      const like = old && old.image.width === wide && old.image.height === tall && Math.abs(old.scale * (to - from) / wide - 1) < 1e-9;
      const scale = like ? old.scale : wide / (to - from), origin = Math.round(from * scale);
      if (!like) old = { image: this.pen.createImageData(wide, tall), scale, origin: origin + wide };
      const moved = origin - old.origin, pixels = new Uint32Array(old.image.data.buffer);
      block.picture = { ...old, origin };
      if (Math.abs(moved) >= wide) this.paintColumns(block, pixels, 0, wide);
      else if (moved > 0) { pixels.copyWithin(0, moved); this.paintColumns(block, pixels, wide - moved, wide); }
      else if (moved < 0) { pixels.copyWithin(-moved, 0); this.paintColumns(block, pixels, 0, -moved); }
      this.pen.putImageData(old.image, Math.round(LEFT * ratio), Math.round(block.top * ratio));
    }

    paintColumns(block, pixels, begin, end) { // of its picture, all rows
      const ratio = window.devicePixelRatio || 1, { began, ended, kind, picture: { image: { width: wide }, scale, origin } } = block;
      const coloured = (hex, alpha) => parseInt(hex.slice(5, 7) + hex.slice(3, 5) + hex.slice(1, 3), 16) + alpha * 2 ** 24;
      const pixel = time => Math.floor(time * scale + 0.5) - origin, grey = coloured(this.idle, 255);
      const runs = this.fill.map(hex => coloured(hex, 255)), never = this.fill.map(hex => coloured(hex, 64));
      const from = (origin + begin - 1) / scale, to = (origin + end + 1) / scale, over = Math.min(end, pixel(block.seconds));
      for (let start = 0; start < pixels.length; start += wide) pixels.fill(0, start + begin, start + end);
      for (let rank = 0; rank < block.counts.length; rank++) {
        const row = Math.round(rank * this.pitch * ratio), below = Math.round((rank + 1) * this.pitch * ratio - (this.pitch >= WIDE ? 3 : 1) * ratio);
        const start = row * wide, stops = block.starts[rank] + block.runs[rank];
        const [first, last] = this.visible(block, rank, from, to);
        if (over > begin) pixels.fill(grey, start + begin, start + over);
        for (let i = first; i < last; i++) {
          const left = pixel(began[i]), right = pixel(ended[i]), until = Math.min(end, right - left > 4 ? right - 1 : right);
          const colour = (i < stops ? runs : never)[ROLE_OF[kind[i]]];
          for (let x = Math.max(begin, left); x < until; x++) pixels[start + x] = colour;
        }
        for (let y = row + 1; y < below; y++) pixels.copyWithin(y * wide + begin, start + begin, start + end);
      }
    }

    paintNumbers(block, rank, first, last, stops) {
      const { pen } = this;
      pen.textAlign = "center";
      for (let i = first; i < last; i++) {
        const x0 = this.x(block.began[i]), x1 = this.x(block.ended[i]), text = String(block.micro[i]);
        const [y, tall] = this.place_(block, rank, i);
        if (x1 - x0 < 7 * text.length + 3 || tall < 9) continue;
        pen.font = `600 ${tall < 16 ? 9 : 11}px ${this.sans}`;
        pen.fillStyle = i < stops ? this.ink[ROLE_OF[block.kind[i]]] : this.fg;
        pen.fillText(text, (x0 + x1 - 1) / 2, y + tall / 2 + 0.5);
      }
    }

    paintHeld(top) {
      const { pen, news } = this, right = this.width - RIGHT, most = Math.max(1, news.room ?? 0, ...news.held.flatMap(one => one.counts));
      const room = news.room === null ? "" : `; the dashed line is room for ${news.room}`;
      this.title("activations held, each of one micro-batch at one stage" + room, top);
      news.held.forEach(({ times, counts }, rank) => {
        const y = top + HEAD + rank * HELD, base = y + HELD - 3, unit = (HELD - 5) / most, peak = Math.max(...counts);
        const over = news.room !== null && peak > news.room;
        pen.save();
        pen.beginPath();
        pen.rect(LEFT, y, right - LEFT, HELD);
        pen.clip();
        pen.fillStyle = this.activations;
        counts.forEach((count, i) => {
          const x0 = this.x(times[i]), x1 = this.x(times[i + 1]);
          if (count) pen.fillRect(x0, base - count * unit, Math.max(x1 - x0, 0.5), count * unit);
        });
        if (news.room !== null) {
          pen.strokeStyle = over ? this.bad : this.mut;
          pen.setLineDash([4, 3]);
          pen.beginPath();
          pen.moveTo(LEFT, Math.round(base - news.room * unit) + 0.5);
          pen.lineTo(right, Math.round(base - news.room * unit) + 0.5);
          pen.stroke();
        }
        pen.restore();
        pen.fillStyle = this.line;
        pen.fillRect(LEFT, base, right - LEFT, 1);
        pen.font = "10px " + this.sans;
        pen.fillStyle = this.mut;
        pen.textAlign = "right";
        pen.fillText("rank " + rank, LEFT - 6, y + HELD / 2);
        pen.textAlign = "left";
        pen.fillStyle = over ? this.bad : this.mut;
        pen.fillText("at most " + peak, right + 6, y + HELD / 2);
      });
    }

    box(rank, position) { // on the page, of the drawn schedule
      const block = this.blocks[0], i = block.starts[rank] + position, [y, tall] = this.place_(block, rank, i);
      return { x: this.x(block.began[i]), right: this.x(block.ended[i]) - 1, y, tall, middle: y + tall / 2 };
    }

    paintMarks() {
      const { pen, news } = this, block = this.blocks[0], right = this.width - RIGHT;
      pen.save();
      pen.beginPath();
      pen.rect(LEFT - 3, 0, right - LEFT + 6, block.top + block.counts.length * this.pitch + 4);
      pen.clip();
      if (news.halt !== null) {
        const x = this.x(news.halt);
        pen.strokeStyle = this.bad;
        pen.lineWidth = 1.5;
        pen.beginPath();
        pen.moveTo(x, block.top - 3);
        pen.lineTo(x, block.top + block.counts.length * this.pitch);
        pen.stroke();
      }
      for (const [rank, position, other, at, bad] of news.links) this.paintLink(this.box(rank, position), this.box(other, at), bad);
      for (const [rank, position] of news.marks) this.outline(this.box(rank, position), this.bad, 2);
      if (news.chosen && !this.drag) this.outline(this.box(...news.chosen), this.fg, 2);
      if (this.drag?.moved) this.paintGhost();
      pen.restore();
    }

    outline({ x, right, y, tall }, colour, wide) {
      this.pen.strokeStyle = colour;
      this.pen.lineWidth = wide;
      this.pen.strokeRect(x, y, Math.max(right - x, 2), tall);
    }

    paintLink(from, to, bad) { // from what is needed to who needs it
      const { pen } = this;
      pen.strokeStyle = pen.fillStyle = bad ? this.bad : this.fg;
      pen.lineWidth = 1.5;
      pen.setLineDash(bad ? [4, 3] : []);
      const bend = Math.max(8, Math.abs(to.x - from.right) / 3);
      pen.beginPath();
      pen.moveTo(from.right, from.middle);
      pen.bezierCurveTo(from.right + bend, from.middle, to.x - bend, to.middle, to.x, to.middle);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.arc(from.right, from.middle, 2.5, 0, 7);
      pen.arc(to.x, to.middle, 2.5, 0, 7);
      pen.fill();
    }

    paintGhost() {
      const { pen, drag } = this, x = drag.x - drag.grip;
      pen.globalAlpha = 0.85;
      pen.fillStyle = this.fill[drag.role];
      pen.fillRect(x, drag.y, drag.wide, drag.tall);
      pen.globalAlpha = 1;
      this.outline({ x, right: x + drag.wide, y: drag.y, tall: drag.tall }, this.accent, 2);
      pen.fillStyle = this.ink[drag.role];
      pen.textAlign = "center";
      pen.font = "600 11px " + this.sans;
      pen.fillText(drag.text, x + drag.wide / 2, drag.y + drag.tall / 2 + 0.5);
    }

    // ---------------------------------------------------------------------------------------- hands

    visible(block, rank, from, to) { // the first box that ends after `from`, and behind the last that begins before `to`
      const search = (values, limit) => {
        let low = block.starts[rank], high = block.starts[rank + 1];
        while (low < high) { const middle = (low + high) >> 1; if (values[middle] < limit) low = middle + 1; else high = middle; }
        return low;
      };
      return [search(block.ended, from), search(block.began, to)];
    }

    found(event) { // the box under the pointer
      const { offsetX: x, offsetY: y } = event;
      for (const block of this.blocks ?? []) {
        const rank = Math.floor((y - block.top) / this.pitch);
        if (rank < 0 || rank >= block.counts.length || x < LEFT || x > this.width - RIGHT) continue;
        const time = this.time(x), [first, last] = this.visible(block, rank, time, time);
        for (let i = first; i < Math.min(last + 1, block.starts[rank + 1]); i++) {
          const [top, tall] = this.place_(block, rank, i);
          if (block.began[i] <= time && time <= block.ended[i] && y >= top && y <= top + tall)
            return { block, rank, i, position: i - block.starts[rank] };
        }
      }
      return null;
    }

    pointerdown(event) {
      if (event.button !== 0 || !this.news) return;
      event.preventDefault();
      this.place.closest(".lsp-panel").focus({ preventScroll: true });
      this.canvas.setPointerCapture(event.pointerId);
      const found = this.found(event), mine = found && found.block === this.blocks[0];
      const wide = mine ? this.x(found.block.ended[found.i]) - this.x(found.block.began[found.i]) : 0;
      if (mine && wide >= GRIP) this.grab(event, found);
      else this.pan = { x: event.offsetX, window: this.window(), found: mine ? found : null, moved: false };
    }

    grab(event, { block, rank, i, position }) {
      const [y, tall] = this.place_(block, rank, i), row = [];
      for (let other = block.starts[rank]; other < block.starts[rank + 1]; other++)
        if (other !== i) row.push((block.began[other] + block.ended[other]) / 2);
      const left = this.x(block.began[i]), role = ROLE_OF[block.kind[i]];
      this.drag = { rank, position, to: position, row, y, tall, role, grip: event.offsetX - left, from: event.offsetX,
        x: event.offsetX, wide: this.x(block.ended[i]) - left - 1, text: String(block.micro[i]), window: [...this.window()],
        moved: false, gesture: `${performance.timeOrigin}-${++this.gesture}` };
    }

    pointermove(event) {
      const { drag, pan } = this;
      if (drag) {
        drag.x = event.offsetX;
        drag.moved ||= Math.abs(drag.x - drag.from) > 3;
        if (!drag.moved) return;
        const middle = this.time(drag.x - drag.grip + drag.wide / 2);
        const to = drag.row.filter(other => other < middle).length;
        if (to !== drag.to) this.send(to);
        this.soon();
      } else if (pan) {
        pan.moved ||= Math.abs(event.offsetX - pan.x) > 3;
        const [from, to] = pan.window, per = (to - from) / (this.width - LEFT - RIGHT);
        if (pan.moved && this.view) this.shift(from - (event.offsetX - pan.x) * per, to - from);
      } else this.hover(event);
    }

    send(to) {
      const { rank, position, gesture } = this.drag;
      this.drag.to = to;
      this.say({ what: "drag", rank, position, to, gesture });
    }

    drop(back) {
      const { drag } = this;
      if (back) drag.to = drag.position;
      this.drag = null;
      if (drag.moved) this.say({ what: "drag", rank: drag.rank, position: drag.position, to: drag.to, gesture: drag.gesture, over: true });
      else this.say({ what: "choose", rank: drag.rank, position: drag.position });
      this.soon();
    }

    pointerup() {
      if (this.drag) this.drop(false);
      else if (this.pan && !this.pan.moved && this.pan.found) this.say({ what: "choose", rank: this.pan.found.rank, position: this.pan.found.position });
      this.pan = null;
    }

    pointercancel() {
      if (this.drag) this.drop(true);
      this.pan = null;
    }

    hover(event) {
      const found = this.found(event), can = found && found.block === this.blocks[0];
      this.canvas.style.cursor = can ? "grab" : this.view ? "move" : "default";
      if (!found) { this.canvas.title = ""; return; }
      const { block, rank, i } = found, kind = block.kind[i];
      const name = `${block.stage[i]}${KINDS[kind]}${block.micro[i]}`;
      this.canvas.title = `${name}: rank ${rank} ${VERBS[kind].replace("#", block.micro[i])} at stage ${block.stage[i]}`;
    }

    wheel(event) { // a page scrolls as it does elsewhere: only with Ctrl, or sideways, is the wheel the picture's
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey) this.zoom(Math.exp(-event.deltaY / 300), this.time(event.offsetX));
      else if (this.view && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
        const [from, to] = this.window();
        this.shift(from + sideways * (to - from) / this.width, to - from);
      } else return;
      event.preventDefault();
    }

    dblclick(event) { if (!this.found(event)) { this.view = null; this.soon(); } }
  }

  function adopt(mark, tries = 0) {
    const panel = mark.closest(".lsp-panel"), place = mark.closest(".lsp-schedule");
    const data = place?.querySelector(".lsp-data"), hand = place?.querySelector(".lsp-hand input");
    if (panel && panel.isConnected && data && hand) place.grid = new Grid(place, data, hand); // for tests, too
    else if (tries < 200) setTimeout(() => adopt(mark, tries + 1), 25);
  }

  return { adopt };
})()
