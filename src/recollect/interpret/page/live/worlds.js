/* The worlds: one class for each entry of LIVE_WORLDS, a port of the Python world (tasks/worlds/t_maze.py) and its
   picture (t_maze_picture.py). */
class TMaze {
  constructor(config, up) {
    this.config = config; this.up = up; this.x = 0; this.clock = 0; this.seen = config.active ? -1 : 0;
    this.reward = 0; this.score = null; this.over = false; this.turn = 0;
  }
  get cue() { return this.config.active ? -1 : 0; }
  copy() { return Object.assign(new TMaze(this.config, this.up), this); }
  mirrored() { return Object.assign(this.copy(), { up: !this.up }); }
  /* Start, junction, cue up, cue down. */
  observe() {
    const cue = this.x === this.cue;
    return Float32Array.of(this.x === 0, this.x === this.config.length, cue && this.up, cue && !this.up);
  }
  step(action) {
    const { length, active, slack, penalty } = this.config;
    const at = this.x === length, turned = at && action % 2 === 1, right = (action === 1) === this.up;
    let idle = !turned && (at || action !== 0);
    if (active) idle &&= action !== 2 || this.x !== 0 || this.seen >= 0;
    this.x = Math.min(Math.max(this.x + [1, 0, -1, 0][action], this.cue), length);
    this.clock += 1;
    if (this.x === this.cue) this.seen = this.clock;
    this.turn = turned ? (action === 1 ? 1 : -1) : 0;
    this.reward = Math.fround((turned && right ? 1 : 0) - (idle ? Math.fround(penalty) : 0));
    this.over = turned || this.clock >= length + 1 + 2 * active + slack;
    if (this.over) this.score = turned && right ? 1 : 0;
  }
  /* The observation in words; empty in the corridor. */
  words() { return this.x === this.cue ? `cue ${this.up ? "up" : "down"}` : this.x === this.config.length ? "junction" : ""; }
  outcome() {
    if (!this.over) return ["open", "playing"];
    if (!this.turn) return ["bad", "out of time"];
    return this.score ? ["good", "right side"] : ["bad", "wrong side"];
  }
  draw(canvas) {
    const size = 16, { length } = this.config, shown = Math.min(19, length + 1 - this.cue);
    const first = Math.min(Math.max(this.x - (shown >> 1), this.cue), length + 1 - shown);
    canvas.width = shown * size; canvas.height = 5 * size;
    const pen = canvas.getContext("2d");
    const fill = (row, column, paint, inset = 0) => {
      pen.fillStyle = paint;
      pen.fillRect(column * size + inset, row * size + inset, size - 2 * inset, size - 2 * inset);
    };
    pen.fillStyle = "#14171b"; pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = "#585c62"; pen.fillRect(0, size, canvas.width, 3 * size);
    for (let place = first; place < first + shown; place++)
      fill(2, place - first, place === this.cue ? "#345cb2" : place % 2 ? "#2e3238" : "#26292e");
    if (length < first + shown) { // for the person only: the agent does not see it
      fill(1, length - first, this.up ? "#1e9646" : "#96322d"); fill(3, length - first, this.up ? "#96322d" : "#1e9646");
    }
    fill(2 - this.turn, this.x - first, "#ffd60a", 3);
    if (this.x === this.cue) {
      const left = (this.x - first) * size, [tip, base] = this.up ? [2, 14] : [14, 2];
      pen.beginPath(); pen.moveTo(left + 8, tip); pen.lineTo(left + 14, base); pen.lineTo(left + 2, base); pen.fill();
    }
    const y = 4 * size + 6, middle = Math.round((this.x - this.cue) / (length - this.cue) * (canvas.width - 8));
    pen.fillStyle = "#585c62"; pen.fillRect(0, y, canvas.width, 4);
    pen.fillStyle = "#ffd60a"; pen.fillRect(middle, y, 8, 4);
  }
}
const WORLDS = { "t-maze": TMaze };
