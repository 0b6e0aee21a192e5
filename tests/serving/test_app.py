import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tally import Tally, literal

from recollect.agents import hub
from recollect.agents.model_sources import find_model
from recollect.serving import Client, ServingConfig, StreamStore, serve
from recollect.serving.client import ServerError
from recollect.serving.server import http_address

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
uvicorn = pytest.importorskip("uvicorn")
from starlette.testclient import TestClient  # noqa: E402
from starlette.websockets import WebSocketDisconnect  # noqa: E402

from recollect.serving.app import make_app  # noqa: E402

TOKEN = "a-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SOURCES = Path(__file__).parents[2] / "src"


def app(reload=None, **options):
    config = ServingConfig(**{"capacity": 4, "rollback": 2, "most_bytes": 1000} | options)
    return make_app(StreamStore(Tally(), config), token=TOKEN, reload=reload)


@pytest.fixture
def client():
    with TestClient(app(lambda: Tally(3.0)), headers=HEADERS) as found:
        yield found


def step(client, id, number, **options):
    found = client.post(f"/streams/{id}/step", json={"inputs": [number], **options})
    assert found.status_code == 200, found.text
    return found.json()


def test_a_stream_from_its_beginning_to_its_end(client):
    assert client.get("/model").json()["inputs"]["inputs"]["shape"] == [1]
    made = client.post("/streams", json={"id": "a"})
    assert made.status_code == 201 and made.json()["steps"] == 0
    own = []
    for number in (5, 6, 7):
        own.append((number, not own))
        answer = step(client, "a", number, at=len(own) - 1)
        assert answer["outputs"]["outputs"] == literal(own) and answer["steps"] == len(own)
        assert re.fullmatch("[0-9a-f]{12}", answer["weights"])
    assert client.post("/streams/a/fork", json={"id": "b"}).json()["steps"] == 3
    assert client.post("/streams/a/rollback", json={"steps": 2}).json()["steps"] == 1
    assert step(client, "a", 8)["outputs"]["outputs"] == literal([*own[:1], (8, False)])
    assert client.post("/streams/b/evict").json()["in_memory"] is False
    assert step(client, "b", 9)["outputs"]["outputs"] == literal([*own, (9, False)])
    assert step(client, "b", 1, is_first=True)["outputs"]["outputs"] == literal([(1, True)])
    assert client.post("/streams/b/restore").json()["in_memory"] is True
    swapped = client.post("/weights").json()["weights"]
    assert swapped != answer["weights"]
    assert step(client, "b", 2)["weights"] == swapped
    assert client.delete("/streams/b").status_code == 204
    assert client.get("/streams/b").status_code == 404


def test_several_streams_in_one_request(client):
    for name in "ab":
        client.post("/streams", json={"id": name})
    steps = [
        {"id": "a", "inputs": [1]},
        {"id": "x", "inputs": [1]},
        {"id": "b", "inputs": [2]},
        {"id": "a", "inputs": 3},
    ]
    answers = client.post("/step", json={"steps": steps}).json()["answers"]
    assert [answer.get("status", 200) for answer in answers] == [200, 404, 200, 422]
    assert answers[2]["outputs"]["outputs"] == literal([(2, True)]) and "shape" in answers[3]["error"]


REFUSED = {
    "no such stream": ("POST", "/streams/x/step", b'{"inputs": [1]}', 404, "create it with POST /streams"),
    "bad id": ("POST", "/streams", b'{"id": "../etc"}', 400, "give 1 to 64 letters"),
    "no text": ("POST", "/streams", b'{"id": 5}', 400, "give 1 to 64 letters"),
    "id exists": ("POST", "/streams", b'{"id": "a"}', 409, "give another id"),
    "no JSON": ("POST", "/streams/a/step", b"{", 400, "no JSON"),
    "deep": ("POST", "/streams/a/step", b"[" * 999, 400, "no JSON"),
    "no object": ("POST", "/streams/a/step", b"[1]", 400, "give an object"),
    "oversized": ("POST", "/streams/a/step", b"[" + b"1," * 999 + b"1]", 413, "more than 1000 bytes"),
    "nan": ("POST", "/streams/a/step", b'{"inputs": [NaN]}', 422, "NaN is no number of JSON"),
    "infinite": ("POST", "/streams/a/step", b'{"inputs": [1e999]}', 422, "send finite numbers"),
    "shape": ("POST", "/streams/a/step", b'{"inputs": [1, 2]}', 422, "inputs has shape [2]; give one row of shape [1]"),
    "text": ("POST", "/streams/a/step", b'{"inputs": ["1"]}', 422, "no numbers"),
    "none": ("POST", "/streams/a/step", b'{"is_first": true}', 422, "they are missing; give inputs"),
    "unknown field": ("POST", "/streams/a/step", b'{"inputs": [1], "first": true}', 400, "there is no such field"),
    "half of a character": ("POST", "/streams", b'{"\\ud800": 1}', 400, r"\ud800: there is no such field"),
    "half of an input": ("POST", "/streams/a/step", b'{"inputs": {"\\ud800": 1}}', 422, "there is no such input"),
    "is_first": ("POST", "/streams/a/step", b'{"inputs": [1], "is_first": 1}', 400, "give true or false"),
    "at": ("POST", "/streams/a/step", b'{"inputs": [1], "at": 7}', 409, "has taken 0 steps"),
    "rollback": ("POST", "/streams/a/rollback", b'{"steps": 1}', 409, "0 steps of stream 'a' can be rolled back"),
    "no number": ("POST", "/streams/a/rollback", b'{"steps": "1"}', 400, "give the number of steps"),
    "action": ("POST", "/streams/a/explode", b"", 404, "use step, fork, rollback, evict or restore"),
    "page": ("GET", "/nothing", b"", 404, "there is no such page"),
    "method": ("PUT", "/streams", b"", 405, "docs/serve.md"),
    "steps": ("POST", "/step", b'{"steps": 1}', 400, "give a list"),
}


@pytest.fixture(scope="module")
def shared_client():
    with TestClient(app(), headers=HEADERS) as found:
        found.post("/streams", json={"id": "a"})
        yield found


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why_on_one_line(shared_client, case):
    method, path, body, status, line = REFUSED[case]
    found = shared_client.request(method, path, content=body)
    assert (found.status_code, list(found.json())) == (status, ["error"])
    assert line in found.json()["error"] and "\n" not in found.json()["error"]
    assert shared_client.get("/streams/a").json()["steps"] == 0


def test_a_token_is_asked_for_everywhere_but_at_the_door(shared_client):
    for path in ("/metrics", "/model", "/streams/a"):
        for header in ("", "Bearer", "Bearer other", f"Basic {TOKEN}"):
            found = shared_client.get(path, headers={"Authorization": header})
            assert found.status_code == 401 and "Authorization: Bearer TOKEN" in found.json()["error"]
    health = shared_client.get("/health", headers={"Authorization": ""})
    assert health.status_code == 200 and health.json()["status"] == "ok"
    with (
        pytest.raises(WebSocketDisconnect),
        shared_client.websocket_connect("/streams/a/frames", headers={"Authorization": ""}),
    ):
        pass


@pytest.mark.parametrize("token", ["", "a token", "token\n", "tökén"])
def test_a_token_that_no_header_can_send_is_refused(token):
    with pytest.raises(ValueError, match=r"token=.*give ASCII characters without spaces"):
        serve("none", token=token)


def test_full_places_full_disk_and_no_other_weights(monkeypatch):
    import errno

    import recollect.files

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recollect.files, "write_synced", full)
    with TestClient(app(capacity=1, most_streams=2), headers=HEADERS) as client:
        client.post("/streams", json={"id": "a"})
        found = client.post("/streams")
        assert found.status_code == 507 and "memory is full (capacity=1)" in found.json()["error"]
        assert step(client, "a", 1)["steps"] == 1
        assert client.post("/weights").status_code == 409


def test_weights_that_cannot_be_loaded_leave_the_old_ones():
    def reload():
        raise ValueError("model.safetensors: the file is damaged")

    with TestClient(app(reload), headers=HEADERS) as client:
        old = client.get("/health").json()["weights"]
        found = client.post("/weights")
        assert found.status_code == 409 and "the old ones stay" in found.json()["error"]
        assert client.get("/health").json()["weights"] == old


def test_frames_of_a_socket_and_a_client_that_vanishes(client):
    client.post("/streams", json={"id": "a"})
    own = []
    with client.websocket_connect("/streams/a/frames") as socket:
        for number in (3, 4):
            socket.send_text(json.dumps({"inputs": [number]}))
            own.append((number, not own))
            assert socket.receive_json()["outputs"]["outputs"] == literal(own)
        socket.send_bytes(np.array([7], dtype="<f4").tobytes())
        own.append((7, False))
        assert socket.receive_json()["outputs"]["outputs"] == literal(own)
        socket.send_bytes(b"123")
        assert socket.receive_json() == {"error": "inputs: a frame of 3 bytes; give 4, float32 [1]", "status": 422}
        socket.send_bytes(np.array([np.nan], dtype="<f4").tobytes())
        assert socket.receive_json()["status"] == 422
        socket.send_text("{")
        assert socket.receive_json()["status"] == 400
        socket.send_bytes(np.array([8], dtype="<f4").tobytes())  # and goes away
    assert client.get("/streams/a").json()["steps"] in (3, 4)
    with client.websocket_connect("/streams/a/frames", subprotocols=["recollect", f"token.{TOKEN}"]) as socket:
        socket.send_text('{"is_first": true}')
        socket.send_bytes(np.array([2], dtype="<f4").tobytes())
        assert socket.receive_json()["outputs"]["outputs"] == literal([(2, True)])


def test_an_episode_begins_once_where_its_first_answer_is_not_finite():
    weight = 2.0**127
    front = make_app(StreamStore(Tally(weight), ServingConfig(capacity=1)), token=TOKEN)
    with TestClient(front, headers=HEADERS) as client:
        client.post("/streams", json={"id": "a"})
        with client.websocket_connect("/streams/a/frames") as socket:
            socket.send_text('{"is_first": true}')
            socket.send_text('{"inputs": [100]}')
            assert socket.receive_json()["status"] == 500
            socket.send_text('{"inputs": [1]}')
            assert socket.receive_json()["outputs"]["outputs"] == literal([(100, True), (1, False)], weight)
        assert client.get("/streams/a").json()["steps"] == 2


def test_metrics_are_prometheus_text(client):
    client.post("/streams", json={"id": "a"})
    step(client, "a", 1)
    client.post("/streams/none/step", json={"inputs": [1]})
    text = client.get("/metrics").text
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = re.fullmatch(r"([a-z_]+(?:\{[a-z]+=\"[^\"]+\"\})?) (\S+)", line).groups()
            values[name] = float(value)
    assert values["recollect_steps_total"] == 1 and values['recollect_streams{place="memory"}'] == 1
    assert values['recollect_events_total{event="refused 404"}'] == 1
    assert values['recollect_answer_seconds_bucket{le="+Inf"}'] == values["recollect_answer_seconds_count"] == 1
    assert values["recollect_resident_bytes"] > 1e7 and 'recollect_weights{version="' in text
    declared = set(re.findall(r"# TYPE (\S+)", text))
    assert {re.sub(r"(\{.*|_bucket.*|_sum|_count)$", "", name) for name in values} <= declared


@pytest.fixture
def server(request):
    """A server of a thread on a free port of this machine; the parameter is the time after which it hangs up."""
    config = uvicorn.Config(app(), port=0, log_level="warning", timeout_keep_alive=getattr(request, "param", 60))
    running = uvicorn.Server(config)
    running.install_signal_handlers = lambda: None
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        thread.join(0.02)
        assert thread.is_alive()
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(600)


def test_the_python_client(server):
    client = Client(server, TOKEN)
    robot = client.create("robot-7")
    assert robot.step([5])["outputs"]["outputs"] == literal([(5, True)])
    twin = robot.fork()
    assert robot.step([6], at=1)["steps"] == 2
    assert robot.roll_back(1)["steps"] == 1 and robot.evict()["in_memory"] is False
    answers = client.step_all([{"id": robot.id, "inputs": [7]}, {"id": twin.id, "inputs": [8]}])
    assert [one["outputs"]["outputs"] for one in answers] == [literal([(5, True), (n, False)]) for n in (7, 8)]
    twin.delete()
    with pytest.raises(ServerError, match="there is none; create it") as found:
        twin.about()
    assert found.value.status == 404 and "recollect_steps_total" in client.ask("GET", "/metrics")
    source = client.ask("GET", "/client.py")
    client.close()
    assert "import recollect" not in source and len(source.splitlines()) <= 100


def test_the_python_client_encrypts_where_the_address_says_so():
    assert isinstance(Client("https://robots.example.org", TOKEN)._connection, http.client.HTTPSConnection)


@pytest.mark.parametrize("server", [1], indirect=True)
def test_a_client_that_was_idle_opens_a_new_connection(server, monkeypatch):
    monkeypatch.setattr("recollect.serving.client.IDLE", 0.5)
    client = Client(server, TOKEN)
    robot = client.create()
    time.sleep(2.5)  # the server has closed the connection
    assert robot.step([5])["steps"] == 1
    client.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_javascript_client(server, tmp_path):
    client = Client(server, TOKEN)
    (tmp_path / "client.mjs").write_text(client.ask("GET", "/client.mjs"))
    client.close()
    (tmp_path / "test.mjs").write_text("""
import { Client } from "./client.mjs";
const [address, token] = process.argv.slice(2), found = [];
const robot = await new Client(address + "/", token).create("robot-7");
found.push((await robot.step([5])).outputs.outputs);
const twin = await robot.fork();
found.push((await robot.step([6], { at: 1 })).outputs.outputs, (await robot.rollBack(1)).steps);
await twin.delete();
await twin.step([1]).catch((error) => found.push(error.status, error.message));
class Socket {  // what Node 20 has none of yet: the address and the protocols are what is asked of it
  constructor(url, protocols) { Object.assign(this, { url, protocols }); setTimeout(() => this.onopen(), 0); }
  send(data) { this.onmessage({ data: JSON.stringify([this.url, this.protocols, data]) }); }
  close() {}
}
const answers = [], frames = robot.frames((answer) => answers.push(answer), Socket);
await frames.send({ inputs: [9] });
await frames.send(new Float32Array([1]));
class Closed { constructor() { setTimeout(() => this.onerror(new Error("no connection")), 0); } }
robot.frames(() => {}, Closed);  // without a frame, nobody waits for it
await robot.frames(() => {}, Closed).send(new Uint8Array(1)).catch((error) => found.push(error.message));
console.log(JSON.stringify([...found, ...answers]));
""")
    command = ["node", str(tmp_path / "test.mjs"), server, TOKEN]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    first, second, steps, status, line, failure, frame, binary = json.loads(shown)
    assert failure == "no connection"
    assert [first, second, steps] == [literal([(5, True)]), literal([(5, True), (6, False)]), 1]
    assert status == 404 and "create it with POST /streams" in line
    url = f"{server.replace('http', 'ws')}/streams/robot-7/frames"
    assert frame == [url, ["recollect", f"token.{TOKEN}"], '{"inputs":[9]}']
    assert binary[2] == {"0": 1}


@pytest.mark.long
def test_the_command_serves_until_a_signal_and_goes_on_from_its_folder(tmp_path):
    words = ["serve", "model:cartpole-lstm", "--port", "0", "--capacity", "2", "--folder", str(tmp_path / "streams")]
    steps = []
    for attempt, number in enumerate((signal.SIGTERM, signal.SIGINT)):
        code = (
            f"import sys; sys.path.insert(0, {str(SOURCES)!r}); from recollect.cli import main; sys.exit(main({words}))"
        )
        running = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            address, _, token = running.stdout.readline().split()
            assert address.startswith("http://127.0.0.1:") and len(token) >= 32
            client = Client(address, token, timeout=60)
            model = client.ask("GET", "/model")
            shape = model["inputs"]["observation"]["shape"]
            robot = client.create("robot") if not attempt else None
            body = {"inputs": {"observation": np.zeros(shape).tolist(), "reward": 0.0, "previous_action": 0}}
            body["inputs"] = {name: value for name, value in body["inputs"].items() if name in model["inputs"]}
            steps.append(client.ask("POST", "/streams/robot/step", body)["steps"])
            assert robot is None or robot.about()["in_memory"]
            client.close()
        finally:
            running.send_signal(number)
            _, err = running.communicate(timeout=600)
        assert running.returncode == 0 and "Traceback" not in err, err
    assert steps == [1, 2]


def test_an_ipv6_address_is_in_brackets():
    assert http_address("::1", 8000) == "http://[::1]:8000"
    assert http_address("127.0.0.1", 8000) == "http://127.0.0.1:8000"


def test_weights_of_a_hub_are_looked_for_in_the_hub_again(monkeypatch, tmp_path):
    class EnoughError(Exception):
        pass

    def make_app(store, *, reload, **options):
        reload()
        raise EnoughError

    asked = []
    monkeypatch.setattr(hub, "download", lambda name, revision: asked.append(name) or tmp_path)
    monkeypatch.setattr("recollect.serving.server.load_model", lambda source: find_model(source) and Tally())
    monkeypatch.setattr("recollect.serving.app.make_app", make_app)
    with pytest.raises(EnoughError):
        serve("hub:me/served", port=0)
    assert asked == ["me/served", "me/served"]
