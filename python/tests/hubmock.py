"""A mock of the Hugging Face Hub on loopback that holds its data in memory.

The mock implements the part of the HTTP API that huggingface_hub and our reader use. Rate limits,
Xet and the checks of the real Hub are missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_mockmockmockmock"
PAGE = 5  # entries per page of a listing


class Repo:
    def __init__(self, private: bool) -> None:
        self.private = private
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.add("main", {".gitattributes": b"*.mp4 filter=lfs\n"})

    def add(self, branch: str, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(
            repr((len(self.commits), sorted(files), self.branches)).encode()
        ).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def at(self, rev: str) -> str | None:
        rev = self.branches.get(rev) or self.tags.get(rev) or rev
        return rev if rev in self.commits else None


def lfs(path: str, data: bytes) -> bool:
    return not path.endswith((".md", ".json", ".jsonl", ".gitattributes"))


class Hub:
    """A server that mocks the Hub.

    strike(method, path) injects a fault: it returns the status to send instead of the answer,
    "reset" to close the connection, or None to answer normally.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.log: list[tuple[str, str]] = []
        # tokens received at the address of the files; no token may be sent there
        self.tokens: set[str] = set()
        self.strike: Callable[[str, str], Any] = lambda method, path: None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *a: Any) -> None: ...

            def do(self) -> None:
                hub.answer(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def count(self, method: str, part: str) -> int:
        return sum(m == method and part in p for m, p in self.log)

    def answer(self, r: BaseHTTPRequestHandler) -> None:
        u = urlsplit(r.path)
        path, query = unquote(u.path), parse_qs(u.query)
        self.log.append((r.command, path))
        what = self.strike(r.command, path)
        if what == "reset":
            r.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            r.close_connection = True
            r.connection.close()
            return
        body = (
            r.rfile.read(int(r.headers.get("Content-Length") or 0))
            if r.headers.get("Transfer-Encoding") != "chunked"
            else self.chunks(r)
        )
        if what:
            self.send(r, what, {"error": f"struck {what}"}, {"Retry-After": "0"})
            return
        token = (r.headers.get("Authorization") or "").removeprefix("Bearer ")
        if path.startswith(("/lfs/", "/cdn/")):
            self.tokens |= {token} - {""}
            oid = path.rsplit("/", 1)[1]
            if r.command == "PUT":
                if hashlib.sha256(body).hexdigest() != oid:
                    self.send(r, 400, {"error": "sha256"})
                    return
                self.blobs[oid] = body
                self.send(r, 200, {})
            else:
                self.file(r, self.blobs[oid], {"ETag": '"elsewhere"'})
            return
        if token not in ("", TOKEN):
            self.send(r, 401, {"error": "Invalid credentials in Authorization header"})
            return
        for pattern, do in self.routes():
            if m := re.fullmatch(pattern, f"{r.command} {path}"):
                if m.re.groups and (name := m.group(1)) and "create" not in pattern:
                    repo = self.repos.get(name)
                    if repo is None or repo.private and not token:
                        self.send(
                            r,
                            401 if not token else 404,
                            {"error": "Repository not found"},
                            {
                                "X-Error-Code": "RepoNotFound",
                                "X-Error-Message": "Repository not found",
                            },
                        )
                        return
                    if r.command in ("POST", "DELETE") and not token:
                        self.send(r, 401, {"error": "no token"})
                        return
                do(r, m, query, body)
                return
        self.send(r, 404, {"error": f"the mock knows no {r.command} {path}"})

    @staticmethod
    def chunks(r: BaseHTTPRequestHandler) -> bytes:
        out = b""
        while n := int(r.rfile.readline(), 16):
            out += r.rfile.read(n)
            r.rfile.readline()
        r.rfile.readline()
        return out

    def send(
        self,
        r: BaseHTTPRequestHandler,
        status: int,
        answer: Any,
        headers: dict[str, str] | None = None,
    ) -> None:
        b = json.dumps(answer).encode()
        r.send_response(status)
        for k, v in {
            "Content-Type": "application/json",
            "Content-Length": str(len(b)),
            **(headers or {}),
        }.items():
            r.send_header(k, v)
        r.end_headers()
        if r.command != "HEAD":
            r.wfile.write(b)

    def file(self, r: BaseHTTPRequestHandler, data: bytes, headers: dict[str, str]) -> None:
        status, total = 200, len(data)
        if m := re.fullmatch(r"bytes=(\d+)-(\d*)", r.headers.get("Range") or ""):
            a, b = int(m[1]), min(int(m[2] or total), total - 1)
            if a >= total:
                self.send(r, 416, {}, {"Content-Range": f"bytes */{total}"})
                return
            status, data, headers = (
                206,
                data[a : b + 1],
                {**headers, "Content-Range": f"bytes {a}-{b}/{total}"},
            )
        r.send_response(status)
        for k, v in {"Content-Length": str(len(data)), "Accept-Ranges": "bytes", **headers}.items():
            r.send_header(k, v)
        r.end_headers()
        if r.command != "HEAD":
            r.wfile.write(data)

    def routes(self) -> list[tuple[str, Callable[..., None]]]:
        i = r"([\w.-]+/[\w.-]+)"
        return [
            (r"POST /api/repos/create", self.create),
            (
                r"POST /api/validate-yaml",
                lambda r, m, q, b: self.send(r, 200, {"errors": [], "warnings": []}),
            ),
            (rf"GET /api/datasets/{i}(?:/revision/(.+))?", self.info),
            (rf"GET /api/datasets/{i}/tree/([^/]+)/?(.*)", self.tree),
            (rf"GET /api/datasets/{i}/refs", self.refs),
            (rf"POST /api/datasets/{i}/branch/(.+)", self.branch),
            (rf"POST /api/datasets/{i}/tag/(.+)", self.tag),
            (rf"DELETE /api/datasets/{i}/tag/(.+)", self.untag),
            (rf"POST /api/datasets/{i}/preupload/(.+)", self.preupload),
            (rf"POST /datasets/{i}.git/info/lfs/objects/batch", self.batch),
            (rf"POST /api/datasets/{i}/commit/(.+)", self.commit),
            (rf"(?:GET|HEAD) /datasets/{i}/resolve/([^/]+)/(.+)", self.resolve),
        ]

    def create(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        d = json.loads(body)
        name = f"{d.get('organization') or 'me'}/{d['name']}" if "/" not in d["name"] else d["name"]
        if r.headers.get("Authorization") is None:
            self.send(r, 401, {"error": "no token"})
        elif name in self.repos:
            self.send(
                r,
                409,
                {
                    "error": "You already created this dataset repo",
                    "url": f"{self.url}/datasets/{name}",
                },
            )
        else:
            self.repos[name] = Repo(bool(d.get("private")) or d.get("visibility") == "private")
            self.send(r, 200, {"url": f"{self.url}/datasets/{name}", "name": name})

    def found(self, r: Any, m: Any, rev: str) -> tuple[Repo, str | None]:
        repo = self.repos[m[1]]
        sha = repo.at(rev)
        if sha is None:
            self.send(
                r,
                404,
                {"error": f"Invalid rev id: {rev}"},
                {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {rev}"},
            )
        return repo, sha

    def info(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo, sha = self.found(r, m, m[2] or "main")
        if sha:
            siblings = [{"rfilename": p} for p in sorted(repo.commits[sha])]
            self.send(
                r,
                200,
                {
                    "id": m[1],
                    "_id": "1",
                    "sha": sha,
                    "private": repo.private,
                    "tags": [],
                    "siblings": siblings,
                },
                {"X-Repo-Commit": sha},
            )

    def tree(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo, sha = self.found(r, m, m[2])
        if not sha:
            return
        out: list[dict[str, Any]] = []
        folder = m[3] + "/" if m[3] else ""
        deep = q.get("recursive", [""])[0].lower() in ("true", "1")
        folders: set[str] = set()
        for p, data in sorted(repo.commits[sha].items()):
            if not p.startswith(folder):
                continue
            parts = p[len(folder) :].split("/")
            for n in range(1, len(parts)):
                if (deep or n == 1) and (d := folder + "/".join(parts[:n])) not in folders:
                    folders.add(d)
                    out.append({"type": "directory", "path": d, "size": 0, "oid": "0" * 40})
            if deep or len(parts) == 1:
                git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
                e: dict[str, Any] = {"type": "file", "path": p, "size": len(data), "oid": git}
                if lfs(p, data):
                    e["lfs"] = {
                        "oid": hashlib.sha256(data).hexdigest(),
                        "size": len(data),
                        "pointerSize": 130,
                    }
                out.append(e)
        if folder and not out:
            self.send(r, 404, {"error": "no folder"}, {"X-Error-Code": "EntryNotFound"})
            return
        at = int(q.get("cursor", ["0"])[0])
        more = (
            {
                "Link": (
                    f"<{self.url}/api/datasets/{m[1]}/tree/{m[2]}/{m[3]}"
                    f"?recursive={deep}&cursor={at + PAGE}>; "
                    'rel="next"'
                )
            }
            if at + PAGE < len(out)
            else {}
        )
        self.send(r, 200, out[at : at + PAGE], more)

    def refs(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo = self.repos[m[1]]
        one = lambda kind, refs: [
            {"name": n, "ref": f"refs/{kind}/{n}", "targetCommit": c} for n, c in refs.items()
        ]  # noqa: E731
        self.send(
            r,
            200,
            {
                "branches": one("heads", repo.branches),
                "tags": one("tags", repo.tags),
                "converts": [],
            },
        )

    def branch(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo = self.repos[m[1]]
        if m[2] in repo.branches:
            self.send(r, 409, {"error": "exists"})
            return
        repo.branches[m[2]] = repo.branches["main"]
        self.send(r, 201, {})

    def tag(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo, name = self.repos[m[1]], json.loads(body)["tag"]
        if name in repo.tags:
            self.send(r, 409, {"error": "tag exists"})
            return
        repo.tags[name] = repo.at(m[2]) or ""
        self.send(r, 201, {})

    def untag(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        self.repos[m[1]].tags.pop(m[2], None)
        self.send(r, 200, {})

    def preupload(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        files = json.loads(body)["files"]
        self.send(
            r,
            200,
            {
                "files": [
                    {
                        "path": f["path"],
                        "uploadMode": "lfs" if lfs(f["path"], b"") else "regular",
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for f in files
                ]
            },
        )

    def batch(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        out = []
        for o in json.loads(body)["objects"]:
            e: dict[str, Any] = {"oid": o["oid"], "size": o["size"], "authenticated": True}
            if o["oid"] not in self.blobs:
                e["actions"] = {"upload": {"href": f"{self.url}/lfs/{o['oid']}", "header": {}}}
            out.append(e)
        self.send(
            r,
            200,
            {"transfer": "basic", "objects": out},
            {"Content-Type": "application/vnd.git-lfs+json"},
        )

    def commit(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo = self.repos[m[1]]
        parent = repo.branches.get(m[2])
        lines = [json.loads(line) for line in body.decode().splitlines() if line]
        files = dict(repo.commits[parent]) if parent else {}
        for line in lines:
            v = line["value"]
            if line["key"] == "header" and v.get("parentCommit") not in (None, parent):
                self.send(
                    r, 412, {"error": "A commit has happened since. Please refresh and try again."}
                )
                return
            if line["key"] == "file":
                files[v["path"]] = base64.b64decode(v["content"])
            if line["key"] == "lfsFile":
                files[v["path"]] = self.blobs[v["oid"]]
            if line["key"] == "deletedFile":
                del files[v["path"]]
        sha = repo.add(m[2], files)
        self.send(
            r,
            200,
            {
                "success": True,
                "commitOid": sha,
                "commitUrl": f"{self.url}/datasets/{m[1]}/commit/{sha}",
                "hookOutput": "",
            },
        )

    def resolve(self, r: Any, m: Any, q: Any, body: bytes) -> None:
        repo, sha = self.found(r, m, m[2])
        if not sha:
            return
        data = repo.commits[sha].get(m[3])
        if data is None:
            self.send(
                r,
                404,
                {"error": "Entry not found"},
                {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha},
            )
            return
        if not lfs(m[3], data):
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            self.file(r, data, {"ETag": f'"{git}"', "X-Repo-Commit": sha})
            return
        oid = hashlib.sha256(data).hexdigest()
        self.blobs[oid] = data
        # The redirect names another host name of this machine, because the real Hub stores files on
        # another host.
        self.send(
            r,
            302,
            {},
            {
                "Location": f"http://localhost:{self.server.server_port}/cdn/{oid}",
                "X-Repo-Commit": sha,
                "X-Linked-Etag": f'"{oid}"',
                "X-Linked-Size": str(len(data)),
                "ETag": f'"{oid}"',
            },
        )


def environment(hub: Hub, home: str) -> dict[str, str]:
    """Returns the environment in which huggingface_hub and the engine connect to the mock."""
    return {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": home,
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
