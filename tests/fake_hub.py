"""A Hugging Face Hub on loopback: the endpoints that ``huggingface_hub`` uses to make, write and read a repository."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_writer"


class FakeHub(ThreadingHTTPServer):
    """Repositories in memory: every commit has all files by path, as bytes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.large: dict[str, bytes] = {}  # by SHA-256
        self.requests: list[str] = []

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repository):
        return self.repositories[repository][-1][1]

    def commit(self, repository, files):
        history = self.repositories.setdefault(repository, [])
        everything = {**(history[-1][1] if history else {}), **files}
        listing = "".join(f"{path}{hashlib.sha256(data).hexdigest()}" for path, data in sorted(everything.items()))
        history.append((hashlib.sha1(f"{len(history)}{listing}".encode()).hexdigest(), everything))
        return history[-1][0]


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_):
        pass

    def _answer(self, status, data=b"", **headers):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _route(self):
        path = self.path.partition("?")[0]
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.requests.append(f"{self.command} {path}")
        for method, pattern, action in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method:
                if method == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return self._answer(401, {"error": "Invalid username or password."})
                return action(self, body, *found.groups())
        return self._answer(404, {"error": f"no such endpoint: {self.command} {path}"}, X_Error_Code="EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = _route  # noqa: N815

    def _found(self, repository, revision):
        history = self.server.repositories.get(repository)
        if history is None:
            self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        commits = dict(history)
        commit = history[-1][0] if revision == "main" else revision
        if commit not in commits:
            self._answer(404, {"error": f"Invalid rev id: {revision}"}, X_Error_Code="RevisionNotFound")
            return None
        return commit, commits[commit]

    def create(self, body):
        asked = json.loads(body)
        repository = f"{asked['organization']}/{asked['name']}"
        there = repository in self.server.repositories
        if not there:
            self.server.commit(repository, {".gitattributes": b"*.safetensors filter=lfs\n"})
        self._answer(409 if there else 200, {"url": f"{self.server.endpoint}/{repository}", "name": repository})

    def validate(self, body):
        text = json.loads(body)["content"]
        errors = [] if text.startswith("---\n") else [{"message": "no front matter"}]
        self._answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def preupload(self, body, repository, revision):
        if self._found(repository, revision):
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self._answer(200, {"files": modes})

    def batch(self, body, repository):
        objects = []
        for one in json.loads(body)["objects"]:
            upload = {"href": f"{self.server.endpoint}/large/{one['oid']}", "header": {}}
            objects.append({**one, "actions": {"upload": upload}})
        self._answer(200, {"transfer": "basic", "objects": objects})

    def put(self, body, digest):
        right = hashlib.sha256(body).hexdigest() == digest
        if right:
            self.server.large[digest] = body
        self._answer(200 if right else 400)

    def commit(self, body, repository, revision):
        files = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        commit = self.server.commit(repository, files)
        self._answer(200, {"commitUrl": f"{self.server.endpoint}/{repository}/commit/{commit}", "commitOid": commit})

    def info(self, _, repository, revision="main"):
        found = self._found(repository, revision)
        if found:
            names = [{"rfilename": path} for path in found[1]]
            self._answer(200, {"id": repository, "sha": found[0], "siblings": names, "private": False, "tags": []})

    def tree(self, _, repository, revision):
        found = self._found(repository, revision)
        if found:
            self._answer(200, [_entry(path, data) for path, data in found[1].items()])

    def resolve(self, _, repository, revision, path):
        found = self._found(repository, revision)
        if found and path not in found[1]:
            self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        elif found:
            data = found[1][path]
            self._answer(200, data, ETag=f'"{_digest(path, data)}"', X_Repo_Commit=found[0])


def _digest(path, data):
    if path.endswith(".safetensors"):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # as git does


def _entry(path, data):
    entry = {"type": "file", "path": path, "size": len(data), "oid": _digest(path, data)}
    if path.endswith(".safetensors"):
        entry["lfs"] = {"oid": _digest(path, data), "size": len(data), "pointerSize": 134}
    return entry


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = [
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("POST", f"/api/models/{NAME}/preupload/(.+)", Handler.preupload),
    ("POST", f"/{NAME}\\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/large/(.+)", Handler.put),
    ("POST", f"/api/models/{NAME}/commit/(.+)", Handler.commit),
    ("GET", f"/api/models/{NAME}/revision/(.+)", Handler.info),
    ("GET", f"/api/models/{NAME}", Handler.info),
    ("GET", f"/api/models/{NAME}/tree/(.+)", Handler.tree),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]
