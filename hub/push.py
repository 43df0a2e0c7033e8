"""Brings a folder to the Hugging Face Hub through huggingface_hub: reads a job as JSON, and answers in a line of JSON. `robocache push` runs it."""

import sys

sys.path[:] = [p for p in sys.path if p]  # not what lies in the working folder
import hashlib
import json
import os
import random
import time

answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a library prints is for people


def end(**kw):
    answer.write(json.dumps(kw) + "\n")
    answer.flush()
    sys.exit(0)


def fail(kind, msg, hint="", **where):
    end(error={"class": kind, "msg": msg, "hint": hint, "where": where})


job = json.load(sys.stdin)
try:
    import huggingface_hub
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.hf_api import RepoFile
except ImportError as e:
    fail(
        "unsupported",
        f"push goes through the Python package huggingface_hub (0.26 or later), which {sys.executable} lacks ({e})",
        "pip install -U huggingface_hub, or name another Python: --python",
    )

api = HfApi(library_name="robocache")
repo = {"repo_id": job["repo"], "repo_type": "dataset"}
local = {f["path"]: f["size"] for f in job["files"]}
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


def status(e):
    return getattr(getattr(e, "response", None), "status_code", None)


def passing(e):
    """Whether another try may pass: the server says so, or the network failed."""
    return (
        status(e) in TEMPORARY
        if isinstance(e, HfHubHTTPError)
        else type(e).__module__.split(".")[0] in ("httpx", "httpcore", "requests", "urllib3")
        or isinstance(e, ConnectionError)
    )


def tried(do):
    for n in range(1, 7):
        try:
            return do()
        except Exception as e:
            if not passing(e) or n == 6 or job["dry_run"]:
                raise
            asked = getattr(getattr(e, "response", None), "headers", {}).get("Retry-After", "")
            time.sleep(
                (float(asked) if asked.isdigit() else 0) + random.random() * job["backoff"] * 2**n
            )


def same(remote, path):
    """Whether a file of the Hub has the local one's bytes."""
    if remote.size != local[path]:
        return False
    h, want = (
        (hashlib.sha256(), remote.lfs.sha256)
        if remote.lfs
        else (hashlib.sha1(b"blob %d\0" % remote.size), remote.blob_id)
    )
    with open(os.path.join(job["folder"], path), "rb") as f:
        while b := f.read(1 << 20):
            h.update(b)
    return h.hexdigest() == want


def differ(commit):
    """Files that are to go up, and those that are to go."""
    tree = (
        {
            f.path: f
            for f in tried(
                lambda: list(api.list_repo_tree(**repo, revision=commit, recursive=True))
            )
            if isinstance(f, RepoFile)
        }
        if commit
        else {}
    )
    return sorted(p for p in local if p not in tree or not same(tree[p], p)), sorted(
        p for p in tree if p not in local and p != ".gitattributes"
    )


def head():
    info = tried(lambda: api.repo_info(**repo, revision=job["branch"]))
    if job["private"] and info.private is False:
        fail(
            "misuse",
            "the dataset is there, and public",
            "make it private on the Hub, or push without --private",
        )
    return info.sha


def push():
    if not job["dry_run"] and not get_token():
        fail("misuse", "there is no token of the Hugging Face Hub", "hf auth login, or HF_TOKEN")
    commit = None
    try:
        commit = head()
    except RevisionNotFoundError:
        if job["private"] and tried(lambda: api.repo_info(**repo)).private is False:
            fail(
                "misuse",
                "the dataset is there, and public",
                "make it private on the Hub, or push without --private",
            )
        if not job["dry_run"]:
            tried(lambda: api.create_branch(**repo, branch=job["branch"], exist_ok=True))
            commit = head()
    except RepositoryNotFoundError:
        if not job["dry_run"]:
            tried(lambda: api.create_repo(**repo, private=job["private"] or None, exist_ok=True))
            if job["branch"] != "main":
                tried(lambda: api.create_branch(**repo, branch=job["branch"], exist_ok=True))
            commit = head()
    add, gone = differ(commit)
    out = {
        "repo": job["repo"],
        "branch": job["branch"],
        "commit": commit,
        "added": add,
        "deleted": gone,
        "bytes": sum(local[p] for p in add),
        "tag": job["tag"] or None,
    }
    if job["dry_run"]:
        return out
    if add or gone:
        work = [CommitOperationAdd(p, os.path.join(job["folder"], p)) for p in add]
        # what is there already is not sent again
        tried(
            lambda: api.preupload_lfs_files(
                **repo, additions=work, revision=job["branch"], free_memory=False
            )
        )
        ops = work + [CommitOperationDelete(p, is_folder=False) for p in gone]

        def send():
            try:
                return api.create_commit(
                    **repo,
                    operations=ops,
                    commit_message=job["message"],
                    revision=job["branch"],
                    parent_commit=commit,
                ).oid
            except HfHubHTTPError as e:
                now = head() if status(e) in (409, 412) else commit
                if now != commit and differ(now) == ([], []):
                    return now  # an earlier try had done it
                raise

        out["commit"] = tried(send)
        left = differ(out["commit"])
        if left != ([], []):
            fail(
                "temporary",
                f"the Hub does not hold what was sent: {', '.join([*left[0], *left[1]][:5])}",
                "push again",
            )
    if job["tag"]:
        old = next(
            (
                t.target_commit
                for t in tried(lambda: api.list_repo_refs(**repo)).tags
                if t.name == job["tag"]
            ),
            None,
        )
        if old != out["commit"]:
            if old:
                tried(lambda: api.delete_tag(**repo, tag=job["tag"]))
            tried(
                lambda: api.create_tag(
                    **repo, tag=job["tag"], revision=out["commit"], exist_ok=True
                )
            )
    return out


try:
    end(result=push())
except HFValidationError as e:
    fail("misuse", str(e).splitlines()[0], "owner/name")
except HfHubHTTPError as e:
    code, said = status(e), (getattr(e, "server_message", None) or "").splitlines()[:1]
    msg = f"the Hub answers {code}" + (f": {said[0][:200]}" if said else "")
    if code in (409, 412):
        fail(
            "temporary", f"the dataset was written to meanwhile ({msg})", "push again", status=code
        )
    if code in (401, 403):
        fail(
            "misuse",
            f"the Hub denies access ({msg})",
            "the token is missing, wrong or expired, or may not write there: hf auth login, or HF_TOKEN",
            status=code,
        )
    fail(
        "temporary" if passing(e) else "not_found" if code == 404 else "misuse",
        msg,
        "try again later" if passing(e) else "",
        status=code,
    )
except OSError as e:
    if not passing(e):
        fail(
            "temporary" if e.errno is None else "not_found",
            f"{type(e).__name__}: {e.strerror or 'the network failed'}",
            "try again",
        )
    fail(
        "temporary",
        f"the Hub cannot be reached ({type(e).__name__})",
        "check the network and HF_ENDPOINT",
    )
except Exception as e:
    if not passing(e):
        raise
    fail(
        "temporary",
        f"the Hub cannot be reached ({type(e).__name__})",
        "check the network and HF_ENDPOINT",
    )
