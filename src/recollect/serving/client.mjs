// Client of `recollect serve` for browsers, Node and Deno:
//   const client = new Client("http://127.0.0.1:8000", token), robot = await client.create("robot-7");
//   const { outputs, steps, weights } = await robot.step({ observation: [0.1, 0.2], reward: 0 });
//   const camera = robot.frames(({ outputs, error }) => show(outputs));  camera.send(frame);  // typed array or object

export class Client {
  constructor(address, token) { Object.assign(this, { address: address.replace(/\/+$/, ""), token }); }

  async ask(method, path, body) {
    const headers = { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" };
    const response = await fetch(this.address + path, { method, headers, body: body && JSON.stringify(body) });
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    const data = await (isJson ? response.json() : response.text());
    if (!response.ok) throw Object.assign(new Error(data.error ?? data), { status: response.status });
    return data;
  }

  async create(id) { return new RemoteStream(this, (await this.ask("POST", "/streams", id ? { id } : {})).id); }
}

export class RemoteStream {
  constructor(client, id) { Object.assign(this, { client, id, path: `/streams/${encodeURIComponent(id)}` }); }

  step(inputs, options = {}) { return this.client.ask("POST", `${this.path}/step`, { inputs, ...options }); }
  rollBack(steps) { return this.client.ask("POST", `${this.path}/rollback`, { steps }); }
  async fork(id) {
    return new RemoteStream(this.client, (await this.client.ask("POST", `${this.path}/fork`, id ? { id } : {})).id);
  }
  delete() { return this.client.ask("DELETE", this.path); }

  frames(onAnswer, Socket = WebSocket) { // one step for every frame, answered in order
    const url = `${this.client.address.replace(/^http/, "ws")}${this.path}/frames`;
    const socket = new Socket(url, ["recollect", `token.${this.client.token}`]);
    socket.onmessage = (message) => onAnswer(JSON.parse(message.data));
    const opened = new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });
    opened.catch(() => {}); // whoever sends is told
    const send = async (frame) => {
      await opened;
      socket.send(ArrayBuffer.isView(frame) ? frame : JSON.stringify(frame));
    };
    return { send, close: () => socket.close() };
  }
}
